//! The openb trace: machines, what pods ask for, and an order in which they arrive. Read, never kept here.

use std::path::Path;

use anyhow::{Context as _, ensure};

use crate::quality::Dice;

/// A card is so many units; a pod of one card may ask for a part.
pub(crate) const CARD: u32 = 1000;
/// Cards of one machine at most; more is a file of something else.
const CARDS: usize = 16;

/// Name, and watts of a card idle and in use, by arXiv 2412.17484: any part of a card in use counts as the whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) name: &'static str,
    pub(crate) idle: u64,
    pub(crate) full: u64,
}

const fn model(name: &'static str, idle: u64, full: u64) -> Model {
    Model { name, idle, full }
}

pub(crate) const MODELS: [Model; 7] = [
    model("T4", 10, 70),
    model("A10", 30, 150),
    model("G2", 30, 150),
    model("P100", 25, 250),
    model("V100M16", 30, 300),
    model("V100M32", 30, 300),
    model("G3", 50, 400),
];

/// A socket has 16 cores of two threads; one of which anything is in use counts as the whole.
pub(crate) const SOCKET_MILLI: u64 = 32_000;
pub(crate) const SOCKET_IDLE: u64 = 15;
pub(crate) const SOCKET_FULL: u64 = 120;

#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) cpu_milli: u64,
    pub(crate) memory_mib: u64,
    pub(crate) cards: usize,
    pub(crate) model: &'static Model,
}

/// What a pod asks for. `milli` of each of `cards`; more than one card are whole ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) cpu_milli: u64,
    pub(crate) memory_mib: u64,
    pub(crate) cards: usize,
    pub(crate) milli: u32,
    /// Names of models it may have; none: any.
    pub(crate) models: Vec<String>,
}

impl Shape {
    pub(crate) fn units(&self) -> u64 {
        self.cards as u64 * u64::from(self.milli)
    }

    pub(crate) fn is_part(&self) -> bool {
        self.cards == 1 && self.milli < CARD
    }

    pub(crate) fn may_have(&self, model: &Model) -> bool {
        self.models.is_empty() || self.models.iter().any(|m| m == model.name)
    }
}

pub(crate) struct Trace {
    pub(crate) name: String,
    pub(crate) machines: Vec<Machine>,
    /// Each once.
    pub(crate) shapes: Vec<Shape>,
    /// Positions in `shapes`, in the order of the file.
    pub(crate) pods: Vec<usize>,
}

/// The fields of each line by the names in the first; a column that is not there is empty.
fn table<const N: usize>(path: &Path, columns: [&str; N]) -> anyhow::Result<Vec<[String; N]>> {
    let text = std::fs::read_to_string(path).with_context(|| {
        format!(
            "{}: cannot be read; --openb names the directory of the trace",
            path.display()
        )
    })?;
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split(',').map(str::trim).collect();
    let at = columns.map(|c| head.iter().position(|h| *h == c));
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        at.map(|at| {
            at.and_then(|at| fields.get(at))
                .map_or(String::new(), |f| (*f).to_owned())
        })
    };
    Ok(lines.filter(|l| !l.is_empty()).map(row).collect())
}

impl Trace {
    /// `name`: `default`, `multigpu50` or another whose pods are in the directory.
    pub(crate) fn read(directory: &Path, name: &str) -> anyhow::Result<Self> {
        let nodes = directory.join("openb_node_list_gpu_node.csv");
        let list = directory.join(format!("openb_pod_list_{name}.csv"));
        let number = |text: &str, path: &Path| {
            let parsed = text.parse::<u64>();
            parsed.with_context(|| format!("{}: {text:?} is not a whole number", path.display()))
        };
        let mut machines = vec![];
        for [cpu, memory, cards, model] in table(&nodes, ["cpu_milli", "memory_mib", "gpu", "model"])? {
            let known = MODELS.iter().find(|m| m.name == model);
            let cards = number(&cards, &nodes)? as usize;
            ensure!(cards <= CARDS, "{}: {cards} cards in one machine", nodes.display());
            machines.push(Machine {
                cpu_milli: number(&cpu, &nodes)?,
                memory_mib: number(&memory, &nodes)?,
                cards,
                model: known.with_context(|| format!("{}: model {model:?} is not known", nodes.display()))?,
            });
        }
        let (mut shapes, mut pods): (Vec<Shape>, _) = (vec![], vec![]);
        for [cpu, memory, cards, milli, models] in
            table(&list, ["cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"])?
        {
            let shape = Shape {
                cpu_milli: number(&cpu, &list)?,
                memory_mib: number(&memory, &list)?,
                cards: number(&cards, &list)? as usize,
                milli: number(&milli, &list)? as u32,
                models: models.split('|').filter(|m| !m.is_empty()).map(String::from).collect(),
            };
            ensure!(
                shape.cards == 0 || shape.milli == CARD || shape.is_part() && shape.milli > 0,
                "{}: {cards} cards of {milli} units",
                list.display()
            );
            pods.push(shapes.iter().position(|s| *s == shape).unwrap_or_else(|| {
                shapes.push(shape);
                shapes.len() - 1
            }));
        }
        let any = pods.iter().any(|p| shapes[*p].units() > 0);
        ensure!(
            any && !machines.is_empty(),
            "{}: nothing in it asks for cards",
            list.display()
        );
        Ok(Self {
            name: name.to_owned(),
            machines,
            shapes,
            pods,
        })
    }

    /// Units of all cards.
    pub(crate) fn capacity(&self) -> u64 {
        self.machines.iter().map(|m| m.cards as u64 * u64::from(CARD)).sum()
    }

    /// Pods as they arrive until they have asked for so many percent of the capacity. `redrawn`: each drawn from all of the trace. Else as the
    /// artefact of the paper has it: the trace in any order, and once it is through, drawn from all of it.
    pub(crate) fn arrivals(&self, percent: u64, redrawn: bool, dice: &mut Dice) -> Vec<usize> {
        let mut order = if redrawn { vec![] } else { self.pods.clone() };
        dice.shuffle(&mut order);
        let (mut units, mut arrived) = (0, vec![]);
        let mut order = order.into_iter();
        while units * 100 < percent * self.capacity() {
            let Some(pod) = order.next().or_else(|| dice.pick(&self.pods)) else {
                break;
            };
            units += self.shapes[pod].units();
            arrived.push(pod);
        }
        arrived
    }
}
