//! wattlane's choice, as kube-scheduler makes it with wattlane's scheduler profile: nodes with CPU and memory, of those the ones that filter
//! lets pass, and the highest sum of the extender's score and of what the scheduler itself says of CPU and memory.

use std::sync::Arc;

use anyhow::ensure;
use serde_json::{Value, json};
use wattlane::model::Pod;
use wattlane::placement::Rank;
use wattlane::snapshot::Mix;

use super::Ties;
use super::fleet::Room;
use super::rivals::pick;
use super::trace::{CARD, MODELS, Shape, Trace};
use crate::quality::Dice;
use crate::quality::world::World;

/// `weight` of the extender in manifests/base, by 100 of a plugin to 10 of an extender.
const EXTENDER: i64 = 10 * (100 / 10);

pub(crate) struct Ours<'t> {
    ties: Ties,
    trace: &'t Trace,
    world: World,
    mix: Arc<Mix>,
    /// By shape, then by node: the version of the node for which it was found. None: it does not fit.
    known: Vec<Vec<(u32, Option<Rank>)>>,
}

impl<'t> Ours<'t> {
    pub(crate) fn new(ties: Ties, trace: &'t Trace) -> anyhow::Result<Self> {
        let class = |m: &super::trace::Model| {
            json!({"name": m.name.to_lowercase(), "watts": m.full,
                "match": format!("device.attributes['gpu.nvidia.com'].productName == '{}'", m.name)})
        };
        let mut world = World::new(
            &json!({"apiVersion": "wattlane.dev/v1alpha1", "kind": "PlacementPolicy",
            "classes": MODELS.iter().map(class).collect::<Vec<_>>()}),
        )?;
        for (node, machine) in trace.machines.iter().enumerate() {
            let allocatable =
                json!({"cpu": format!("{}m", machine.cpu_milli), "memory": format!("{}Mi", machine.memory_mib)});
            world.shared_node(node, machine.model.name, machine.cards, CARD, &allocatable)?;
        }
        world.publish();
        Ok(Self {
            ties,
            trace,
            mix: world.mix().clone(),
            world,
            known: vec![vec![(0, None); trace.machines.len()]; trace.shapes.len()],
        })
    }

    /// Node and cards. None: it fits nowhere.
    pub(crate) fn choose(
        &mut self,
        rooms: &[Room<'_>],
        pod: usize,
        dice: &mut Dice,
    ) -> anyhow::Result<Option<(usize, Vec<usize>)>> {
        let shape = &self.trace.shapes[pod];
        let nodes: Vec<usize> = (0..rooms.len())
            .filter(|n| rooms[*n].has_cpu_and_memory(shape))
            .collect();
        let resources =
            json!({"requests": {"cpu": format!("{}m", shape.cpu_milli), "memory": format!("{}Mi", shape.memory_mib)}});
        let arrived = self.world.arrive_needing(asks(shape).as_ref(), &resources)?;
        self.find_out(&arrived, rooms, pod, &nodes)?;
        let ranks = || nodes.iter().map(|n| self.known[pod][*n].1);
        let scores = self.world.scores(&arrived, ranks())?;
        let total = nodes
            .iter()
            .zip(&scores)
            .zip(ranks())
            .filter(|(_, rank)| rank.is_some());
        let total = total.map(|((n, s), _)| (*n, i64::from(*s) * EXTENDER + plugins(&rooms[*n], shape)));
        let Some(node) = pick(total, self.ties, dice) else {
            self.world.leave(&arrived);
            return Ok(None);
        };
        let mut cards = vec![];
        if shape.cards > 0 {
            let placed = self.world.place(&arrived, node)?;
            cards = self.world.bind(&arrived, node, &placed)?.cards;
        }
        self.world.runs(&arrived, node);
        Ok(Some((node, cards)))
    }

    /// What was found of a node counts until the node changes, or what is asked for: nothing else of this cluster does.
    fn find_out(&mut self, arrived: &Pod, rooms: &[Room<'_>], pod: usize, nodes: &[usize]) -> anyhow::Result<()> {
        if !Arc::ptr_eq(&self.mix, self.world.mix()) {
            self.mix = self.world.mix().clone();
            self.known.iter_mut().flatten().for_each(|known| known.0 = 0);
        }
        let is_stale = |n: &usize| self.known[pod][*n].0 != rooms[*n].version;
        let stale: Vec<usize> = nodes.iter().copied().filter(is_stale).collect();
        for (node, rank) in stale.iter().zip(self.world.ranks(arrived, &stale)?) {
            let fits = rooms[*node].has_cards(&self.trace.shapes[pod]);
            ensure!(rank.is_some() == fits, "filter and the harness differ on node {node}");
            self.known[pod][*node] = (rooms[*node].version, rank);
        }
        Ok(())
    }
}

/// None: no cards.
fn asks(shape: &Shape) -> Option<Value> {
    if shape.cards == 0 {
        return None;
    }
    let mut exactly = json!({"deviceClassName": "gpu.nvidia.com", "count": shape.cards});
    if shape.milli < CARD {
        exactly["capacity"] = json!({"requests": {"milli": shape.milli.to_string()}});
    }
    if !shape.models.is_empty() {
        let names: Vec<String> = shape.models.iter().map(|m| format!("'{m}'")).collect();
        let cel = format!(
            "device.attributes['gpu.nvidia.com'].productName in [{}]",
            names.join(", ")
        );
        exactly["selectors"] = json!([{"cel": {"expression": cel}}]);
    }
    Some(json!([{"name": "r", "exactly": exactly}]))
}

/// NodeResourcesFit (LeastAllocated) and NodeResourcesBalancedAllocation with the weights they have by default; all other plugins say
/// the same of each node here.
fn plugins(room: &Room<'_>, shape: &Shape) -> i64 {
    let of = |all: u64, left: u64, asked: u64| (all - left + asked) as f64 / all.max(1) as f64;
    let cpu = of(room.machine.cpu_milli, room.cpu_milli, shape.cpu_milli);
    let memory = of(room.machine.memory_mib, room.memory_mib, shape.memory_mib);
    let least = ((100.0 * (1.0 - cpu)) as i64 + (100.0 * (1.0 - memory)) as i64) / 2;
    let balanced = (100.0 * (1.0 - (cpu - memory).abs() / 2.0)) as i64;
    least + balanced
}
