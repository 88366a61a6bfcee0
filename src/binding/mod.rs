//! The extender's bind: from a pod and the node the scheduler chose to a bound pod on exactly its devices, or to
//! nothing at all. Shared by all clusters; knows no HTTP.
//!
//! Owns: one bind at a time per pod, the deadline towards the caller, and that work once begun is brought to an end
//! when the caller has gone. The steps are in `attempt`, what a failed write means is in `settle`.
//!
//! With several replicas, a bind belongs to one term of leadership: its writes go through that term's `Fence`, and it
//! stops where it is when the term is over, as if the process had been killed. What it leaves in the API is found there
//! by the next bind of the pod, wherever that is; what it reserved in the index is given up, since no bind of a later
//! term begins before the index shows what was written.

mod attempt;
mod conditions;
mod flights;
mod give_back;
mod outcome;
mod settle;
#[cfg(test)]
mod tests;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

pub use attempt::reservation;
pub use give_back::{GiveBack, is_pinned};
pub use outcome::{BindError, BindFailure, BindOutcome};

use self::attempt::Attempt;
use self::flights::Flights;
use self::give_back::Returns;
use self::turns::Turns;
use crate::cluster::Cluster;
use crate::leader::{Fence, Leadership, NotLeading, Term};
use crate::model::{Name, NamespacedName, Pod, Reason, Refusal};
use crate::placement::{self, ClaimPlacement, Context, Demand, Rules};
use crate::publish::{IndexHandle, Reader};
use crate::selector::Selectors;
use crate::snapshot::{HoldId, Snapshot};

/// A bind that waits for another of its pod gives up this much before the deadline, so that the caller hears why.
const BUSY_EARLIER: Duration = Duration::from_millis(100);
/// For a replica that becomes the leader at this moment: it reads claims and pods, which takes a part of a second. The
/// rest of the time for an answer is the bind's.
const BECOMING: Duration = Duration::from_secs(2);

/// How long filter waits for binds before its pod. Well within what kube-scheduler waits for any answer (6 s in the manifests).
const PATIENCE: Duration = Duration::from_secs(2);

/// What kube-scheduler asks for (ExtenderBindingArgs).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindRequest {
    pub pod: NamespacedName,
    pub uid: Name,
    pub node: Name,
}

/// How long, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The caller has its answer by then. kube-scheduler's own limit is 5 s unless configured.
    pub answer: Duration,
    /// Until then a bind that is under way goes forward, caller or not; later it is undone: the scheduler has given the
    /// node's other resources away by then.
    pub forward: Duration,
    /// How long the API is asked for what became of a write before we stop asking. What is reserved stays reserved.
    pub settle: Duration,
    /// A write that was not answered can still take effect this long (the API server's own limit is 60 s).
    pub in_flight: Duration,
    /// Placements tried when something changes under us.
    pub attempts: u32,
    /// How long one call waits for devices to become ready; then the scheduler is asked to come again.
    pub ready: Duration,
    /// Binds that write to claims at one time; see `turns`.
    pub at_once: usize,
    /// Devices that are not ready this long after their allocation are given back (in-tree: `bindingTimeout`).
    pub unready: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            answer: Duration::from_millis(4500),
            forward: Duration::from_secs(30),
            settle: Duration::from_secs(600),
            in_flight: Duration::from_secs(65),
            attempts: 4,
            ready: Duration::from_secs(3),
            at_once: 16,
            unready: Duration::from_secs(600),
        }
    }
}

/// Binds pods. Cheap to clone.
#[derive(Clone)]
pub struct Binder {
    shared: Arc<Shared>,
    /// None: there is one replica, and it binds.
    leadership: Option<Leadership>,
}

/// Where the pod's claims would go on the node; empty: it has none. Pure, so that the steps can be tested apart from
/// placement.
type Planner = dyn Fn(&Snapshot, &Selectors, &Rules, &Pod, &Name) -> Result<Vec<ClaimPlacement>, Refusal> + Send + Sync;

