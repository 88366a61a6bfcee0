//! Findings about power domains.

use super::{Finding, Kind};
use crate::snapshot::Snapshot;

pub(super) fn look(snapshot: &Snapshot, findings: &mut Vec<Finding>) {
    let over = snapshot.power.domains().filter(|d| d.used.watts > d.budget.watts);
    findings.extend(over.map(|domain| {
        let (budget, used) = (domain.budget, domain.used.watts);
        Finding {
            kind: Kind::BudgetExceeded,
            object: format!("PowerDomain {}={}", budget.label, budget.value),
            message: format!(
                "the cards in use there may draw {used} W, the budget is {} W: it was lowered, or somebody else than wattlane \
                 gave cards. Nothing more is given there; move pods away, or raise the budget",
                budget.watts
            ),
            subject: None,
        }
    }));
}
