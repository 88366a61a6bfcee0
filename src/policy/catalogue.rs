//! What products draw: default board power by product name, as `nvidia-smi` and `amd-smi` print the name.
//!
//! No DRA driver publishes a power limit, so a table has to. It is ours, kept by hand, and says only what a name really
//! determines: some names are printed by boards of different limits, and for those it lists what was seen and claims
//! nothing. The policy, or a limit measured on the node, decides there.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::model::normalised;

/// What a product name says about the board's default power limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoardPower {
    /// Watts.
    Watts(u32),
    /// Boards of this one name exist with each of these limits (watts, ascending): the name does not determine it.
    OneOf(&'static [u32]),
}

impl BoardPower {
    /// Watts, where the name determines them.
    pub fn watts(self) -> Option<u32> {
        match self {
            Self::Watts(watts) => Some(watts),
            Self::OneOf(_) => None,
        }
    }
}

const TABLE: &[(&str, BoardPower)] = &[
    ("Tesla T4", BoardPower::Watts(70)),
    ("Tesla P100-PCIE-16GB", BoardPower::Watts(250)),
    ("Tesla P100-SXM2-16GB", BoardPower::Watts(300)),
    ("Tesla V100-PCIE-16GB", BoardPower::Watts(250)),
    ("Tesla V100-PCIE-32GB", BoardPower::Watts(250)),
    ("Tesla V100-SXM2-16GB", BoardPower::Watts(300)),
    ("Tesla V100-SXM2-32GB", BoardPower::Watts(300)),
    ("Tesla V100-SXM3-32GB", BoardPower::OneOf(&[350, 450])),
    ("NVIDIA A2", BoardPower::Watts(60)),
    ("NVIDIA A10", BoardPower::Watts(150)),
    ("NVIDIA A10G", BoardPower::OneOf(&[150, 300])),
    ("NVIDIA A30", BoardPower::Watts(165)),
    ("NVIDIA A40", BoardPower::Watts(300)),
    ("NVIDIA A100-PCIE-40GB", BoardPower::Watts(250)),
    ("NVIDIA A100 80GB PCIe", BoardPower::Watts(300)),
    ("NVIDIA A800 80GB PCIe", BoardPower::Watts(300)),
    ("NVIDIA A100-SXM4-40GB", BoardPower::Watts(400)),
    ("NVIDIA A100-SXM4-80GB", BoardPower::OneOf(&[400, 500])),
    ("NVIDIA L4", BoardPower::Watts(72)),
    ("NVIDIA L40", BoardPower::Watts(300)),
    ("NVIDIA L40S", BoardPower::Watts(350)),
    ("NVIDIA RTX A6000", BoardPower::Watts(300)),
    ("NVIDIA RTX A5000", BoardPower::Watts(230)),
    ("NVIDIA RTX 6000 Ada Generation", BoardPower::Watts(300)),
    ("NVIDIA H100 80GB HBM3", BoardPower::Watts(700)),
    ("NVIDIA H100 PCIe", BoardPower::Watts(350)),
    ("NVIDIA H100 NVL", BoardPower::Watts(400)),
    ("NVIDIA H20", BoardPower::Watts(500)),
    ("NVIDIA H200", BoardPower::Watts(700)),
    ("NVIDIA H200 NVL", BoardPower::Watts(600)),
    ("NVIDIA GH200 480GB", BoardPower::OneOf(&[700, 900])),
    ("NVIDIA B200", BoardPower::Watts(1000)),
    ("NVIDIA B300 SXM6 AC", BoardPower::Watts(1100)),
    ("NVIDIA GB200", BoardPower::OneOf(&[1000, 1200])),
    ("NVIDIA GB300", BoardPower::Watts(1400)),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", BoardPower::Watts(600)),
    (
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        BoardPower::Watts(600),
    ),
    (
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        BoardPower::Watts(300),
    ),
    ("NVIDIA RTX PRO 5000 Blackwell", BoardPower::Watts(300)),
    ("NVIDIA GeForce RTX 3090", BoardPower::Watts(350)),
    ("NVIDIA GeForce RTX 4090", BoardPower::Watts(450)),
    ("NVIDIA GeForce RTX 5090", BoardPower::Watts(575)),
    ("AMD_Instinct_MI210", BoardPower::Watts(300)),
    ("AMD_Instinct_MI250X", BoardPower::OneOf(&[500, 560])),
    ("AMD_Instinct_MI300A", BoardPower::OneOf(&[550, 760])),
    ("AMD_Instinct_MI300X_OAM", BoardPower::Watts(750)),
    ("AMD_Instinct_MI325X", BoardPower::Watts(1000)),
    ("AMD_Instinct_MI350X", BoardPower::Watts(1000)),
    ("AMD_Instinct_MI355X", BoardPower::Watts(1400)),
];

/// The entry of a product in any of its spellings, the whole name compared. None: not in the table.
pub fn board_power(product: &str) -> Option<BoardPower> {
    static INDEX: OnceLock<HashMap<String, BoardPower>> = OnceLock::new();
    let index = INDEX.get_or_init(|| TABLE.iter().map(|(name, power)| (normalised(name), *power)).collect());
    index.get(&normalised(product)).copied()
}

#[cfg(test)]
mod tests {
    use super::{BoardPower, TABLE, board_power};

    #[test]
    fn the_whole_name_counts() {
        assert_eq!(board_power("NVIDIA H20"), Some(BoardPower::Watts(500)));
        assert_eq!(board_power("NVIDIA H200"), Some(BoardPower::Watts(700)));
        assert_eq!(board_power("NVIDIA A10"), Some(BoardPower::Watts(150)));
        assert_eq!(board_power("NVIDIA A100-PCIE-40GB"), Some(BoardPower::Watts(250)));
        for stranger in [
            "NVIDIA A100",
            "NVIDIA H2",
            "H100",
            "NVIDIA",
            "",
            "NVIDIA RTX PRO 6000 Blac...",
        ] {
            assert_eq!(board_power(stranger), None, "{stranger}");
        }
        // The two halves of the story wattlane exists for.
        let family = |edition| board_power(&format!("NVIDIA-RTX-PRO-6000-Blackwell-{edition}-Edition"));
        assert_eq!(family("Server"), Some(BoardPower::Watts(600)));
        assert_eq!(family("Max-Q-Workstation"), Some(BoardPower::Watts(300)));
    }

    #[test]
    fn names_that_do_not_determine_watts_claim_none() {
        for name in [
            "NVIDIA GH200 480GB",
            "NVIDIA A100-SXM4-80GB",
            "NVIDIA A10G",
            "AMD_Instinct_MI300A",
        ] {
            let power = board_power(name);
            assert!(power.is_some_and(|p| p.watts().is_none()), "{name}: {power:?}");
        }
    }

    #[test]
    fn no_name_is_listed_twice() {
        let names: std::collections::BTreeSet<_> = TABLE.iter().map(|(n, _)| super::normalised(n)).collect();
        assert_eq!(names.len(), TABLE.len());
    }
}
