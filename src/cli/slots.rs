//! What `explain` says of the shared devices of a pod: slots, who has them, and what a slot is not.

use std::fmt::Write;

use serde::Serialize;

use crate::app::Core;
use crate::model::{Name, Pod};
use crate::placement::{self, Context};
use crate::policy::Sharing;

/// One shared claim of the pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Slots {
    claim: Name,
    slots: usize,
    left: usize,
    /// Pods that have one, by name.
    users: Vec<Name>,
    /// Where it is. None: not allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<Name>,
    /// What the policy says, and what sharing so does not do.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl Slots {
    pub(super) fn of(core: &Core, context: Context<'_>, pod: &Pod) -> Vec<Self> {
        let namespace = context.snapshot.namespaces.get(&pod.key.namespace);
        let policy = core.policy.load();
        let rule = namespace.and_then(|n| policy.namespace_rule(&n.labels));
        let sharing = rule.and_then(|r| r.sharing.as_ref());
        let note = |s: &Sharing| format!("{}; {}", s.words(), s.not_isolated());
        let names: Vec<_> = pod.claims.iter().filter_map(|c| c.claim_name()).collect();
        let all = placement::shares(context);
        let own = all.filter(|s| s.claim.namespace == pod.key.namespace && names.contains(&&s.claim.name));
        own.map(|s| Self {
            claim: s.claim.name.clone(),
            slots: s.slots,
            left: s.left(),
            users: s.users,
            node: s.node,
            note: sharing.map(note),
        })
        .collect()
    }

    pub(super) fn line(&self) -> String {
        let mut line = format!(
            "shared claim {}: {} of {} slots left",
            self.claim, self.left, self.slots
        );
        if let Some(node) = &self.node {
            let _infallible = write!(line, " on {node}");
        }
        if !self.users.is_empty() {
            let users: Vec<&str> = self.users.iter().take(8).map(|u| &**u).collect();
            let more = self.users.len().saturating_sub(8);
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            let _infallible = write!(line, ", used by {}{more}", users.join(", "));
        }
        if let Some(note) = &self.note {
            let _infallible = write!(line, "\n  {note}");
        }
        line
    }
}
