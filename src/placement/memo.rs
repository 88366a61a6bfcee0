//! What was found out about nodes, kept from one request to the next: pods of one workload ask the same of thousands of
//! nodes, of which a bind changes one.
//!
//! Exact, not a guess. A verdict is kept under everything of the pod that the quick path reads (`Ask`), and only as
//! long as policy's rules, the node, the pools it sees and what is drawn of its power domains are the very ones it was
//! found for: the memo holds them, so that no other can be at their address. What the quick path leaves to a search is
//! not kept.

use std::sync::Arc;

use super::demand::{Demand, Meant};
use super::score::{Cost, Fitting, Rank};
use super::wish::Wishes;
use super::{Context, Rules, Topology, check, quick};
use crate::model::{DeviceRequest, Name, Refusal, Room};
use crate::snapshot::{Mix, NodeEntry, NodeIx, PoolState, Power, Slots, Snapshot};

/// Asks that are remembered; another takes the place of the one not heard for longest.
const ASKS: usize = 16;
/// Different verdicts of one ask at a time; others are found anew each time.
const VALUES: usize = 256;

/// For one request at a time. Keeps the nodes and pools it has seen last alive.
#[derive(Debug, Default)]
pub struct Memo {
    nodes: Slots<Arc<NodeEntry>>,
    pools: Slots<Arc<PoolState>>,
    power: Power,
    rooms: Slots<Room>,
    mix: Arc<Mix>,
    /// What policy said when all of this was found out.
    rules: Rules,
    /// By position of a pool, and of a power domain: the nodes that it is a matter of.
    of_pool: Readers,
    of_domain: Readers,
    columns: Vec<Column>,
    /// Counts uses of columns.
    uses: u64,
    /// What is not kept, lent until the next question.
    spare: Option<Refusal>,
}

/// What of a pod decides about nodes, as far as the quick path goes. Equal ones get equal answers of one node.
#[derive(Debug, PartialEq)]
struct Ask {
    /// None: no devices.
    devices: Option<Devices>,
    room: Room,
}

#[derive(Debug, PartialEq)]
struct Devices {
    request: DeviceRequest,
    name: Name,
    class: Name,
    /// Their ids, those of the class included.
    selectors: Vec<u64>,
    meant: Meant,
    wishes: Wishes,
    mix: bool,
    topology: Topology,
}

impl Ask {
    /// None: not the common shape.
    fn of(ctx: Context<'_>, demand: &Demand) -> Option<Self> {
        let room = demand.room;
        if demand.is_empty() {
            return Some(Self { devices: None, room });
        }
        if demand.asks_for_extended() {
            return None;
        }
        let (alternative, _) = quick::common_shape(demand)?;
        let devices = Some(Devices {
            request: alternative.request.clone(),
            name: alternative.name.clone(),
            class: alternative.class.name.clone(),
            selectors: alternative.selectors.iter().map(|s| s.id()).collect(),
            meant: alternative.meant,
            wishes: demand.wishes.clone(),
            mix: demand.wishes.mix.unwrap_or(ctx.rules.mix_classes),
            topology: demand.topology(ctx),
        });
        Some(Self { devices, room })
    }
}

#[derive(Debug)]
struct Column {
    ask: Ask,
    used: u64,
    verdicts: Known<Option<Refusal>>,
    /// None: it does not fit.
    costs: Known<Option<Cost>>,
}

/// A value by node, of which few are different.
#[derive(Debug)]
struct Known<T> {
    values: Vec<T>,
    /// By value: how many nodes have it. One that none has makes room for another.
    nodes: Vec<u32>,
    /// By position of the node: position of the value and one more, 0: not known.
    at: Vec<u16>,
}

impl<T: PartialEq> Known<T> {
    fn new(nodes: usize) -> Self {
        Self {
            values: vec![],
            nodes: vec![],
            at: vec![0; nodes],
        }
    }

