//! Power domains: what each may draw and what is drawn of it. A node knows the positions of its domains.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::PoolIx;
use crate::model::{Budget, Name};

/// Position of a power domain in `Power`. Stable while a node is in it or the policy names it; reused afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomainIx(pub u32);

/// What is drawn of a domain by everything that is allocated, reserved or held, ours or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Class watts of the cards in use, each once.
    pub watts: u64,
    /// Something in use whose watts are not known, in words: what is left of the budget is then not known either.
    pub unknown: Option<Name>,
}

/// The power domains that have a budget. Three reference counts to clone; a claim event copies the uses.
#[derive(Clone, Debug, Default)]
pub struct Power {
    /// None: a free position.
    pub budgets: Arc<Vec<Option<Arc<Budget>>>>,
    /// Same positions as `budgets`.
    pub uses: Arc<Vec<Use>>,
    /// The domains of pools that several nodes reach, and that have a card: such a card counts in the domains of every
    /// node that reaches the pool, since nothing says which of them feeds it.
    pub wide: Arc<BTreeMap<PoolIx, Box<[DomainIx]>>>,
}

/// One domain as a reader sees it.
#[derive(Clone, Copy, Debug)]
pub struct Domain<'a> {
    pub budget: &'a Budget,
    pub used: &'a Use,
}

impl Domain<'_> {
    /// Watts that may still be given: none while something of unknown watts is in use.
    pub fn left(&self) -> u64 {
        match self.used.unknown {
            Some(_) => 0,
            None => self.budget.watts.saturating_sub(self.used.watts),
        }
    }

    /// Why `watts` more do not go in, in words.
    pub fn short_of(&self, watts: u64) -> String {
        let Budget {
            label,
            value,
            watts: budget,
        } = self.budget;
        match &self.used.unknown {
            Some(words) => format!("power domain {label}={value}: {words}"),
            None => format!(
                "power domain {label}={value}: budget {}, {} left, {} needed",
                Watts(*budget),
                Watts(self.left()),
                Watts(watts)
            ),
        }
    }
}

/// As people write it: whole kilowatts where it is that, else watts.
struct Watts(u64);

impl std::fmt::Display for Watts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            w if w >= 1000 && w % 1000 == 0 => write!(f, "{} kW", w / 1000),
            w => write!(f, "{w} W"),
        }
    }
}

impl Power {
    pub fn domain(&self, ix: DomainIx) -> Option<Domain<'_>> {
        let at = ix.0 as usize;
        Some(Domain {
            budget: self.budgets.get(at)?.as_ref()?,
            used: self.uses.get(at)?,
        })
    }

    /// In the order of positions.
    pub fn domains(&self) -> impl Iterator<Item = Domain<'_>> {
        let budgets = self.budgets.iter().zip(&*self.uses);
        budgets.filter_map(|(budget, used)| {
            Some(Domain {
                budget: budget.as_ref()?,
                used,
            })
        })
    }
}
