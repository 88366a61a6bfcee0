//! The real decisions behind the routes: one snapshot a request, placement over it, the binder, the admitter.
//! Knows no HTTP.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::Value;
use serde_json::value::RawValue;

use super::apart::apart;
use super::turns::{Turn, Turns};
use super::{BindFailure, Failure, Service, holds};
use crate::admission::{self, Admitter, Decision};
use crate::binding::{self, BindOutcome, BindRequest, Binder};
use crate::convert;
use crate::metrics::{Bound, Metrics, Readiness, Verb};
use crate::model::{NamespacedName, Pod, Reason, Refusal};
use crate::placement::{self, Context, Demand, Fitting, Rules};
use crate::policy::Policy;
use crate::publish::{IndexHandle, Reader};
use crate::selector::Selectors;
use crate::snapshot::{HoldId, Snapshot};
use crate::wire::{AdmissionAnswer, AdmissionRequest, BindArgs, ExtenderArgs, Verdicts};

/// How long filter waits for a claim that the scheduler has seen and our watch has not. Refused, the pod would
/// wait for the next event about it.
const CATCH_UP: Duration = Duration::from_millis(500);

pub struct Handlers {
    pub reader: Reader,
    pub index: IndexHandle,
    pub selectors: Arc<Selectors>,
    pub policy: Arc<ArcSwap<Policy>>,
    pub binder: Binder,
    pub admitter: Arc<Admitter>,
    pub metrics: Arc<Metrics>,
    pub readiness: Arc<Readiness>,
    pub turns: Turns,
}

fn read_pod(raw: &RawValue) -> Result<Pod, Failure> {
    if let Some(pod) = convert::pod_of_text(raw.get()) {
        return Ok(pod);
    }
    let value: Value =
        serde_json::from_str(raw.get()).map_err(|e| Failure::BadRequest(format!("the Pod is not JSON: {e}")))?;
    convert::pod(&value).map_err(|e| Failure::BadRequest(format!("the Pod cannot be read: {e}")))
}

/// Some claim of the pod is not in the snapshot, or not named yet.
fn lacks_claims(snapshot: &Snapshot, pod: &Pod) -> bool {
    pod.claims
        .iter()
        .any(|entry| match (entry.claim_name(), &entry.generated) {
            (Some(name), _) => !snapshot.claims.contains_key(&pod.claim_key(name)),
            // The controller said that no claim is needed.
            (None, Some(None)) => false,
            (None, _) => true,
        })
}

/// The pod as it is known best. The scheduler may send one from before the claim controller named its claims; the
/// one in the snapshot may have them already, and waiting could never change the one that was sent.
fn named(snapshot: &Snapshot, sent: &Arc<Pod>) -> Arc<Pod> {
    let unnamed = |pod: &Pod| {
        pod.claims
            .iter()
            .any(|c| c.claim_name().is_none() && c.generated.is_none())
    };
    match snapshot.pods.get(&sent.key) {
        Some(seen) if unnamed(sent) && seen.uid == sent.uid => seen.clone(),
        _ => sent.clone(),
    }
}

impl Handlers {
    fn ready(&self) -> Result<(), Failure> {
        self.readiness
            .listed()
            .map_err(|missing| Failure::NotReady(format!("wattlane is starting: {missing}")))
    }

    /// The newest snapshot and the pod as known best; a moment later where a claim of the pod is still missing.
    async fn picture(&self, sent: Arc<Pod>) -> (Arc<Snapshot>, Arc<Pod>) {
        let complete = |s: &Snapshot| !lacks_claims(s, &named(s, &sent));
        let mut snapshot = self.reader.load();
        if !complete(&snapshot) {
            drop(snapshot);
            let there = self.reader.wait_until(CATCH_UP, complete).await;
            snapshot = there.unwrap_or_else(|| self.reader.load());
        }
        let pod = named(&snapshot, &sent);
        (snapshot, pod)
    }

    /// What is asked of one pod. `pace`: not before binds of earlier pods leave room for its own.
    async fn asked(&self, args: &ExtenderArgs<'_>, pace: bool) -> Result<Asked, Failure> {
        self.ready()?;
        let pod = apart(args.pod.get().len(), || read_pod(args.pod))?;
        if pace && !pod.claims.is_empty() {
            self.binder.room().await;
        }
        record(&pod);
        let (snapshot, pod) = self.picture(Arc::new(pod)).await;
        let held = snapshot.held_for(&pod);
        let snapshot = match snapshot.as_seen_by(&pod) {
            Cow::Borrowed(_) => snapshot,
            Cow::Owned(seen) => Arc::new(seen),
        };
        let rules = self.policy.load().rules();
        Ok(Asked {
            snapshot,
            pod,
            held,
            rules,
        })
    }
}

/// What a verb about one pod decides from, the same to its end.
pub(super) struct Asked {
    /// As the pod may see it: what is held for it is free.
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) pod: Arc<Pod>,
    /// What is held for the pod from before.
    pub(super) held: Option<HoldId>,
    pub(super) rules: Rules,
}

