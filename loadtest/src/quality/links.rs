//! The machines of the topology measurement and what a choice of their cards is worth, reckoned here from the matrix
//! alone: sums over pairs, the best there is by looking at every set, groups that are still whole. Uses the library's
//! words for links (`Link::cost`, what belongs together) and none of its tables.

use serde_json::{Value, json};
use wattlane::topology::{Link, Report, ReportedCard, annotation};

use super::world::card_name;

pub(crate) const CARDS: usize = 8;
const SETS: usize = 1 << CARDS;

/// A set of cards, lowest bit first.
pub(crate) type Set = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Every card reaches every other; known from the product, no probe.
    NvSwitch,
    /// As DGX-1 with V100: two groups of four that are joined all through, each card joined to one of the other group.
    CubeMesh,
    /// Two sockets of four cards, pairs of them below one switch each.
    Pcie,
}

/// DGX-1, rows as `nvidia-smi topo -m` prints them: bonded NVLinks, 0 across sockets.
const CUBE_MESH: [[u8; CARDS]; CARDS] = [
    [0, 1, 1, 2, 2, 0, 0, 0],
    [1, 0, 2, 1, 0, 2, 0, 0],
    [1, 2, 0, 2, 0, 0, 1, 0],
    [2, 1, 2, 0, 0, 0, 0, 1],
    [2, 0, 0, 0, 0, 1, 1, 2],
    [0, 2, 0, 0, 1, 0, 2, 1],
    [0, 0, 1, 0, 1, 2, 0, 2],
    [0, 0, 0, 1, 2, 1, 2, 0],
];

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::NvSwitch, Self::CubeMesh, Self::Pcie];

    pub(crate) fn product(self) -> &'static str {
        match self {
            Self::NvSwitch => "NVIDIA H100 80GB HBM3",
            Self::CubeMesh => "Tesla V100-SXM2-32GB",
            Self::Pcie => "NVIDIA A100 80GB PCIe",
        }
    }

    fn link(self, a: usize, b: usize) -> Link {
        match self {
            Self::NvSwitch => Link::NvSwitch,
            Self::CubeMesh => match CUBE_MESH[a][b] {
                0 => Link::Sys,
                n => Link::NvLink(n),
            },
            Self::Pcie if a / 2 == b / 2 => Link::Pix,
            Self::Pcie if a / 4 == b / 4 => Link::Phb,
            Self::Pcie => Link::Sys,
        }
    }

    /// What the node's annotations say: a probe's report, but where the product says it all.
    pub(crate) fn annotations(self, node: &str) -> anyhow::Result<Value> {
        match self {
            Self::NvSwitch => Ok(json!({})),
            _ => report(node, |a, b| self.link(a, b), |_| None),
        }
    }
}

/// The annotation a probe of this node would write.
pub(crate) fn report(
    node: &str,
    link: impl Fn(usize, usize) -> Link,
    watts: impl Fn(usize) -> Option<u32>,
) -> anyhow::Result<Value> {
    let card = |c: usize| ReportedCard {
        uuid: Some(uuid(node, c).into()),
        power_limit_watts: watts(c),
        ..ReportedCard::default()
    };
    let report = Report {
        cards: (0..CARDS).map(card).collect(),
        links: (0..CARDS * CARDS).map(|i| link(i / CARDS, i % CARDS)).collect(),
    };
    let text = annotation::encode(&report).map_err(anyhow::Error::msg)?;
    Ok(json!({annotation::ANNOTATION: text}))
}

pub(crate) fn uuid(node: &str, card: usize) -> String {
    format!("GPU-{node}-{}", card_name(card))
}

/// What can be said of every set of one machine's cards.
pub(crate) struct Reckoning {
    cost: [u32; SETS],
    /// By number of cards, then by free ones.
    nearest: Vec<Vec<Option<Set>>>,
    /// How many sets of 4, of 8, that are all joined fit side by side.
    fours: [u8; SETS],
    eights: [u8; SETS],
}

