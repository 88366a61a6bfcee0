//! What filter says of the nodes of a request.

use std::sync::Arc;

/// Aligned with the names of the request: whether the node fits, or in which words not. Of thousands of nodes few are
/// refused in different words, so each text is here once.
#[derive(Clone, Debug, Default)]
pub struct Verdicts {
    words: Vec<Arc<str>>,
    /// Of how many nodes, by position of the words.
    refused: Vec<usize>,
    /// Position of the words and one more; 0: it fits.
    of: Vec<u32>,
    /// The words of the last refusal: of neighbours they are often the same.
    last: u32,
}

impl Verdicts {
    /// Texts looked at to find an equal one.
    const LOOK_BACK: usize = 8;

    pub fn with_capacity(nodes: usize) -> Self {
        Self {
            words: vec![],
            refused: vec![],
            of: Vec::with_capacity(nodes),
            last: 0,
        }
    }

    /// The verdict on the next node; None: it fits.
    #[inline]
    pub fn push(&mut self, refusal: Option<&Arc<str>>) {
        let code = refusal.map_or(0, |words| self.code(words));
        self.of.push(code);
    }

    /// As for the node before. Without one there is no verdict.
    #[inline]
    pub fn repeat(&mut self) {
        let Some(code) = self.of.last().copied() else { return };
        self.count(code);
        self.of.push(code);
    }

    /// Refuses a node with other words.
    pub fn replace(&mut self, at: usize, words: &Arc<str>) {
        let Some(old) = self.of.get(at).copied() else { return };
        if let Some(refused) = index(old).and_then(|at| self.refused.get_mut(at)) {
            *refused -= 1;
        }
        self.of[at] = self.code(words);
    }

    #[inline]
    fn code(&mut self, words: &Arc<str>) -> u32 {
        if !self.text(self.last).is_some_and(|last| Arc::ptr_eq(last, words)) {
            self.last = self.look_up(words);
        }
        self.count(self.last);
        self.last
    }

    #[inline]
    fn count(&mut self, code: u32) {
        if let Some(refused) = index(code).and_then(|at| self.refused.get_mut(at)) {
            *refused += 1;
        }
    }

    fn look_up(&mut self, words: &Arc<str>) -> u32 {
        let first = self.words.len().saturating_sub(Self::LOOK_BACK);
        let same = |known: &Arc<str>| Arc::ptr_eq(known, words);
        let at = match self.words[first..].iter().rposition(same) {
            Some(at) => first + at,
            None => {
                self.words.push(words.clone());
                self.refused.push(0);
                self.words.len() - 1
            }
        };
        // There are no more words than nodes, and no body has so many of them.
        u32::try_from(at + 1).unwrap_or(u32::MAX)
    }

    /// None: it fits.
    fn text(&self, code: u32) -> Option<&Arc<str>> {
        self.words.get(index(code)?)
    }

    pub fn len(&self) -> usize {
        self.of.len()
    }

    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// None fits, Some says why not.
    pub fn iter(&self) -> impl Iterator<Item = Option<&Arc<str>>> {
        self.of.iter().map(|code| self.text(*code))
    }

    /// Positions of the nodes that fit.
    pub fn fitting(&self) -> impl Iterator<Item = usize> + '_ {
        let all = self.of.iter().enumerate();
        all.filter_map(|(at, code)| (*code == 0).then_some(at))
    }

    /// How many nodes fit.
    pub fn fit(&self) -> usize {
        self.of.len() - self.refused.iter().sum::<usize>()
    }

    /// Each text once; those of `codes` go by their order.
    pub(super) fn words(&self) -> &[Arc<str>] {
        &self.words
    }

    /// How many different texts there are so far.
    pub fn texts(&self) -> usize {
        self.words.len()
    }

    /// How many nodes are refused in each text's words, in the order the texts came.
    pub fn refused(&self) -> impl Iterator<Item = usize> + '_ {
        self.refused.iter().copied()
    }

    /// 0 for a node that fits, else the position of its words and one more.
    pub(super) fn codes(&self) -> &[u32] {
        &self.of
    }
}

fn index(code: u32) -> Option<usize> {
    (code as usize).checked_sub(1)
}

impl FromIterator<Option<Arc<str>>> for Verdicts {
    fn from_iter<I: IntoIterator<Item = Option<Arc<str>>>>(verdicts: I) -> Self {
        let mut all = Self::default();
        verdicts.into_iter().for_each(|verdict| all.push(verdict.as_ref()));
        all
    }
}