    #[inline]
    fn find(&self, node: NodeIx) -> Option<usize> {
        usize::from(*self.at.get(node.0 as usize)?).checked_sub(1)
    }

    /// Returns where it is. Err: it is not kept.
    fn put(&mut self, node: NodeIx, value: T) -> Result<usize, T> {
        self.forget(node.0);
        let known = self.values.iter().position(|v| *v == value);
        let at = match (known, self.nodes.iter().position(|nodes| *nodes == 0)) {
            (Some(at), _) => at,
            (None, Some(at)) => {
                self.values[at] = value;
                at
            }
            (None, None) if self.values.len() < VALUES => {
                self.values.push(value);
                self.nodes.push(0);
                self.values.len() - 1
            }
            (None, None) => return Err(value),
        };
        if let (Some(slot), Ok(code)) = (self.at.get_mut(node.0 as usize), u16::try_from(at + 1)) {
            *slot = code;
            self.nodes[at] += 1;
        }
        Ok(at)
    }

    fn forget(&mut self, node: u32) {
        let slot = self.at.get_mut(node as usize).map(std::mem::take);
        if let Some(value) = slot.and_then(|code| usize::from(code).checked_sub(1)) {
            self.nodes[value] -= 1;
        }
    }
}

/// Which nodes hang on something, by its position.
#[derive(Debug, Default)]
struct Readers {
    starts: Vec<u32>,
    nodes: Vec<u32>,
}

impl Readers {
    fn of(mut pairs: Vec<(u32, u32)>) -> Self {
        pairs.sort_unstable();
        let mut readers = Self::default();
        for (thing, node) in pairs {
            while readers.starts.len() <= thing as usize {
                readers.starts.push(readers.nodes.len() as u32);
            }
            readers.nodes.push(node);
        }
        readers
    }

    fn get(&self, thing: usize) -> &[u32] {
        let Some(start) = self.starts.get(thing) else {
            return &[];
        };
        let end = self.starts.get(thing + 1).map_or(self.nodes.len(), |end| *end as usize);
        &self.nodes[*start as usize..end]
    }
}

impl Memo {
    /// Forgets what is not true of this snapshot. Returns whether nodes came or went.
    pub fn renew(&mut self, snapshot: &Snapshot) -> bool {
        let mut stale: Vec<u32> = vec![];
        let (mut moved, mut rewired) = (false, false);
        for at in self.nodes.changed(&snapshot.nodes) {
            let [old, new] = [&self.nodes, &snapshot.nodes].map(|nodes| nodes.get(at));
            // Nodes are relabelled and tainted all the time; names and pools stay, and to go through all of them takes longer
            // than the rest of a request.
            moved |= old.map(|n| &n.node.name) != new.map(|n| &n.node.name);
            let wires = |n: &Arc<NodeEntry>| (n.pools.iter().map(|v| v.pool).collect::<Vec<_>>(), n.domains.clone());
            rewired |= old.map(wires) != new.map(wires);
            stale.push(at);
        }
        if rewired {
            let pools = |(ix, n): (NodeIx, &Arc<NodeEntry>)| {
                let pools = n.pools.iter().map(move |v| (v.pool.0, ix.0));
                pools.collect::<Vec<_>>()
            };
            let domains = |(ix, n): (NodeIx, &Arc<NodeEntry>)| {
                let domains = n.domains.iter().map(move |d| (d.0, ix.0));
                domains.collect::<Vec<_>>()
            };
            self.of_pool = Readers::of(snapshot.nodes().flat_map(pools).collect());
            self.of_domain = Readers::of(snapshot.nodes().flat_map(domains).collect());
        }
        let pools = self.pools.changed(&snapshot.pools);
        stale.extend(pools.flat_map(|pool| self.of_pool.get(pool as usize)));
        let (old, new) = (&self.power, &snapshot.power);
        if !Arc::ptr_eq(&old.uses, &new.uses) {
            let all = 0..old.uses.len().max(new.uses.len());
            let domains = all.filter(|i| old.uses.get(*i) != new.uses.get(*i));
            stale.extend(domains.flat_map(|domain| self.of_domain.get(domain)));
        }
        // Of pools that several nodes reach, and of budgets, everything may hang.
        let all = !(Arc::ptr_eq(&old.budgets, &new.budgets) || old.budgets == new.budgets)
            || !(Arc::ptr_eq(&old.wide, &new.wide) || old.wide == new.wide);
        if all {
            self.columns.clear();
        }
        let mix = Arc::ptr_eq(&self.mix, &snapshot.mix);
        let roomier: Vec<u32> = self.rooms.changed(&snapshot.rooms).collect();
        for column in &mut self.columns {
            if !mix {
                column.costs = Known::new(0);
            }
            roomier.iter().for_each(|node| column.costs.forget(*node));
            // Before they are shorter: what is forgotten is counted.
            for node in &stale {
                column.verdicts.forget(*node);
                column.costs.forget(*node);
            }
            column.verdicts.at.resize(snapshot.nodes.len(), 0);
            column.costs.at.resize(snapshot.nodes.len(), 0);
        }
        self.nodes = snapshot.nodes.clone();
        self.pools = snapshot.pools.clone();
        self.power = snapshot.power.clone();
        (self.rooms, self.mix) = (snapshot.rooms.clone(), snapshot.mix.clone());
        moved
    }