impl Asked {
    fn context<'a>(&'a self, selectors: &'a Selectors) -> Context<'a> {
        Context {
            snapshot: &self.snapshot,
            selectors,
            rules: &self.rules,
        }
    }
}

impl Service for Handlers {
    async fn filter(&self, args: &ExtenderArgs<'_>) -> Result<Verdicts, Failure> {
        let asked = self.asked(args, true).await?;
        let (context, snapshot) = (asked.context(&self.selectors), &asked.snapshot);
        let mut tally = Tally::default();
        let (mut wanted, mut judged) = (None, false);
        let mut verdicts = Verdicts::with_capacity(args.names.len());
        match Demand::of(context, &asked.pod) {
            Ok(demand) if demand.is_empty() => {
                tally.fit = args.names.len();
                (0..args.names.len()).for_each(|_| verdicts.push(None));
            }
            Ok(demand) => {
                let unknown = Refusal::new(Reason::UnknownNode, "wattlane does not know this node (yet)");
                let mut turn = self.turns.take().await;
                let Turn { desk, pace, .. } = &mut turn;
                desk.renew(snapshot);
                let (mut walk, mut known) = (desk.names.walk(), desk.memo.about(context, &demand));
                // Neighbours are mostly alike, and a verdict that is the last one again is not looked at.
                let mut before = None;
                // Of each text of the verdicts.
                let mut reasons = vec![];
                let mut nodes = Vec::with_capacity(args.names.len());
                let judge = |at| {
                    let node = args.names.bytes_of(at).and_then(|name| walk.find(name));
                    let node = node.map(|(_, ix)| ix);
                    nodes.push(node);
                    let remembered = node.and_then(|ix| known.remembered(ix));
                    if remembered.is_some() && remembered == before {
                        verdicts.repeat();
                    } else {
                        let result = node.and_then(|ix| known.check(context, &demand, ix));
                        let refusal = result.unwrap_or(Err(&unknown)).err();
                        verdicts.push(refusal.map(|refusal| &refusal.message));
                        reasons.extend(refusal.filter(|_| verdicts.texts() > reasons.len()).map(|r| r.reason));
                        before = node.and_then(|ix| known.remembered(ix));
                    }
                    remembered.is_some()
                };
                pace.through(args.names.len(), judge).await;
                tally.fit = verdicts.fit();
                for (reason, nodes) in reasons.into_iter().zip(verdicts.refused()) {
                    tally.refused[reason as usize] += nodes;
                }
                judged = tally.refused[Reason::UnknownNode as usize] == 0;
                match tally.fit {
                    0 => holds::say_held((desk, pace), context, &demand, &nodes, &mut verdicts).await,
                    // The scheduler asks for no scores then.
                    1 => {
                        let left = verdicts.fitting().next();
                        wanted = left.and_then(|at| {
                            let node = args.names.get(at)?;
                            holds::wanted(context, &demand, &asked.pod, node)
                        });
                    }
                    _ => {}
                }
                self.metrics.searches_cut(Verb::Filter, demand.cut_searches());
            }
            Err(refusal) => {
                tally.refused[refusal.reason as usize] = args.names.len();
                (0..args.names.len()).for_each(|_| verdicts.push(Some(&refusal.message)));
            }
        }
        tally.report(&self.metrics);
        if tally.fit == 0 && !args.names.is_empty() {
            self.index.refused(asked.pod.clone(), snapshot.version);
            self.unplaceable(&asked, judged).await;
        }
        if let Some(wanted) = wanted {
            self.hold(&asked, wanted).await;
        }
        Ok(verdicts)
    }

    async fn prioritize(&self, args: &ExtenderArgs<'_>) -> Result<Vec<u8>, Failure> {
        let asked = self.asked(args, false).await?;
        let (context, snapshot) = (asked.context(&self.selectors), &asked.snapshot);
        // A refusal now, after filter said yes: bind will say it again. Scores cannot.
        let Some(demand) = Demand::of(context, &asked.pod)
            .ok()
            .filter(|d| placement::has_say(context, d))
        else {
            return Ok(vec![0; args.names.len()]);
        };
        let mut turn = self.turns.take().await;
        let Turn { desk, pace, .. } = &mut turn;
        desk.renew(snapshot);
        let (mut walk, mut known) = (desk.names.walk(), desk.memo.about(context, &demand));
        let mut fitting = Fitting::with_capacity(args.names.len());
        let judge = |at| match args.names.bytes_of(at).and_then(|name| walk.find(name)) {
            Some((order, ix)) => known.add_to(&mut fitting, context, &demand, ix, (order, at as u32)),
            None => true,
        };
        pace.through(args.names.len(), judge).await;
        let scores = fitting.scores(&demand, args.names.len());
        self.metrics.searches_cut(Verb::Prioritize, demand.cut_searches());
        let best = scores
            .iter()
            .position(|score| *score == placement::BEST && !demand.is_empty());
        let wanted = best.and_then(|best| holds::wanted(context, &demand, &asked.pod, args.names.get(best)?));
        // Waiting needs no core.
        drop(turn);
        if let Some(wanted) = wanted {
            self.hold(&asked, wanted).await;
        }
        Ok(scores)
    }

