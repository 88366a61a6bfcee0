//! What a request finds prepared by those before it: where the nodes are that it names, and what is known of them for
//! pods like its own.

use crate::placement::Memo;
use crate::snapshot::{Names, Snapshot};

#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) names: Names,
    pub(super) memo: Memo,
}

impl Desk {
    /// Brings it up to date.
    pub(super) fn renew(&mut self, snapshot: &Snapshot) {
        if self.memo.renew(snapshot) {
            self.names = Names::of(snapshot);
        }
    }
}
