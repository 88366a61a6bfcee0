//! The shapes whose speed is measured, ready to be placed: a snapshot, its only node, and the pod. Shared by the
//! `allocate` scenario and the instruction counts (benches/placement.rs).

#[path = "../../tests/oracle/case.rs"]
#[allow(dead_code, reason = "the oracle's tests use the rest")]
pub(crate) mod case;
#[path = "../../tests/oracle/load.rs"]
mod load;
#[path = "../../tests/oracle/shapes.rs"]
pub(crate) mod shapes;

use std::sync::Arc;

use wattlane::model::{Pod, Refusal};
use wattlane::placement::{self, Context, Demand, Placement, Rules};
use wattlane::selector::Selectors;
use wattlane::snapshot::{NodeEntry, Snapshot};

use self::case::{Case, NODE};

pub(crate) struct Prepared {
    snapshot: Arc<Snapshot>,
    selectors: Selectors,
    rules: Rules,
    node: Arc<NodeEntry>,
    pod: Pod,
}

impl Prepared {
    /// Everything that is remembered beside a pool is warm, as in a service that has seen the class before.
    pub(crate) fn of(case: &Case) -> Self {
        let (snapshot, pod) = load::load(case);
        let node = snapshot.node_named(NODE).expect("the case has this node").clone();
        let prepared = Self {
            snapshot,
            selectors: Selectors::new(),
            rules: Rules::default(),
            node,
            pod,
        };
        // The answers are of no interest here. More than once, so that the allocator's free lists are warm as well.
        for _ in 0..8 {
            let demand = prepared.demand();
            let _ = (prepared.check(&demand), prepared.place(&demand));
        }
        prepared
    }

    fn context(&self) -> Context<'_> {
        Context {
            snapshot: &self.snapshot,
            selectors: &self.selectors,
            rules: &self.rules,
        }
    }

    /// What is read once a pod. One for each measurement: it counts the steps that were spent on its behalf.
    pub(crate) fn demand(&self) -> Demand {
        Demand::of(self.context(), &self.pod).expect("the shapes are refused by their node, if at all")
    }

    pub(crate) fn check(&self, demand: &Demand) -> Result<(), Refusal> {
        placement::check(self.context(), demand, &self.node)
    }

    pub(crate) fn place(&self, demand: &Demand) -> Result<Placement, Refusal> {
        placement::place(self.context(), demand, &self.node)
    }
}