    /// Answers for one pod, in the snapshot of the last `renew`.
    pub fn about<'m>(&'m mut self, ctx: Context<'_>, demand: &Demand) -> Answers<'m> {
        debug_assert!(self.pools.is_same(&ctx.snapshot.pools) && self.nodes.is_same(&ctx.snapshot.nodes));
        if self.rules != *ctx.rules {
            self.columns.clear();
            self.rules = ctx.rules.clone();
        }
        let column = Ask::of(ctx, demand).map(|ask| self.column(ask));
        Answers {
            column: column.map(|at| &mut self.columns[at]),
            spare: &mut self.spare,
        }
    }

    fn column(&mut self, ask: Ask) -> usize {
        self.uses += 1;
        let known = self.columns.iter().position(|c| c.ask == ask);
        let at = known.unwrap_or_else(|| {
            let column = Column {
                ask,
                used: 0,
                verdicts: Known::new(self.nodes.len()),
                costs: Known::new(self.nodes.len()),
            };
            if self.columns.len() < ASKS {
                self.columns.push(column);
                return self.columns.len() - 1;
            }
            let oldest = (0..ASKS).min_by_key(|at| self.columns[*at].used).unwrap_or(0);
            self.columns[oldest] = column;
            oldest
        });
        self.columns[at].used = self.uses;
        at
    }
}

/// What is known for one pod, and what is found out on the way.
pub struct Answers<'m> {
    column: Option<&'m mut Column>,
    spare: &'m mut Option<Refusal>,
}

