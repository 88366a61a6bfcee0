//! The nodes a request names. Thousands of names are most of a request and of its answer, so those that came plain stay
//! where they are in its body: an answer takes them, and whole runs of them, as they are written there.

use std::borrow::Cow;
use std::ops::Range;

use crate::wire::json::write_string;

/// In the caller's order; answers are aligned with it.
#[derive(Clone, Debug, Default)]
pub struct NodeNames<'a> {
    /// As between the brackets of a JSON list: strings, a comma between two, no space.
    list: Cow<'a, str>,
    /// Where the last quote of each is.
    ends: Vec<u32>,
    /// What they say, where `list` was not the caller's but written from it.
    read: Option<Vec<String>>,
}

impl<'a> NodeNames<'a> {
    /// What is between the brackets of a list, without space between names and without escapes; None: not so, or no name.
    pub(super) fn plain(list: &'a str) -> Option<Self> {
        // A character that may not be in a string, or begins an escape. All of the list is looked at, which goes by many
        // bytes at a time.
        if list.bytes().fold(false, |odd, b| odd | (b < b' ') | (b == b'\\')) {
            return None;
        }
        let ends = ends(list.as_bytes())?;
        Some(Self {
            list: list.into(),
            ends,
            read: None,
        })
    }

    /// None: four thousand million bytes of them, which no body has.
    pub(super) fn read(names: Vec<String>) -> Option<Self> {
        let (mut list, mut ends) = (vec![], Vec::with_capacity(names.len()));
        for name in &names {
            if !ends.is_empty() {
                list.push(b',');
            }
            write_string(&mut list, name);
            ends.push(u32::try_from(list.len() - 1).ok()?);
        }
        Some(Self {
            list: String::from_utf8(list).ok()?.into(),
            ends,
            read: Some(names),
        })
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn get(&self, at: usize) -> Option<&str> {
        std::str::from_utf8(self.bytes_of(at)?).ok()
    }

    /// As `get`; to compare it, which is all most of them are for, needs no look at where characters begin.
    #[inline]
    pub fn bytes_of(&self, at: usize) -> Option<&[u8]> {
        match &self.read {
            None => self
                .list
                .as_bytes()
                .get(self.start(at)? + 1..*self.ends.get(at)? as usize),
            Some(names) => names.get(at).map(String::as_bytes),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// Each from a position on, as a JSON string.
    #[inline]
    pub(super) fn written_from(&self, at: usize) -> impl Iterator<Item = &[u8]> {
        let mut start = self.start(at).unwrap_or(0);
        let ends = self.ends.get(at..).unwrap_or_default();
        ends.iter().map(move |end| {
            let end = *end as usize;
            let name = self.list.as_bytes().get(start..end + 1);
            start = end + 2;
            name.unwrap_or_default()
        })
    }

    /// Those of the range as they are in a JSON list; empty where not all of them are there.
    pub(super) fn written_run(&self, run: Range<usize>) -> &[u8] {
        let start = self.start(run.start);
        let end = run.end.checked_sub(1).and_then(|last| self.ends.get(last));
        let range = start.zip(end).map(|(start, end)| start..*end as usize + 1);
        range
            .and_then(|range| self.list.as_bytes().get(range))
            .unwrap_or_default()
    }

    /// What all of them take, with quotes and commas.
    pub(super) fn size(&self) -> usize {
        self.list.len() + 1
    }

    /// Where its first quote is, or would be.
    #[inline]
    fn start(&self, at: usize) -> Option<usize> {
        match at.checked_sub(1) {
            None => Some(0),
            Some(before) => Some(*self.ends.get(before)? as usize + 2),
        }
    }
}

/// Where the last quote of each string of the list is; None: it is not just strings with a comma between two, or is empty.
/// There is nothing in it that is escaped.
///
/// Names of one pool are of one length, so each is first taken to be as long as the one before. That a quote was passed
/// over, and the guess wrong, shows at the end: there are more of them than two a name.
fn ends(list: &[u8]) -> Option<Vec<u32>> {
    /// Shorter than most names with their quotes, so that this seldom grows.
    const NAME: usize = 24;
    let quotes = memchr::memchr_iter(b'"', list).count();
    let all = |guess: bool| {
        let mut ends = Vec::with_capacity(list.len() / NAME);
        let (mut start, mut len) = (0, usize::MAX);
        while list.get(start) == Some(&b'"') {
            let first = start + 1;
            let mut end = first.saturating_add(len);
            if !guess || list.get(end..end.saturating_add(3)) != Some(br#"",""#) {
                end = first + memchr::memchr(b'"', &list[first..])?;
                len = end - first;
            }
            ends.push(u32::try_from(end).ok()?);
            match list.get(end + 1) {
                Some(b',') => start = end + 2,
                None => return (ends.len() * 2 == quotes).then_some(ends),
                Some(_) => return None,
            }
        }
        None
    };
    all(true).or_else(|| all(false))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A run is its names one by one.
        #[test]
        fn runs_are_their_names(names in prop::collection::vec("[a-z]{0,3}", 1..6), from in 0_usize..6, len in 1_usize..4) {
            let list = serde_json::to_string(&names).expect("JSON");
            let plain = NodeNames::plain(&list[1..list.len() - 1]).expect("plain");
            let read = NodeNames::read(names.clone()).expect("few");
            let from = from.min(names.len() - 1);
            let run = from..(from + len).min(names.len());
            for written in [plain, read] {
                prop_assert!(written.iter().eq(&names));
                prop_assert_eq!((written.len(), written.get(names.len())), (names.len(), None));
                let few: Vec<&[u8]> = written.written_from(from).take(run.len()).collect();
                prop_assert_eq!(written.written_run(run.clone()), few.join(&b','));
                prop_assert!(written.written_run(from..names.len() + 1).is_empty());
            }
        }

        /// Of one length, of many, and with quotes where a guess looks.
        #[test]
        fn guesses_are_never_wrong(list in r#"("a{0,3}",){0,3}("[a,"]{0,9}",){0,3}"[a"]{0,3}""#) {
            let usual: Option<Vec<String>> = serde_json::from_str(&format!("[{list}]")).ok();
            let found = ends(list.as_bytes()).map(|ends| NodeNames { list: list.as_str().into(), ends, read: None });
            prop_assert_eq!(found.map(|names| names.iter().map(str::to_owned).collect::<Vec<_>>()), usual);
        }
    }
}
