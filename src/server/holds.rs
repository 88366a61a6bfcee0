//! What filter and prioritize do beside their answer: they hold the devices on the node the scheduler will choose, say
//! where devices are only held, and have a pod's devices given back that keep it where it cannot run.

use std::time::Duration;

use super::desk::Desk;
use super::handlers::{Asked, Handlers};
use super::turns::Pace;
use crate::binding::{self, GiveBack};
use crate::index::Reservation;
use crate::metrics::GivenBack;
use crate::model::{Name, Pod};
use crate::placement::{self, Context, Demand};
use crate::snapshot::NodeIx;
use crate::wire::Verdicts;

/// How long an answer waits for its hold. Without one it is as good; only the bind may meet a conflict.
const PATIENCE: Duration = Duration::from_millis(50);

/// What the pod would get on the node and has not been given yet. None: nothing.
pub(super) fn wanted(context: Context<'_>, demand: &Demand, pod: &Pod, node: &str) -> Option<Reservation> {
    let entry = context.snapshot.node_named(node)?;
    let placed = placement::place(context, demand, entry).ok()?;
    binding::reservation(pod, &entry.node.name, &placed.claims)
}

/// Where nothing but holds is in the way, the words say so: it passes by itself. What is remembered of a node is true
/// without holds, too, unless one of them takes something of it.
pub(super) async fn say_held(
    (desk, pace): (&mut Desk, &mut Pace<'_>),
    context: Context<'_>,
    demand: &Demand,
    nodes: &[Option<NodeIx>],
    verdicts: &mut Verdicts,
) {
    let Some(free) = context.snapshot.without_holds() else {
        return;
    };
    desk.renew(&free);
    let lifted = Context {
        snapshot: &free,
        ..context
    };
    let known = desk.memo.about(lifted, demand);
    let words = Name::from(placement::HELD);
    let judge = |at: usize| {
        let touched = nodes[at].filter(|ix| known.remembered(*ix).is_none());
        if touched.is_some_and(|ix| placement::only_held(context, &free, demand, ix)) {
            verdicts.replace(at, &words);
        }
        touched.is_none()
    };
    pace.through(nodes.len(), judge).await;
}

impl Handlers {
    /// Holds what is wanted, before the answer that sends the pod to its node. Somebody was faster: placed anew once.
    pub(super) async fn hold(&self, asked: &Asked, wanted: Reservation) {
        let holding = async {
            let node = wanted.node.clone();
            let Err(conflict) = self.index.hold(wanted).await else {
                return;
            };
            tracing::debug!(%conflict, "not held: placed again");
            let turn = self.turns.take().await;
            let snapshot = self.reader.load();
            let snapshot = snapshot.as_seen_by(&asked.pod);
            let context = Context {
                snapshot: &snapshot,
                selectors: &self.selectors,
                rules: &asked.rules,
            };
            let demand = Demand::of(context, &asked.pod).ok();
            let again = demand.and_then(|demand| self::wanted(context, &demand, &asked.pod, &node));
            drop(turn);
            if let Some(again) = again
                && let Err(conflict) = self.index.hold(again).await
            {
                tracing::debug!(%conflict, "not held");
            }
        };
        if tokio::time::timeout(PATIENCE, holding).await.is_err() {
            tracing::debug!("not held in time");
        }
    }

    /// No node takes the pod: what is held for it is of no use, and neither are devices on a node that it was not bound
    /// to.
    pub(super) async fn unplaceable(&self, asked: &Asked, pinned: bool) {
        if let Some(id) = asked.held {
            // Too late, it ends by itself.
            let _ = tokio::time::timeout(PATIENCE, self.index.drop_hold(id)).await;
        }
        if pinned && binding::is_pinned(&asked.snapshot, &asked.pod) {
            let metrics = self.metrics.clone();
            self.binder.give_back(&asked.pod, move |outcome| {
                metrics.given_back(match outcome {
                    GiveBack::Done => GivenBack::Done,
                    GiveBack::Kept => GivenBack::Kept,
                    GiveBack::Shed => GivenBack::Shed,
                    GiveBack::Failed => GivenBack::Error,
                });
            });
        }
    }
}
