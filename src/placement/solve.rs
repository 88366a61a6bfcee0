//! One node, one demand: which alternatives, which wattage class, which devices. Runs the searches in the order of
//! the objective and turns the outcome into a placement or a refusal.
//!
//! The order: the first alternatives (as in-tree: in the order of the list), then what the choice costs
//! (`key`), then the class of which least is left (a larger group stays whole), then device order.

use super::demand::Demand;
use super::key::Key;
use super::limit::Held;
use super::matching::failure;
use super::offer::Offer;
use super::order::{Classes, How};
use super::score::{Best, preference};
use super::search::{self, Choice, Outcome, Path, search};
use super::state::Relaxed;
use super::vacancy::Part;
use super::view::{Purpose, View};
use super::{Context, Placement, result, sharing, why};
use crate::model::{DeviceId, Name, Refusal};
use crate::snapshot::{NodeEntry, PoolState};

/// Vectors of alternatives that are tried on one node; steps run out before in all but odd cases.
const VECTORS: usize = 4096;

/// Whether there is any solution.
pub(super) fn any(ctx: Context<'_>, demand: &Demand, node: &NodeEntry) -> Result<(), Refusal> {
    solve(ctx, demand, node, true).map(|_| ())
}

/// The best solution with what it comes to, and what it takes of cards.
pub(super) fn best(
    ctx: Context<'_>,
    demand: &Demand,
    node: &NodeEntry,
) -> Result<(Placement, Best, Vec<Part>), Refusal> {
    let (view, choice, cut) = solve(ctx, demand, node, false)?;
    let offers = view.requests.iter().flat_map(|r| &r.offers);
    let usable = distinct(&view, offers.flat_map(|o| &o.candidates).map(|c| c.dev));
    let taken: usize = choice.picks.iter().map(Vec::len).sum();
    let left = u32::try_from(usable.saturating_sub(taken)).unwrap_or(u32::MAX);
    let best = Best {
        preference: preference(&choice.offers),
        key: choice.key,
        left,
    };
    let parts = sharing::parts(&view, &choice);
    let placement = result::placement(ctx, demand, node, &view, &choice, cut)?;
    Ok((placement, best, parts))
}

/// What the in-tree allocator would take: the first find in list order. None: nothing.
pub(super) fn in_list_order(ctx: Context<'_>, demand: &Demand, node: &NodeEntry) -> Option<Vec<DeviceId>> {
    let (view, _) = View::of(ctx, demand, node, Purpose::ListOrder).ok()?;
    match in_tree_comes_to(&view, &mut demand.allowance()) {
        Some(Outcome::Found { choice, .. }) => Some(result::devices(&view, &choice).map(|(_, id)| id).collect()),
        _ => None,
    }
}

/// What a search in list order that chooses alternatives as it goes comes to first: a find, or a device on which a
/// selector fails. Our searches run with the alternatives fixed; the first event of all of them is the one whose path
/// is least.
fn in_tree_comes_to(view: &View<'_>, steps: &mut u32) -> Option<Outcome> {
    let how = How {
        classes: Classes::Any,
        // No rule of the in-tree allocator's.
        relaxed: Relaxed {
            modes: true,
            ..Relaxed::default()
        },
        first_only: true,
    };
    let mut first: Option<(Path, Outcome)> = None;
    over_alternatives(view, steps, |offers, steps| {
        let outcome = search(view, offers, how, steps);
        let path = match &outcome {
            Outcome::Found { choice, .. } => search::path(&choice.offers, &choice.picks),
            Outcome::Failed { path, .. } => path.clone(),
            Outcome::Nothing => return Outcome::Nothing,
            Outcome::Cut => return Outcome::Cut,
        };
        if first.as_ref().is_none_or(|(least, _)| path < *least) {
            first = Some((path, outcome));
        }
        Outcome::Nothing
    });
    first.map(|(_, outcome)| outcome)
}