impl Reckoning {
    pub(crate) fn of(kind: Kind) -> Self {
        let pairs = |set: Set| {
            (0..CARDS)
                .flat_map(|a| (0..a).map(move |b| (a, b)))
                .filter(move |(a, b)| set >> a & 1 == 1 && set >> b & 1 == 1)
        };
        let fabric = pairs(SETS - 1).any(|(a, b)| kind.link(a, b).is_fabric());
        let joined = |link: Link| if fabric { link.is_fabric() } else { link.shares_root() };
        let clique = |set: Set| pairs(set).all(|(a, b)| joined(kind.link(a, b)));
        let packed = |size: u32| {
            let cliques: Vec<Set> = (0..SETS).filter(|s| s.count_ones() == size && clique(*s)).collect();
            let mut most = [0_u8; SETS];
            for set in 0..SETS {
                let inside = cliques.iter().filter(|c| set & **c == **c);
                most[set] = inside.map(|c| 1 + most[set & !c]).max().unwrap_or(0);
            }
            most
        };
        let cost: [u32; SETS] = std::array::from_fn(|set| pairs(set).map(|(a, b)| kind.link(a, b).cost()).sum());
        let nearest = |free: Set, k: u32| {
            let sets = (0..SETS).filter(|s| s & !free == 0 && s.count_ones() == k);
            // The lowest position that only one of two sets has decides.
            sets.min_by_key(|s| (cost[*s], std::cmp::Reverse((*s as u8).reverse_bits())))
        };
        Self {
            cost,
            nearest: (0..=CARDS as u32)
                .map(|k| (0..SETS).map(|free| nearest(free, k)).collect())
                .collect(),
            fours: packed(4),
            eights: packed(8),
        }
    }

    /// Sum over the pairs of the set.
    pub(crate) fn cost(&self, set: Set) -> u32 {
        self.cost[set % SETS]
    }

    /// How many groups of four that reach each other could be given out of these.
    pub(crate) fn fours(&self, free: Set) -> u8 {
        self.fours[free % SETS]
    }

    pub(crate) fn eights(&self, free: Set) -> u8 {
        self.eights[free % SETS]
    }

    /// The `k` free cards of least sum, of equal ones those of the lowest positions. None: there are fewer.
    pub(crate) fn nearest(&self, free: Set, k: u32) -> Option<Set> {
        *self.nearest.get(k as usize)?.get(free)?
    }
}

pub(crate) fn cards_of(set: Set) -> impl Iterator<Item = usize> {
    (0..CARDS).filter(move |c| set >> c & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::{Kind, Reckoning, Set};

    fn set(cards: &[usize]) -> Set {
        cards.iter().fold(0, |set, c| set | 1 << c)
    }

    #[test]
    fn the_best_of_a_cube_mesh() {
        let mesh = Reckoning::of(Kind::CubeMesh);
        assert_eq!(mesh.nearest(set(&[2, 3, 4, 5, 6, 7]), 4), Some(set(&[4, 5, 6, 7])));
        assert_eq!(mesh.cost(set(&[4, 5, 6, 7])), 6);
        assert_eq!(mesh.cost(set(&[2, 3, 4, 5])), 18);
        // Of equal pairs the first, not one that leaves a group of four whole: this is the plain rival.
        assert_eq!(mesh.nearest(set(&[0, 4, 5, 6, 7]), 2), Some(set(&[0, 4])));
        assert_eq!(mesh.nearest(set(&[0, 1]), 4), None);
    }

    #[test]
    fn groups_that_are_whole() {
        let [switch, mesh, pcie] = Kind::ALL.map(Reckoning::of);
        let all = set(&[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(
            [&switch, &mesh, &pcie].map(|r| (r.fours(all), r.eights(all))),
            [(2, 1), (2, 0), (2, 0)]
        );
        // Six cards without a group: connected is not joined all through.
        let six = set(&[0, 1, 2, 4, 5, 6]);
        assert_eq!([&switch, &mesh, &pcie].map(|r| r.fours(six)), [1, 0, 0]);
        assert_eq!(mesh.fours(set(&[0, 4, 5, 6, 7])), 1);
        assert_eq!(switch.fours(set(&[0, 1, 2])), 0);
    }

    #[test]
    fn pcie_costs_by_path() {
        let pcie = Reckoning::of(Kind::Pcie);
        assert_eq!([[0, 1], [0, 2], [0, 4]].map(|p| pcie.cost(set(&p))), [2, 3, 4]);
    }
}