struct Shared {
    planner: Box<Planner>,
    /// Searches that ended at their step limit and were not asked for yet.
    cut: Arc<AtomicU32>,
    /// Seconds since the epoch: allocations carry such a time.
    clock: Box<dyn Fn() -> i64 + Send + Sync>,
    reader: Reader,
    index: IndexHandle,
    selectors: Arc<Selectors>,
    cluster: Arc<dyn Cluster>,
    limits: Limits,
    flights: Arc<Flights>,
    /// Those that may allocate now.
    turns: Turns,
    returns: Arc<Returns>,
    /// What was written before is not ours.
    started: Instant,
    /// Binds under way, those whose caller has gone included.
    running: watch::Sender<usize>,
}

impl Binder {
    pub fn new(
        reader: Reader,
        index: IndexHandle,
        selectors: Arc<Selectors>,
        cluster: Arc<dyn Cluster>,
        limits: Limits,
    ) -> Self {
        let cut = Arc::<AtomicU32>::default();
        let counted = cut.clone();
        Self {
            shared: Arc::new(Shared {
                planner: Box::new(move |snapshot, selectors, rules, pod, node| {
                    let context = Context {
                        snapshot,
                        selectors,
                        rules,
                    };
                    plan(context, pod, node, &counted)
                }),
                cut,
                clock: Box::new(|| jiff::Timestamp::now().as_second()),
                reader,
                index,
                selectors,
                cluster,
                limits,
                turns: Turns::new(limits.at_once),
                flights: Arc::default(),
                returns: Arc::default(),
                started: Instant::now(),
                running: watch::Sender::new(0),
            }),
            leadership: None,
        }
    }

    /// Binds only while this replica leads.
    #[must_use]
    pub fn led_by(mut self, leadership: Leadership) -> Self {
        self.leadership = Some(leadership);
        self
    }

    /// Idempotent: a pod that is bound to this node already is a success. `rules` are those of the policy in force now.
    ///
    /// # Errors
    /// Words for the pod's event. Unless the kind says otherwise (`Unfinished`, `Unknown`), nothing of this call is
    /// left in the API.
    pub async fn bind(&self, rules: Arc<Rules>, request: BindRequest) -> Result<BindOutcome, BindError> {
        let deadline = Instant::now() + self.shared.limits.answer;
        if let Some(leadership) = &self.leadership {
            leadership.becoming(Instant::now() + BECOMING).await;
        }
        let mandate = self
            .mandate()
            .map_err(|no| BindError::new(BindFailure::NotLeader, no.0))?;
        let span = tracing::info_span!("bind", pod = %request.pod, uid = %request.uid, node = %request.node);
        // A task of its own: a client that hangs up drops our future, and a write must not lose its undo with it.
        let task = tokio::spawn(run(self.shared.clone(), mandate, rules, request, deadline).instrument(span));
        match timeout_at(deadline, task).await {
            Ok(Ok(result)) => result,
            Ok(Err(e)) => Err(BindError::new(
                BindFailure::Internal,
                format!("internal error in bind: {e}"),
            )),
            Err(_) => Err(BindError::new(
                BindFailure::Unfinished,
                "the Kubernetes API is slow: the bind goes on, and its devices stay reserved until its result is known",
            )),
        }
    }

    /// Waits, for a while at most, until a pod that is placed now would not wait long to be bound.
    pub async fn room(&self) {
        self.shared.turns.room(Instant::now() + PATIENCE).await;
    }

    /// The right to write now.
    fn mandate(&self) -> Result<Mandate, NotLeading> {
        let term = self.leadership.as_ref().map(Leadership::term).transpose()?;
        Ok(Mandate::new(&self.shared, term))
    }

    /// Searches that ended at their step limit since this was last asked.
    pub fn take_cut_searches(&self) -> u32 {
        self.shared.cut.swap(0, Ordering::Relaxed)
    }

    /// Binds under way, including those whose caller has gone.
    pub fn running(&self) -> usize {
        *self.shared.running.borrow()
    }

    /// Returns when no bind is under way: for a shutdown that leaves nothing half done. Accept no new ones first.
    pub async fn drained(&self) {
        // The sender lives in self: this cannot fail while we wait.
        let _ = self.shared.running.subscribe().wait_for(|n| *n == 0).await;
    }
}