fn solve<'a>(
    ctx: Context<'a>,
    demand: &'a Demand,
    node: &'a NodeEntry,
    first_only: bool,
) -> Result<(View<'a>, Choice, bool), Refusal> {
    let allowance = demand.allowance();
    if allowance == 0 {
        demand.note_cut();
        return Err(why::cut(0));
    }
    if let Some(allowed) = &demand.wishes.allowed
        && let Some(class) = held_classes(ctx, demand, node)
            .iter()
            .find(|c| !allowed.admits(Some(c)))
    {
        return Err(allowed.refusal("the pod's claims hold devices of", class));
    }
    if let Some(limit) = &demand.limit
        && let Some(refusal) = limit.held(Held::of(ctx, demand, node).len())
    {
        return Err(refusal);
    }
    let (mut view, selector_failed) = View::of(ctx, demand, node, Purpose::Place)?;
    if !first_only {
        sharing::order(ctx, demand, node, &mut view);
    }
    // To look at every device for every alternative is work as well.
    let mut steps = allowance.saturating_sub(view.looked());
    if selector_failed {
        in_tree_would_stop(ctx, demand, node, &mut steps)?;
    }
    let mix = demand.wishes.mix.unwrap_or(ctx.rules.mix_classes);
    let passes = Passes::of(ctx, demand, node, &view, mix);
    let outcome = over_alternatives(&view, &mut steps, |offers, steps| {
        passes.run(&view, offers, Relaxed::default(), first_only, steps)
    });
    match outcome {
        Outcome::Found { choice, cut } => {
            demand.spend(allowance - steps);
            if cut {
                demand.note_cut();
            }
            Ok((view, choice, cut))
        }
        Outcome::Cut => {
            demand.spend(allowance);
            demand.note_cut();
            Err(why::cut(allowance))
        }
        Outcome::Nothing | Outcome::Failed { .. } => {
            if first_only {
                // Words are about the best choice without this or that: of `check` the same one as of `place`.
                sharing::order(ctx, demand, node, &mut view);
            }
            let refusal = why::nothing(demand, &view, &passes, mix, &mut steps);
            demand.spend(allowance - steps);
            Err(refusal)
        }
    }
}

/// The in-tree allocator gives up the whole attempt when it comes to a device on which a selector fails. What it
/// refuses is refused here too, with the selector's words.
fn in_tree_would_stop(ctx: Context<'_>, demand: &Demand, node: &NodeEntry, steps: &mut u32) -> Result<(), Refusal> {
    let (view, _) = View::of(ctx, demand, node, Purpose::ListOrder)?;
    if let Some(Outcome::Failed {
        request, offer, dev, ..
    }) = in_tree_comes_to(&view, steps)
    {
        let dev = &view.devices[dev];
        let alternative = view.requests[request].offers[offer].alternative;
        return Err(failure(alternative, &view.pools[dev.pool].pool, dev.at));
    }
    Ok(())
}

/// Tries the alternatives in order of preference: those of the first request change last.
pub(super) fn over_alternatives(
    view: &View<'_>,
    steps: &mut u32,
    mut attempt: impl FnMut(&[usize], &mut u32) -> Outcome,
) -> Outcome {
    // An alternative that could not even be met alone is passed over; one on which a selector failed may not be.
    let open = |o: &Offer<'_>| o.possible() || o.candidates.iter().any(|c| c.failed);
    let next =
        |r: usize, from: usize| (from..view.requests[r].offers.len()).find(|o| open(&view.requests[r].offers[*o]));
    let first: Option<Vec<usize>> = (0..view.requests.len()).map(|r| next(r, 0)).collect();
    let Some(mut offers) = first else {
        return Outcome::Nothing;
    };
    for _ in 0..VECTORS {
        match attempt(&offers, steps) {
            Outcome::Nothing => {}
            outcome => return outcome,
        }
        // Counts up; the last request is the fastest digit.
        let mut digits = (0..offers.len()).rev();
        let Some((digit, offer)) = digits.find_map(|d| Some((d, next(d, offers[d] + 1)?))) else {
            return Outcome::Nothing;
        };
        offers[digit] = offer;
        for (r, after) in offers.iter_mut().enumerate().skip(digit + 1) {
            *after = next(r, 0).unwrap_or(0);
        }
    }
    Outcome::Cut
}

/// The wattage classes a pod may run on, each in a pass of its own.
pub(super) struct Passes {
    /// Tried all; the best wins.
    one: Vec<Classes>,
    /// Tried when none of them finds anything.
    then_any: bool,
    /// The class the pod holds already, where that is what narrows the choice.
    pub(super) held: Option<Name>,
}

