//! What a pod asks for: its claims, read once per request and not once per node. Says "no" here to whatever holds
//! for every node; knows no devices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::allowed::Allowed;
use super::existing::{Existing, usable};
use super::group::{GROUP, Group};
use super::limit::Limit;
use super::matching::SelectorUse;
use super::share::{Shared, shared};
use super::wish::Wishes;
use super::words::Texts;
use super::{Context, Topology};
use crate::model::{
    Allocation, CARD, CARDS, Claim, Count, DeviceClass, DeviceRequest, Name, NamespacedName, PARTITIONS, Pod, PodClaim,
    PodClaimSource, Readiness, Reason, Refusal, Request, RequestKind, Room, SHARE, SLOT_TEMPLATES, Share,
};
use crate::snapshot::{NodeEntry, Snapshot};

/// `status.reservedFor` holds this many consumers (resource.k8s.io/v1).
const CONSUMERS: usize = 256;
/// Results of one claim (resource.k8s.io/v1, AllocationResultsMaxSize).
pub(super) const RESULTS: usize = 32;
/// Claims of one pod whose devices are searched together. A bound of ours: `state` keeps them as bits of a word.
const CLAIMS: usize = 64;
/// Search steps a node may take, and all nodes of one demand together before each is down to `LATE_STEPS`.
const STEPS: u32 = 20_000;
const ALL_STEPS: u32 = 2_000_000;
const LATE_STEPS: u32 = 1_000;
/// Beyond this no node is searched at all.
const NO_STEPS: u32 = 2 * ALL_STEPS;

/// What a pod asks for, read once per request.
#[derive(Debug)]
pub struct Demand {
    pub(super) pod_uid: Name,
    /// CPU and memory of the pod.
    pub(super) room: Room,
    /// In the order of the pod; a claim named twice is here once.
    pub(super) claims: Vec<ClaimDemand>,
    /// Extended resources without a claim that are cards, or that a DeviceClass maps (with what to say then where no device
    /// plugin of the node serves them).
    extended: Vec<(Name, Option<Refusal>)>,
    /// A part of a card of a device plugin will do.
    parts: bool,
    pub(super) wishes: Wishes,
    /// How many cards the pod may hold. None: any number.
    pub(super) limit: Option<Limit>,
    pub(super) group: Option<Group>,
    /// Those of the claims that pods share.
    shared: Vec<Shared>,
    pub(super) texts: Texts,
    spent: AtomicU32,
    cut: AtomicU32,
}

#[derive(Debug)]
pub(super) enum ClaimDemand {
    Existing(Existing),
    New(NewClaim),
}

#[derive(Debug)]
pub(super) struct NewClaim {
    pub(super) claim: Arc<Claim>,
    pub(super) requests: Vec<RequestDemand>,
}

#[derive(Debug)]
pub(super) struct RequestDemand {
    /// One for `exactly`, in order of preference for `firstAvailable`; never empty.
    pub(super) alternatives: Vec<Alternative>,
}

#[derive(Debug)]
pub(super) struct Alternative {
    /// `request` or `request/subrequest`: the name in results.
    pub(super) name: Name,
    /// Name of the request alone: constraints and config may use either.
    pub(super) request_name: Name,
    pub(super) request: DeviceRequest,
    pub(super) class: Arc<DeviceClass>,
    /// Those of the class, then those of the request.
    pub(super) selectors: Vec<SelectorUse>,
    pub(super) meant: Meant,
}

/// What a request is for, where admission wrote it and the class or the selectors may include more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meant {
    /// Whatever the claim of a user's own selects.
    Anything,
    /// Cards: neither partitions nor shares.
    Cards,
    /// Partitions that nobody shares.
    Partitions,
}

impl Alternative {
    /// Whether a constraint or config entry with this list of requests speaks of it; an empty list speaks of all.
    pub(super) fn is_named_by(&self, requests: &[Name]) -> bool {
        requests.is_empty() || requests.iter().any(|r| *r == self.name || *r == self.request_name)
    }
}

