//! What lies between two cards of one node, and what that costs a set of cards that talk to each other.

/// The path between two cards. Order of the words of `nvidia-smi topo -m`; AMD's XGMI stands beside NVLink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// So many bonded NVLinks (`NV18`), straight or through a switch: the tool prints both alike.
    NvLink(u8),
    /// Every card reaches every other at full speed; known from the product, without a probe.
    NvSwitch,
    /// AMD Infinity Fabric.
    Xgmi,
    /// At most one PCIe bridge.
    Pix,
    /// Several PCIe bridges, no host bridge.
    Pxb,
    /// A PCIe host bridge.
    Phb,
    /// Host bridges of one NUMA node.
    Node,
    /// The link between sockets.
    Sys,
    /// Not known: never the same as "no link".
    Unknown,
}

/// How near a set of cards is, lower is nearer: first the sum over its pairs, then its worst pair. One number, so that
/// tables hold it and comparing is one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nearness(u32);

impl Nearness {
    /// A single card.
    pub const ZERO: Self = Self(0);

    /// The nearest a set of this sum can be.
    pub fn at_least(sum: u32) -> Self {
        Self(sum.min(u32::MAX >> 8) << 8)
    }

    /// Sum over pairs of `Link::cost`.
    pub fn sum(self) -> u32 {
        self.0 >> 8
    }

    /// So many pairs, all joined alike.
    pub fn of(link: Link, pairs: u32) -> Self {
        match pairs {
            0 => Self::ZERO,
            _ => Self((link.cost().saturating_mul(pairs).min(u32::MAX >> 8) << 8) | u32::from(link.rank())),
        }
    }

    /// The nearness of a set with one more pair in it.
    pub fn with(self, link: Link) -> Self {
        self.joined(Self::of(link, 1))
    }

    /// Two sets that do not talk to each other (two requests): sums add up, the worst pair is the worse of both.
    pub fn joined(self, other: Self) -> Self {
        let sum = self.sum().saturating_add(other.sum()).min(u32::MAX >> 8);
        Self((sum << 8) | (self.0 & 0xff).max(other.0 & 0xff))
    }
}

impl Link {
    /// What one pair adds to the cost of a set: 1 where cards reach each other's memory at fabric speed, 4 across
    /// sockets. An unknown path counts as the farthest, so that a known one is never passed over for it.
    ///
    /// | path | cost |
    /// |---|---|
    /// | NVn, NVSwitch, XGMI | 1 |
    /// | PIX, PXB | 2 |
    /// | PHB, NODE | 3 |
    /// | SYS, unknown | 4 |
    pub fn cost(self) -> u32 {
        match self {
            Self::NvLink(_) | Self::NvSwitch | Self::Xgmi => 1,
            Self::Pix | Self::Pxb => 2,
            Self::Phb | Self::Node => 3,
            Self::Sys | Self::Unknown => 4,
        }
    }

    /// Finer than the cost and in the same order; decides between sets of one cost by their worst pair. More bonded
    /// links are nearer.
    pub fn rank(self) -> u8 {
        match self {
            Self::NvSwitch => 0,
            Self::NvLink(n) => 64 - n.min(63),
            Self::Xgmi => 65,
            Self::Pix => 66,
            Self::Pxb => 67,
            Self::Phb => 68,
            Self::Node => 69,
            Self::Sys => 70,
            Self::Unknown => 71,
        }
    }

    /// A fabric between cards: what `topology: required` asks for where the node has any.
    pub fn is_fabric(self) -> bool {
        matches!(self, Self::NvLink(_) | Self::NvSwitch | Self::Xgmi)
    }

    /// Below one PCIe root: all that a driver's `pcieRoot` can tell.
    pub fn shares_root(self) -> bool {
        matches!(self, Self::Pix | Self::Pxb | Self::Phb)
    }
}