impl Passes {
    fn of(ctx: Context<'_>, demand: &Demand, node: &NodeEntry, view: &View<'_>, mix: bool) -> Self {
        let class_at = |name: &Name| view.classes.iter().position(|c| *c == name);
        let wish = demand.wishes.class.as_ref();
        let held = held_classes(ctx, demand, node);
        let all = (0..view.classes.len()).map(Some).chain([None]);
        let strictly = wish.is_some();
        let mut running = view
            .requests
            .iter()
            .flat_map(|r| &r.offers)
            .filter(|o| !o.alternative.request.admin_access);
        let classed = running.clone().any(|o| o.classed);
        let runs = running.next().is_some();
        let conflict = match held.as_slice() {
            [held] if !mix && wish.is_none_or(|want| want != held) => Some(held.clone()),
            _ => None,
        };
        let of = |class| Classes::One { class, strictly };
        let one = match (wish, held.as_slice()) {
            // Nothing new is asked to run on: the wish is the business of whoever allocated.
            _ if !runs => vec![Classes::Any],
            (Some(_), _) if !classed => vec![],
            (Some(_), _) if conflict.is_some() => vec![],
            // Not on this node: devices that have no class to be of (a NIC) may still serve their requests.
            (Some(want), _) => vec![of(class_at(want))],
            // No device of it here: only devices without a class can join it.
            (None, [held]) if !mix => vec![of(class_at(held))],
            // It holds several already: mixing is a fact, and no rule of ours undoes it.
            (None, [_, _, ..]) if !mix => vec![Classes::Any],
            _ => all.map(of).collect(),
        };
        Self {
            one,
            then_any: mix && wish.is_none(),
            held: conflict,
        }
    }

    /// The best of the passes: least cost, then the class of which least is left.
    pub(super) fn run(
        &self,
        view: &View<'_>,
        offers: &[usize],
        relaxed: Relaxed,
        first_only: bool,
        steps: &mut u32,
    ) -> Outcome {
        let mut search = |classes, first_only| {
            let how = How {
                classes,
                relaxed,
                first_only,
            };
            search(view, offers, how, steps)
        };
        if relaxed.classes {
            return search(Classes::Any, true);
        }
        let mut best: Option<(Key, usize, Choice)> = None;
        let mut cut = false;
        for classes in &self.one {
            match search(*classes, first_only) {
                Outcome::Found { choice, cut: cut_here } => {
                    if first_only {
                        return Outcome::Found { choice, cut: cut_here };
                    }
                    cut |= cut_here;
                    let free = free_of(view, offers, *classes);
                    if best
                        .as_ref()
                        .is_none_or(|(key, least, _)| (choice.key, free) < (*key, *least))
                    {
                        best = Some((choice.key, free, choice));
                    }
                }
                Outcome::Nothing => {}
                Outcome::Cut => cut = true,
                failed @ Outcome::Failed { .. } => return failed,
            }
        }
        match best {
            Some((_, _, choice)) => Outcome::Found { choice, cut },
            None if cut => Outcome::Cut,
            None if self.then_any => search(Classes::Any, first_only),
            None => Outcome::Nothing,
        }
    }
}

/// Devices of the class that could serve one of the requests.
fn free_of(view: &View<'_>, offers: &[usize], classes: Classes) -> usize {
    let Classes::One { class, .. } = classes else {
        return usize::MAX;
    };
    let offers = view.requests.iter().zip(offers).map(|(r, o)| &r.offers[*o]);
    let devices = offers.flat_map(|o| &o.candidates).map(|c| c.dev);
    distinct(view, devices.filter(|d| view.devices[*d].class == class))
}

/// How many devices these are, each counted once.
fn distinct(view: &View<'_>, devices: impl Iterator<Item = usize>) -> usize {
    let mut seen = vec![false; view.devices.len()];
    devices.filter(|d| !std::mem::replace(&mut seen[*d], true)).count()
}

/// Wattage classes of devices that claims of the pod hold already, each once.
fn held_classes(ctx: Context<'_>, demand: &Demand, node: &NodeEntry) -> Vec<Name> {
    let mut held: Vec<Name> = vec![];
    for result in demand.existing().flat_map(|a| &a.results).filter(|r| !r.admin_access) {
        let class =
            found(ctx, node, &result.id).and_then(|(_, state, at)| state.pool.devices[at].classified.class.clone());
        held.extend(class.filter(|c| !held.contains(c)));
    }
    held
}

/// Where a device is found from this node: its pool, with its position among the node's, and its position in it.
pub(super) fn found<'a>(ctx: Context<'a>, node: &'a NodeEntry, id: &DeviceId) -> Option<(usize, &'a PoolState, usize)> {
    let mut pools = ctx.snapshot.pools_of(node).enumerate();
    let (pool, (state, visible)) = pools.find(|(_, (s, _))| s.pool.driver == id.driver && s.pool.name == id.pool)?;
    let at = *state.pool.by_name.get(&id.device)? as usize;
    // Of several of one name the one this node sees.
    let mut seen = state.pool.devices.iter().enumerate();
    let at = match visible.sees(at) {
        true => at,
        false => seen
            .find(|(i, d)| d.device.name == id.device && visible.sees(*i))
            .map_or(at, |(i, _)| i),
    };
    (at < state.pool.devices.len()).then_some((pool, &**state, at))
}