impl Demand {
    /// A refusal here holds for every node.
    pub fn of(ctx: Context<'_>, pod: &Pod) -> Result<Self, Refusal> {
        let mut wishes = Wishes::of(pod)?;
        let group = Group::of(ctx, pod);
        // Pods that work together run at the speed of the slowest.
        if wishes.class.is_none() && !wishes.mix.unwrap_or(ctx.rules.mix_classes) {
            wishes.class = group.as_ref().and_then(|g| g.class.clone());
            let named = pod.annotation(GROUP).filter(|_| wishes.class.is_some());
            wishes.class_of_group = named.map(Name::from);
        }
        wishes.allowed = Allowed::of(ctx, &pod.key.namespace)?;
        if let (Some(class), Some(allowed)) = (&wishes.class, &wishes.allowed)
            && !allowed.admits(Some(class))
        {
            let whose = match wishes.class_of_group {
                Some(_) => "the pod's group holds",
                None => "the pod asks for",
            };
            return Err(allowed.refusal(whose, class));
        }
        let limit = Limit::of(ctx, &pod.key.namespace)?;
        let mut claims: Vec<ClaimDemand> = vec![];
        let mut seen: Vec<NamespacedName> = vec![];
        let mut shares: Vec<Shared> = vec![];
        for entry in &pod.claims {
            let Some(claim) = claim_of(ctx, pod, entry)? else {
                continue;
            };
            if seen.contains(&claim.key) {
                continue;
            }
            seen.push(claim.key.clone());
            if let Some((share, slots)) = shared(ctx, claim, pod)? {
                wishes.shares(slots)?;
                shares.push(share);
            }
            claims.push(match &given(ctx, claim, pod) {
                Some(allocation) => {
                    has_room_for(claim, pod)?;
                    can_become_ready(claim, pod)?;
                    ClaimDemand::Existing(Existing::new(claim.clone(), allocation.clone()))
                }
                None => {
                    if let Some(words) = &ctx.snapshot.unread {
                        return Err(Refusal::new(Reason::Unsupported, words.clone()));
                    }
                    let mut new = NewClaim::of(ctx, claim)?;
                    new.mean(entry);
                    ClaimDemand::New(new)
                }
            });
        }
        if claims.len() > CLAIMS {
            let words = format!("{} claims in one pod: at most {CLAIMS} are placed", claims.len());
            return Err(Refusal::new(Reason::Limit, words));
        }
        Ok(Self {
            pod_uid: pod.uid.clone(),
            room: pod.room,
            claims,
            extended: unclaimed(ctx, pod),
            parts: pod.annotation(SHARE).is_some_and(|name| name != "false"),
            wishes,
            limit,
            group,
            shared: shares,
            texts: Texts::default(),
            spent: AtomicU32::new(0),
            cut: AtomicU32::new(0),
        })
    }

    /// How many pods may have the claim at a time. None: it is not one that is shared so.
    pub(super) fn slots(&self, claim: &Claim) -> Option<usize> {
        self.shared.iter().find(|s| s.claim == claim.key).map(|s| s.most)
    }