fn plan(context: Context<'_>, pod: &Pod, node: &Name, cut: &AtomicU32) -> Result<Vec<ClaimPlacement>, Refusal> {
    let demand = Demand::of(context, pod)?;
    if demand.is_empty() {
        return Ok(vec![]);
    }
    let found = context.snapshot.node_ix(node);
    let Some((ix, entry)) = found.and_then(|ix| Some((ix, context.snapshot.node(ix)?))) else {
        return Err(Refusal::new(Reason::UnknownNode, "the node is not known (yet)"));
    };
    let placed = placement::place(context, &demand, entry).map(|p| p.claims);
    let placed = placed.map_err(|no| match context.snapshot.without_holds() {
        Some(free) if placement::only_held(context, &free, &demand, ix) => Refusal::new(no.reason, placement::HELD),
        _ => no,
    });
    cut.fetch_add(demand.cut_searches(), Ordering::Relaxed);
    placed
}

/// By what right we write.
struct Mandate {
    cluster: Arc<dyn Cluster>,
    term: Option<Term>,
}

impl Mandate {
    /// Without a term: there is one replica.
    fn new(shared: &Shared, term: Option<Term>) -> Self {
        let cluster: Arc<dyn Cluster> = match &term {
            Some(term) => Arc::new(Fence::new(shared.cluster.clone(), term.clone())),
            None => shared.cluster.clone(),
        };
        Self { cluster, term }
    }

    /// Returns when it has ended.
    async fn over(&self) {
        match &self.term {
            Some(term) => term.over().await,
            None => std::future::pending().await,
        }
    }

    fn is_over(&self) -> bool {
        self.term.as_ref().is_some_and(Term::is_over)
    }
}

async fn run(
    shared: Arc<Shared>,
    mandate: Mandate,
    rules: Arc<Rules>,
    request: BindRequest,
    deadline: Instant,
) -> Result<BindOutcome, BindError> {
    let _running = Running::new(shared.clone());
    let held = shared.held_for(&request);
    let busy_at = deadline.checked_sub(BUSY_EARLIER).unwrap_or(deadline);
    let ticket = shared.flights.enter(&request.uid);
    let Ok((_turn, waited)) = timeout_at(busy_at, ticket.turn()).await else {
        return Err(BindError::new(
            BindFailure::Busy,
            "an earlier bind of this pod is still under way; trying again later will tell its result",
        ));
    };
    let attempt = Attempt::new(&shared, &*mandate.cluster, &rules, &request, deadline);
    let result = tokio::select! {
        biased;
        () = mandate.over() => None,
        result = attempt.run(waited) => Some(result),
    };
    let result = match result {
        Some(Ok(outcome)) => Ok(outcome),
        Some(Err(error)) if !mandate.is_over() => Err(error),
        // Also where an attempt ended because its writes were refused for that: not by what it then says.
        _ => {
            attempt.release().await;
            Err(BindError::new(
                BindFailure::NotLeader,
                "no longer the leader: what was written of this bind is left to the next one; trying again will find it",
            ))
        }
    };
    // Another try begins with another filter, which may have come already: what it took is not ours to drop.
    if result.is_err()
        && let Some(held) = held
    {
        shared.index.drop_hold(held).await;
    }
    match &result {
        Ok(outcome) => tracing::info!(outcome = outcome.as_str(), "bound"),
        Err(e) => tracing::warn!(kind = e.kind.as_str(), error = %e.message, "not bound"),
    }
    result
}

impl Shared {
    /// What is held for the pod now.
    fn held_for(&self, request: &BindRequest) -> Option<HoldId> {
        let snapshot = self.reader.load();
        let pod = snapshot.pods.get(&request.pod).filter(|p| p.uid == request.uid)?;
        snapshot.held_for(pod)
    }
}

/// Counts a bind for as long as it lives.
struct Running(Arc<Shared>);

impl Running {
    fn new(shared: Arc<Shared>) -> Self {
        shared.running.send_modify(|n| *n += 1);
        Self(shared)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.send_modify(|n| *n -= 1);
    }
}