impl Answers<'_> {
    /// As `placement::check`. None: the node is not there.
    #[inline]
    pub fn check(&mut self, ctx: Context<'_>, demand: &Demand, node: NodeIx) -> Option<Result<(), &Refusal>> {
        let kept = self.column.as_ref().and_then(|c| c.verdicts.find(node));
        match kept {
            Some(at) => Some(self.kept(at)),
            None => self.find_out(ctx, demand, node),
        }
    }

    /// Which of the verdicts that are remembered `check` of the node is: the same of two nodes means the same answer, as long
    /// as neither is forgotten. None: it is not remembered.
    #[inline]
    pub fn remembered(&self, node: NodeIx) -> Option<usize> {
        self.column.as_ref()?.verdicts.find(node)
    }

    #[inline]
    fn kept(&self, at: usize) -> Result<(), &Refusal> {
        let value = self.column.as_ref().and_then(|c| c.verdicts.values.get(at)?.as_ref());
        value.map_or(Ok(()), Err)
    }

    fn find_out(&mut self, ctx: Context<'_>, demand: &Demand, ix: NodeIx) -> Option<Result<(), &Refusal>> {
        let node = ctx.snapshot.node(ix)?;
        let quick = self.column.as_mut().and_then(|column| {
            let verdict = quick::tally(ctx, demand, node, false)?.verdict(demand).err();
            Some(column.verdicts.put(ix, verdict))
        });
        *self.spare = match quick {
            Some(Ok(at)) => return Some(self.kept(at)),
            Some(Err(refusal)) => refusal,
            None => check(ctx, demand, node).err(),
        };
        Some(self.spare.as_ref().map_or(Ok(()), Err))
    }

    /// As `placement::rank`.
    #[inline]
    pub fn rank(&mut self, ctx: Context<'_>, demand: &Demand, ix: NodeIx) -> Option<Rank> {
        let kept = self.column.as_ref().and_then(|c| c.costs.values.get(c.costs.find(ix)?));
        let cost = match kept {
            Some(cost) => *cost,
            None => self.find_cost(ctx, demand, ix),
        };
        Some(Rank::of(ctx, demand, ix, cost?))
    }

    /// Adds the node, if it fits, with its place in the order of names and its position among the scores. Returns whether it
    /// was remembered.
    #[inline]
    pub fn add_to(
        &mut self,
        fitting: &mut Fitting,
        ctx: Context<'_>,
        demand: &Demand,
        ix: NodeIx,
        (order, at): (u32, u32),
    ) -> bool {
        let kept = self.column.as_ref().and_then(|column| {
            let at = column.costs.find(ix)?;
            Some((at, column.costs.values.get(at)?))
        });
        match kept {
            // What is kept stays where it is as long as a node has it. In a group the node itself matters, too.
            Some((kept, cost)) if demand.group.is_none() => {
                if let Some(cost) = cost {
                    fitting.add_kept(kept, order, at, || Rank::of(ctx, demand, ix, *cost));
                }
                true
            }
            _ => {
                let remembered = kept.is_some();
                if let Some(rank) = self.rank(ctx, demand, ix) {
                    fitting.add(rank, order, at);
                }
                remembered
            }
        }
    }

    fn find_cost(&mut self, ctx: Context<'_>, demand: &Demand, ix: NodeIx) -> Option<Cost> {
        let node = ctx.snapshot.node(ix)?;
        let quick = self.column.as_mut().and_then(|column| {
            let cost = match demand.is_empty() {
                true => Cost::found(ctx, demand, node, ix),
                false => Cost::quick(&quick::tally(ctx, demand, node, true)?, ctx, demand, (node, ix)),
            };
            // What is not kept is as good.
            let _ = column.costs.put(ix, cost);
            Some(cost)
        });
        quick.unwrap_or_else(|| Cost::found(ctx, demand, node, ix))
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, VALUES};
    use crate::snapshot::NodeIx;

    /// Watts left of a budget are another number after every bind: what no node has any more makes room.
    #[test]
    fn it_goes_on_learning_after_many_values() {
        let mut known = Known::new(2);
        for value in 0..3 * VALUES {
            known.forget(0);
            let at = known.put(NodeIx(0), value).expect("one node, one value");
            assert_eq!((known.find(NodeIx(0)), known.values[at]), (Some(at), value));
        }
        known.at.resize(VALUES + 2, 0);
        let all = (0u32..).take(VALUES + 1);
        let kept = all.filter(|n| known.put(NodeIx(*n), *n as usize).is_ok()).count();
        assert_eq!(kept, VALUES, "so many at a time");
        assert!(
            (0u32..)
                .take(VALUES)
                .all(|n| known.find(NodeIx(n)).is_some_and(|at| known.values[at] == n as usize))
        );
    }
}