    /// Nothing to allocate and nothing to check: every node will do.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.extended.is_empty()
    }

    /// Some of them are for a device plugin, or for nobody: `admit` looks at them.
    pub(super) fn asks_for_extended(&self) -> bool {
        !self.extended.is_empty()
    }

    /// What can be said about a node without looking at its devices.
    pub(super) fn admit(&self, ctx: Context<'_>, node: &NodeEntry) -> Result<(), Refusal> {
        for (name, mapped) in &self.extended {
            if let Some(how) = Snapshot::gives_parts(name, &node.node.labels).filter(|_| !self.parts) {
                let words = format!(
                    "the device plugin here gives {name} {how}, and the pod asks for whole ones \
                     ({SHARE} on the pod says that a part will do)"
                );
                return Err(Refusal::new(Reason::UnservedExtendedResource, words));
            }
            if let Some(refusal) = mapped
                && !node.node.extended_resources.contains(name)
            {
                return Err(refusal.clone());
            }
            let mut drivers = ctx.snapshot.pools_of(node).map(|(state, _)| &state.pool.driver);
            if let Some(driver) = drivers.find(|driver| ctx.snapshot.may_hold(name, None, driver)) {
                let words = format!(
                    "{driver} gives the devices here by claims, and the device plugin could give the pod one that is in use: \
                     make the pod anew with a claim for its {name}"
                );
                return Err(Refusal::new(Reason::UnservedExtendedResource, words));
            }
        }
        for claim in &self.claims {
            if let ClaimDemand::Existing(existing) = claim {
                usable(ctx, node, existing, &self.pod_uid)?;
            }
        }
        Ok(())
    }

    /// Searches of this demand that ended at the step limit, whether or not they had found something by then; nodes that
    /// were not searched at all for want of steps included.
    pub fn cut_searches(&self) -> u32 {
        self.cut.load(Ordering::Relaxed)
    }

    pub(super) fn note_cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn new_claims(&self) -> impl Iterator<Item = &NewClaim> {
        self.claims.iter().filter_map(|c| match c {
            ClaimDemand::New(new) => Some(new),
            ClaimDemand::Existing(..) => None,
        })
    }

    pub(super) fn existing(&self) -> impl Iterator<Item = &Allocation> {
        self.claims.iter().filter_map(|c| match c {
            ClaimDemand::Existing(existing) => Some(&*existing.allocation),
            ClaimDemand::New(_) => None,
        })
    }

    pub(super) fn topology(&self, ctx: Context<'_>) -> Topology {
        self.wishes.topology.unwrap_or(ctx.rules.topology)
    }

    /// Steps the next search may take: one hostile pod must not stall the service on thousands of nodes.
    pub(super) fn allowance(&self) -> u32 {
        match self.spent.load(Ordering::Relaxed) {
            spent if spent < ALL_STEPS => STEPS,
            spent if spent < NO_STEPS => LATE_STEPS,
            _ => 0,
        }
    }

    pub(super) fn spend(&self, steps: u32) {
        // Once above the limit it stays there: never enough is added to wrap.
        if self.spent.load(Ordering::Relaxed) < NO_STEPS {
            self.spent.fetch_add(steps, Ordering::Relaxed);
        }
    }
}

/// What the claim has, or is about to be given for another pod that shares it: its devices are not chosen twice.
fn given(ctx: Context<'_>, claim: &Claim, pod: &Pod) -> Option<Arc<Allocation>> {
    let coming = || {
        let sharers = ctx.snapshot.sharers.get(&claim.key)?;
        let (_, coming) = sharers.coming.as_ref().filter(|(of, _)| *of != pod.uid)?;
        Some(coming.clone())
    };
    claim.allocation.clone().or_else(coming)
}

/// The claim an entry of the pod stands for. None: the controller decided that none is needed.
fn claim_of<'a>(ctx: Context<'a>, pod: &Pod, entry: &PodClaim) -> Result<Option<&'a Arc<Claim>>, Refusal> {
    if entry.generated == Some(None) && matches!(entry.source, PodClaimSource::Template(_)) {
        return Ok(None);
    }
    if entry.source == PodClaimSource::Other {
        let words = "needs either resourceClaimName or resourceClaimTemplateName; other sources are not supported";
        return Err(unsupported("the pod's claim", &entry.name, words));
    }
    let missing = |name: &str| {
        let words = match Share::of_name(name) {
            Some(_) => format!(
                "shared claim {name} is gone: it is made anew, unless the policy makes another by now; then make the pod anew"
            ),
            None => format!("claim {name} is not there yet"),
        };
        Refusal::new(Reason::ClaimMissing, words)
    };
    let name = entry.claim_name().ok_or_else(|| missing(&entry.name))?;
    let key = pod.claim_key(name);
    let claim = ctx.snapshot.claim(&key).ok_or_else(|| missing(name))?;
    let unusable = |words: &str| Refusal::new(Reason::ClaimUnusable, format!("claim {name} {words}"));
    if claim.deleting {
        return Err(unusable("is being deleted"));
    }
    // Only for claims made from a template, as kubelet and the in-tree plugin do.
    if matches!(entry.source, PodClaimSource::Template(_)) && claim.owner_pod.as_ref() != Some(&pod.uid) {
        return Err(unusable("was not made for this pod"));
    }
    Ok(Some(claim))
}

