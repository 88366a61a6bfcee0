//! A list by position, cheap to clone and cheap to change: blocks of 64, copied on write.
//!
//! Nearly every event changes one node or pool, and its snapshot is published. One long list would be copied each time, which
//! is a reference counted in the memory of every node of the cluster.

use std::sync::Arc;

use crate::model::Room;

const BLOCK: usize = 64;

type Block<T> = [Option<T>; BLOCK];

/// What is as good as one value: the very same, or one that means the same.
pub trait Same {
    fn is_same(&self, other: &Self) -> bool;
}

impl<T> Same for Arc<T> {
    fn is_same(&self, other: &Self) -> bool {
        Self::ptr_eq(self, other)
    }
}

impl Same for Room {
    fn is_same(&self, other: &Self) -> bool {
        self == other
    }
}

#[derive(Debug)]
pub struct Slots<T> {
    blocks: Arc<Vec<Arc<Block<T>>>>,
    len: usize,
}

impl<T> Clone for Slots<T> {
    fn clone(&self) -> Self {
        Self {
            blocks: self.blocks.clone(),
            len: self.len,
        }
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            blocks: Arc::default(),
            len: 0,
        }
    }
}

impl<T: Clone + Same> Slots<T> {
    /// Positions ever given, free ones included.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// None: a free position.
    #[inline]
    pub fn get(&self, at: u32) -> Option<&T> {
        let at = at as usize;
        self.blocks.get(at / BLOCK)?[at % BLOCK].as_ref()
    }

    /// By position; None: a free one.
    pub fn iter(&self) -> impl Iterator<Item = Option<&T>> + Clone {
        self.blocks
            .iter()
            .flat_map(|b| b.iter())
            .map(Option::as_ref)
            .take(self.len)
    }

    /// None frees the position.
    pub fn put(&mut self, at: u32, value: Option<T>) {
        let at = at as usize;
        let blocks = Arc::make_mut(&mut self.blocks);
        while blocks.len() <= at / BLOCK {
            blocks.push(Arc::new(std::array::from_fn(|_| None)));
        }
        Arc::make_mut(&mut blocks[at / BLOCK])[at % BLOCK] = value;
        self.len = self.len.max(at + 1);
    }

    /// Nothing was put into either since one was cloned of the other.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.blocks, &other.blocks)
    }

    /// Positions whose content is not the very same, in order.
    pub fn changed<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = u32> + 'a {
        let blocks = match self.is_same(other) {
            true => 0,
            false => self.blocks.len().max(other.blocks.len()),
        };
        let differ = move |block: &usize| match (self.blocks.get(*block), other.blocks.get(*block)) {
            (Some(a), Some(b)) => !Arc::ptr_eq(a, b),
            _ => true,
        };
        let positions = (0..blocks).filter(differ).flat_map(|b| b * BLOCK..(b + 1) * BLOCK);
        positions.filter_map(|at| {
            let at = u32::try_from(at).ok()?;
            let same = match (self.get(at), other.get(at)) {
                (Some(a), Some(b)) => a.is_same(b),
                (None, None) => true,
                _ => false,
            };
            (!same).then_some(at)
        })
    }
}

impl<T: Clone + Same> FromIterator<Option<T>> for Slots<T> {
    fn from_iter<I: IntoIterator<Item = Option<T>>>(values: I) -> Self {
        let mut slots = Self::default();
        (0..).zip(values).for_each(|(at, value)| slots.put(at, value));
        slots
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As a plain list would be; and what changed since a clone is what was put there, whatever was put.
        #[test]
        fn it_is_a_list_that_knows_what_changed(
            before in prop::collection::vec((0_u32..300, any::<bool>()), 0..60),
            after in prop::collection::vec((0_u32..300, any::<bool>()), 0..10),
        ) {
            let mut list: Vec<Option<Arc<u32>>> = vec![];
            let mut slots = Slots::default();
            let put = |slots: &mut Slots<Arc<u32>>, list: &mut Vec<Option<Arc<u32>>>, (at, there): (u32, bool)| {
                let value = there.then(|| Arc::new(at));
                list.resize(list.len().max(at as usize + 1), None);
                list[at as usize] = value.clone();
                slots.put(at, value);
            };
            before.into_iter().for_each(|step| put(&mut slots, &mut list, step));
            let (old, was) = (slots.clone(), list.clone());
            prop_assert!(slots.is_same(&old) && slots.changed(&old).next().is_none());
            after.iter().for_each(|step| put(&mut slots, &mut list, *step));
            prop_assert_eq!(slots.is_same(&old), after.is_empty());
            prop_assert_eq!(slots.len(), list.len());
            prop_assert!(slots.iter().eq(list.iter().map(Option::as_ref)));
            prop_assert!(old.iter().eq(was.iter().map(Option::as_ref)), "a clone does not see later changes");
            let pointer = |list: &[Option<Arc<u32>>], at: usize| list.get(at).and_then(Option::as_ref).map(Arc::as_ptr);
            let expected: Vec<u32> = (0_u32..300).filter(|at| pointer(&was, *at as usize) != pointer(&list, *at as usize)).collect();
            prop_assert_eq!(slots.changed(&old).collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(old.changed(&slots).collect::<Vec<_>>(), expected);
        }
    }
}
