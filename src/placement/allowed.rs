//! Which wattage classes a namespace may use. Admission says it first, to whoever creates the pod; it is held here,
//! because a pod's annotations can be edited afterwards, and a pod that admission never saw is placed too.

use std::collections::BTreeMap;

use super::Context;
use crate::model::{Labels, Name, Reason, Refusal};

/// What the pods of some namespaces may have. Of several rules the first that matches counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceLimits {
    /// Labels the namespace must carry, all of them. Empty: every namespace.
    pub matches: BTreeMap<Name, Name>,
    /// None: every class.
    pub classes: Option<Vec<Name>>,
    /// Cards of one pod, each counted once. None: any number.
    pub most_cards: Option<u32>,
    /// None: they share no devices through claims of ours.
    pub slots: Option<Slots>,
}

/// How the pods of some namespaces share devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Pods of one shared claim at most.
    pub most: u32,
    /// The only class whose devices are shared. None: any.
    pub class: Option<Name>,
}

impl NamespaceLimits {
    fn speaks_of(&self, labels: &Labels) -> bool {
        self.matches.iter().all(|(k, v)| labels.get(k) == Some(v))
    }
}

/// The rule that speaks of a namespace. The inner None: no rule does, or none `limits` anything. The outer: a namespace
/// that is not known, where some rule does.
pub(super) fn rule_for<'a>(
    ctx: Context<'a>,
    namespace: &Name,
    limits: impl Fn(&NamespaceLimits) -> bool,
) -> Option<Option<&'a NamespaceLimits>> {
    let rules = &ctx.rules.allowed;
    if !rules.iter().any(limits) {
        return Some(None);
    }
    let known = ctx.snapshot.namespaces.get(namespace)?;
    Some(rules.iter().find(|rule| rule.speaks_of(&known.labels)))
}

/// What one pod's namespace may use. Devices without a class (a NIC) are nobody's privilege.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Allowed {
    namespace: Name,
    classes: Vec<Name>,
}

impl Allowed {
    /// None: everything.
    ///
    /// # Errors
    /// The namespace is not known, so that nobody can say what it may use.
    pub(super) fn of(ctx: Context<'_>, namespace: &Name) -> Result<Option<Self>, Refusal> {
        let Some(rule) = rule_for(ctx, namespace, |rule| rule.classes.is_some()) else {
            let words = format!("namespace {namespace} is not known yet, and with it what classes it may use");
            return Err(Refusal::new(Reason::WrongClass, words));
        };
        Ok(rule.and_then(|rule| rule.classes.clone()).map(|classes| Self {
            namespace: namespace.clone(),
            classes,
        }))
    }

    pub(super) fn admits(&self, class: Option<&Name>) -> bool {
        class.is_none_or(|class| self.classes.contains(class))
    }

    /// The pod names, or its claims hold, a class that is not allowed.
    pub(super) fn refusal(&self, what: &str, class: &Name) -> Refusal {
        let words = format!(
            "{what} class {class}, but namespace {} may use only {}",
            self.namespace,
            self.list()
        );
        Refusal::new(Reason::WrongClass, words)
    }

    /// What devices fit or do not.
    pub(super) fn words(&self) -> String {
        format!("the classes of namespace {} ({})", self.namespace, self.list())
    }

    fn list(&self) -> String {
        const SHOWN: usize = 5;
        let names: Vec<&str> = self.classes.iter().take(SHOWN).map(|c| &**c).collect();
        match (names.is_empty(), self.classes.len().saturating_sub(SHOWN)) {
            (true, _) => "none".to_owned(),
            (_, 0) => names.join(", "),
            (_, more) => format!("{} and {more} more", names.join(", ")),
        }
    }
}