fn has_room_for(claim: &Claim, pod: &Pod) -> Result<(), Refusal> {
    let ours = claim.reserved_for.iter().any(|c| c.uid == pod.uid);
    if claim.reserved_for.len() >= CONSUMERS && !ours {
        let words = format!(
            "claim {} is used by {CONSUMERS} pods, the most it may have",
            claim.key.name
        );
        return Err(Refusal::new(Reason::Limit, words));
    }
    Ok(())
}

/// A claim whose devices failed is given back when the pod is bound, and allocated anew; not while others hold it.
fn can_become_ready(claim: &Claim, pod: &Pod) -> Result<(), Refusal> {
    match claim.readiness() {
        Readiness::Failed(why) if claim.reserved_for.iter().any(|c| c.uid != pod.uid) => {
            let words = format!("claim {} is held by other pods, and {why}", claim.key.name);
            Err(Refusal::new(Reason::ClaimUnusable, words))
        }
        _ => Ok(()),
    }
}

/// What a DeviceClass maps kube-scheduler leaves to DRA; where nobody allocates for it, kubelet drops the unknown resource
/// and the pod runs without a device.
fn unclaimed(ctx: Context<'_>, pod: &Pod) -> Vec<(Name, Option<Refusal>)> {
    let asked = pod.unclaimed().filter_map(|(name, _)| {
        let mapped = ctx.snapshot.class_serving(name).map(|class| {
            let words = format!(
                "{name} is DeviceClass {}, and the pod has no claim for it: it would run without a device",
                class.name
            );
            Refusal::new(Reason::UnservedExtendedResource, words)
        });
        (mapped.is_some() || Snapshot::names_cards(name)).then(|| (name.clone(), mapped))
    });
    asked.collect()
}

impl NewClaim {
    /// `nvidia.com/gpu: N` in the pod as it was written, or partitions: admission made the template, whose names are its
    /// own, as is that of the alternative that is a card.
    fn mean(&mut self, entry: &PodClaim) {
        let alternatives = self.requests.iter_mut().flat_map(|r| &mut r.alternatives);
        let name = match &entry.source {
            PodClaimSource::Template(name) => name,
            PodClaimSource::Claim(name) if Share::of_name(name).is_some() => name,
            PodClaimSource::Claim(_) | PodClaimSource::Other => return,
        };
        // A slot of consumable capacity is a part of a card by its own words; where it may be a card, that is a whole one.
        if name.starts_with(SLOT_TEMPLATES) {
            let cards = alternatives.filter(|a| a.name.rsplit('/').next() == Some(CARD));
            cards.for_each(|a| a.meant = Meant::Cards);
            return;
        }
        if name.starts_with(CARDS) {
            alternatives.for_each(|a| a.meant = Meant::Cards);
        } else if name.starts_with(PARTITIONS) {
            alternatives.for_each(|a| {
                let card = a.name.rsplit('/').next() == Some(CARD);
                a.meant = if card { Meant::Cards } else { Meant::Partitions };
            });
        }
    }

    fn of(ctx: Context<'_>, claim: &Arc<Claim>) -> Result<Self, Refusal> {
        if let Some(words) = &claim.spec.unsupported {
            return Err(unsupported("claim", &claim.key.name, words));
        }
        let requests = claim
            .spec
            .requests
            .iter()
            .map(|request| RequestDemand::of(ctx, claim, request))
            .collect::<Result<Vec<_>, _>>()?;
        // `All` counts as one: how many there are depends on the node.
        let least = |request: &RequestDemand| {
            let counts = request.alternatives.iter().map(|a| match a.request.count {
                Count::Exactly(n) => n as usize,
                Count::All => 1,
            });
            counts.min().unwrap_or(0)
        };
        let total = requests.iter().map(least).fold(0, usize::saturating_add);
        if total > RESULTS {
            let words = format!(
                "claim {} asks for {total} devices: at most {RESULTS} go into one claim",
                claim.key.name
            );
            return Err(Refusal::new(Reason::Limit, words));
        }
        Ok(Self {
            claim: claim.clone(),
            requests,
        })
    }
}

