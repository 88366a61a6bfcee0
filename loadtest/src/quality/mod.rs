//! What the measurements of placement quality share: numbers that are the same on every run, a cluster that pods come to
//! and leave, and medians over seeds. No server and no clock: what is measured is what is chosen.

pub(crate) mod links;
#[path = "../../../tests/shared/splitmix.rs"]
mod splitmix;
pub(crate) mod world;

use serde_json::{Value, json};
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

/// Median (of an even number the upper), range, and each seed's value in the order of seeds. Seeds of which there is
/// nothing to say (NaN) are null and not among the others.
pub(crate) fn over_seeds(samples: &[f64]) -> Value {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|s| s.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    json!({"median": sorted.get(sorted.len() / 2), "least": sorted.first(), "most": sorted.last(), "seeds": samples})
}

/// `median (least-most)` with so many digits; the range only where there is one.
pub(crate) fn show(value: &Value, digits: usize) -> String {
    let number = |key: &str| value[key].as_f64().map(|n| format!("{n:.digits$}"));
    match (number("median"), number("least"), number("most")) {
        (Some(median), Some(least), Some(most)) if least == most => median,
        (Some(median), Some(least), Some(most)) => format!("{median} ({least}-{most})"),
        _ => "-".into(),
    }
}

/// Columns as wide as their longest text, the first ones to the left, the rest to the right.
pub(crate) fn columns(rows: &[Vec<String>], left: usize) -> String {
    let most = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|t| t.chars().count()).max();
    let widths: Vec<usize> = (0..most).map(|c| width(c).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(c, (text, width))| match c < left {
                true => format!("{text:<width$}"),
                false => format!("{text:>width$}"),
            });
        out += cells.collect::<Vec<_>>().join("  ").trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Dice, over_seeds, show};

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

    #[test]
    fn medians() {
        let value = over_seeds(&[3.0, f64::NAN, 1.0, 2.0]);
        assert_eq!(show(&value, 1), "2.0 (1.0-3.0)");
        assert_eq!(show(&over_seeds(&[f64::NAN]), 1), "-");
    }
}