    async fn bind(&self, args: &BindArgs) -> Result<(), BindFailure> {
        if let Err(missing) = self.readiness.listed() {
            self.metrics.bind(Bound::Error);
            let message = format!("wattlane is starting: {missing}");
            return Err(BindFailure {
                message,
                refusal: false,
                elsewhere: false,
            });
        }
        let rules = Arc::new(self.policy.load().rules());
        let request = BindRequest {
            pod: NamespacedName::new(args.namespace.as_str(), args.name.as_str()),
            uid: args.uid.as_str().into(),
            node: args.node.as_str().into(),
        };
        let bound = self.binder.bind(rules, request).await;
        self.metrics.searches_cut(Verb::Bind, self.binder.take_cut_searches());
        match bound {
            Ok(outcome) => {
                self.metrics.bind(match outcome {
                    BindOutcome::Bound => Bound::Bound,
                    BindOutcome::Plain => Bound::WithoutClaims,
                    BindOutcome::Already => Bound::Already,
                });
                Ok(())
            }
            Err(error) => {
                use binding::BindFailure as Kind;
                let bound = match error.kind {
                    Kind::Refused(_) | Kind::PodGone | Kind::BoundElsewhere | Kind::Unready => Bound::Refused,
                    Kind::Awaited => Bound::Awaited,
                    Kind::NotLeader => Bound::NotLeader,
                    Kind::Conflict | Kind::Busy => Bound::Conflict,
                    Kind::ApiRefused | Kind::Unknown | Kind::Crowded | Kind::Unfinished | Kind::Internal => {
                        Bound::Error
                    }
                };
                self.metrics.bind(bound);
                Err(BindFailure {
                    message: error.message.to_string(),
                    refusal: bound != Bound::Error,
                    elsewhere: bound == Bound::NotLeader,
                })
            }
        }
    }

    async fn admit(&self, request: AdmissionRequest) -> AdmissionAnswer {
        let asked = admission::Request {
            namespace: &request.namespace,
            operation: "CREATE",
            object: &request.object,
        };
        match self.admitter.admit(&asked, request.dry_run).await {
            Decision::LeaveAlone { reason, warnings, .. } => {
                self.metrics.skipped(reason.as_str());
                AdmissionAnswer {
                    warnings,
                    ..AdmissionAnswer::allow()
                }
            }
            Decision::Patch { ops, warnings, .. } => AdmissionAnswer {
                patch: Some(ops),
                warnings,
                ..AdmissionAnswer::allow()
            },
            Decision::Refuse(refused) => AdmissionAnswer::deny(refused.code, refused.message),
        }
    }
}

fn record(pod: &Pod) {
    let span = tracing::Span::current();
    span.record("pod", tracing::field::display(&pod.key));
    span.record("uid", &*pod.uid);
}

/// Verdicts of one request, counted once at its end: a counter per node and reason would be 5,000 look-ups.
#[derive(Default)]
struct Tally {
    fit: usize,
    refused: [usize; Reason::ALL.len()],
}

impl Tally {
    fn report(&self, metrics: &Metrics) {
        metrics.nodes_fit(self.fit);
        for (reason, count) in Reason::ALL
            .into_iter()
            .zip(self.refused)
            .filter(|(_, count)| *count > 0)
        {
            metrics.nodes_refused(reason, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::{Pod, Reason, Snapshot, convert, named};

    /// `Tally` indexes by discriminant.
    #[test]
    fn reasons_are_listed_in_the_order_of_their_discriminants() {
        assert!(Reason::ALL.iter().enumerate().all(|(i, r)| *r as usize == i));
    }

    fn pod(uid: &str, claim: Option<&str>) -> Arc<Pod> {
        let statuses: Vec<_> = claim
            .map(|c| json!({"name": "gpu", "resourceClaimName": c}))
            .into_iter()
            .collect();
        let value = json!({
            "metadata": {"namespace": "ns", "name": "p", "uid": uid},
            "spec": {"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
            "status": {"resourceClaimStatuses": statuses},
        });
        Arc::new(convert::pod(&value).expect("a pod"))
    }

    #[test]
    fn claims_named_since_the_pod_was_sent_are_known() {
        let (bare, full) = (pod("u1", None), pod("u1", Some("p-gpu")));
        let mut snapshot = Snapshot::default();
        assert_eq!(named(&snapshot, &bare), bare);
        snapshot.pods.insert(full.key.clone(), full.clone());
        assert_eq!(named(&snapshot, &bare), full);
        // Another pod of that name: its claims are not ours.
        let other = pod("u2", None);
        assert_eq!(named(&snapshot, &other), other);
        // What the scheduler says itself stands: our watch may be the older one.
        snapshot.pods.insert(bare.key.clone(), bare);
        assert_eq!(named(&snapshot, &full), full);
    }
}
