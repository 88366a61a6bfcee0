//! What the measurements of placement quality share: numbers that are the same on every run, and a cluster that pods come to
//! and leave. No server and no clock: what is measured is what is chosen.

pub(crate) mod links;
#[path = "../../../tests/shared/splitmix.rs"]
mod splitmix;
pub(crate) mod world;

use splitmix::SplitMix;

/// Numbers that are the same on every run.
#[derive(Clone, Debug)]
pub(crate) struct Dice(SplitMix);

impl Dice {
    /// Streams of one seed that do not follow each other.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut dice = Self(SplitMix::new(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95)));
        dice.roll(2);
        dice
    }

    /// 0 to `sides - 1`; 0 where there are no sides.
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        // Less than `sides`, which is a usize.
        self.0.below(sides as u64) as usize
    }

    /// Fisher and Yates.
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.roll(i + 1));
        }
    }

    /// One of the list; None: it is empty.
    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> Option<T> {
        list.get(self.roll(list.len())).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::Dice;

    #[test]
    fn dice_repeat_and_reach_every_side() {
        let rolls = |seed| {
            let mut dice = Dice::new(seed, 1);
            (0..200).map(|_| dice.roll(6)).collect::<Vec<_>>()
        };
        assert_eq!(rolls(7), rolls(7));
        assert_ne!(rolls(7), rolls(8));
        assert!((0..6).all(|side| rolls(7).contains(&side)));
    }
}