impl RequestDemand {
    fn of(ctx: Context<'_>, claim: &Claim, request: &Request) -> Result<Self, Refusal> {
        let alternative = |name: Name, wanted: &DeviceRequest| Alternative::of(ctx, claim, request, name, wanted);
        let alternatives = match &request.kind {
            RequestKind::Exactly(wanted) => {
                let only = alternative(request.name.clone(), wanted)?;
                // In a list another alternative may do; here no node can.
                if let Some(refusal) = only.selectors.iter().find_map(|s| s.compile_refusal(&only)) {
                    return Err(refusal);
                }
                vec![only]
            }
            RequestKind::FirstAvailable(list) => list
                .iter()
                .map(|sub| alternative(format!("{}/{}", request.name, sub.name).into(), &sub.request))
                .collect::<Result<_, _>>()?,
        };
        let nothing = |a: &Alternative| a.request.count == Count::Exactly(0);
        if alternatives.is_empty() || alternatives.iter().any(nothing) {
            let words = format!("request {} of claim {} asks for nothing", request.name, claim.key.name);
            return Err(Refusal::new(Reason::InvalidRequest, words));
        }
        Ok(Self { alternatives })
    }
}

impl Alternative {
    fn of(
        ctx: Context<'_>,
        claim: &Claim,
        request: &Request,
        name: Name,
        wanted: &DeviceRequest,
    ) -> Result<Self, Refusal> {
        let Some(class) = ctx.snapshot.classes.get(&wanted.class) else {
            return Err(class_missing(ctx, &wanted.class));
        };
        if let Some(words) = &class.unsupported {
            return Err(unsupported("DeviceClass", &class.name, words));
        }
        let namespace = || ctx.snapshot.namespaces.get(&claim.key.namespace);
        if wanted.admin_access && !namespace().is_some_and(|n| n.admin_access()) {
            let words = format!(
                "request {name} asks for adminAccess: namespace {} is not labelled resource.kubernetes.io/admin-access=true",
                claim.key.namespace
            );
            return Err(Refusal::new(Reason::AdminAccess, words));
        }
        let of = |texts: &[Name], of_class| -> Vec<SelectorUse> {
            let uses = texts.iter().enumerate();
            uses.map(|(i, text)| SelectorUse::new(ctx.selectors.selector(text), of_class, i))
                .collect()
        };
        let mut selectors = of(&class.selectors, true);
        selectors.extend(of(&wanted.selectors, false));
        Ok(Self {
            name,
            request_name: request.name.clone(),
            request: wanted.clone(),
            class: class.clone(),
            selectors,
            meant: Meant::Anything,
        })
    }
}

fn unsupported(kind: &str, name: &str, words: &str) -> Refusal {
    Refusal::new(Reason::Unsupported, format!("{kind} {name}: {words}"))
}

fn class_missing(ctx: Context<'_>, name: &Name) -> Refusal {
    const SHOWN: usize = 5;
    let mut there: Vec<&Name> = ctx.snapshot.classes.iter().map(|(n, _)| n).collect();
    there.sort();
    let more = there.len().saturating_sub(SHOWN);
    let list = there.iter().take(SHOWN).map(|n| &***n).collect::<Vec<_>>().join(", ");
    let words = match (there.is_empty(), more) {
        (true, _) => format!("DeviceClass {name} does not exist, nor does any other"),
        (_, 0) => format!("DeviceClass {name} does not exist; there is {list}"),
        _ => format!("DeviceClass {name} does not exist; there is {list} and {more} more"),
    };
    Refusal::new(Reason::DeviceClassMissing, words)
}
