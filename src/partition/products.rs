//! How NVIDIA's cards can be cut by MIG, for cards whose driver does not publish it: what a card could hold if it were cut,
//! and what checks hold published counters against.
//!
//! Source: NVIDIA's MIG user guide (supported profiles), `nvidia-smi mig -lgip` and `-lgipp` of the cards. Partitions of one
//! card conflict where their memory slices overlap, or where their compute slices add up to more than the card has; `+me`
//! and `+me.all` take the card's only media engines.

use super::shape::{Amounts, ShapeKey};
use crate::model::normalised;

/// One MIG profile of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    pub name: &'static str,
    pub compute_slices: u8,
    /// How many memory slices it spans. 0: not known.
    pub memory_slices: u8,
    /// Memory slices it can begin at. Empty: not known.
    pub starts: &'static [u8],
    /// The most of them alone on one card.
    pub most: u8,
    /// Usable memory, in MiB. None: not known.
    pub memory_mib: Option<u32>,
}

/// One product and its profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    pub id: &'static str,
    /// As its driver spells them.
    pub names: &'static [&'static str],
    /// As in its name, in GB.
    pub memory_gb: u16,
    pub compute_slices: u8,
    /// 0: not known.
    pub memory_slices: u8,
    pub profiles: &'static [Profile],
}

impl Product {
    /// By the name its driver gives it, however that is spelled.
    pub fn named(name: &str) -> Option<&'static Self> {
        let wanted = normalised(name);
        let same = |p: &&Self| p.names.iter().any(|n| normalised(n) == wanted);
        PRODUCTS.iter().find(same)
    }

    pub fn profile(&self, name: &str) -> Option<&'static Profile> {
        self.profiles.iter().find(|p| p.name == name)
    }

    /// The card as counters would say it: its memory slices one by one, its compute slices, its media engines.
    /// None: where its partitions begin is not known.
    pub fn shape_key(&self) -> Option<ShapeKey> {
        let known = |p: &Profile| p.memory_slices > 0 && !p.starts.is_empty();
        if self.memory_slices == 0 || !self.profiles.iter().all(known) {
            return None;
        }
        let slices = usize::from(self.memory_slices);
        let amounts = |taken: &dyn Fn(usize) -> bool, compute: u8, media: bool| -> Amounts {
            let slices = (0..slices).map(|i| u32::from(taken(i)));
            slices.chain([u32::from(compute), u32::from(media)]).collect()
        };
        let cuts = self.profiles.iter().flat_map(|p| {
            p.starts.iter().map(move |start| {
                let (first, end) = (usize::from(*start), usize::from(start + p.memory_slices));
                let media = p.name.contains("+me");
                (
                    p.name.into(),
                    amounts(&|i| (first..end).contains(&i), p.compute_slices, media),
                )
            })
        });
        Some(ShapeKey::new(amounts(&|_| true, self.compute_slices, true), cuts))
    }
}

#[rustfmt::skip]
const fn profile(name: &'static str, compute_slices: u8, memory_slices: u8, starts: &'static [u8], most: u8, memory_mib: u32) -> Profile {
    let memory_mib = if memory_mib == 0 { None } else { Some(memory_mib) };
    Profile { name, compute_slices, memory_slices, starts, most, memory_mib }
}

#[rustfmt::skip]
pub const PRODUCTS: &[Product] = &[
    Product { id: "a30-24gb", names: &["NVIDIA A30"], memory_gb: 24, compute_slices: 4, memory_slices: 4, profiles: &[
        profile("1g.6gb", 1, 1, &[0, 1, 2, 3], 4, 0),
        profile("1g.6gb+me", 1, 1, &[0, 1, 2, 3], 1, 0),
        profile("2g.12gb", 2, 2, &[0, 2], 2, 11968),
        profile("2g.12gb+me", 2, 2, &[0, 2], 1, 0),
        profile("4g.24gb", 4, 4, &[0], 1, 24064),
    ] },
    Product { id: "a100-40gb", names: &["NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB", "NVIDIA A800-SXM4-40GB"], memory_gb: 40, compute_slices: 7, memory_slices: 8, profiles: &[
        profile("1g.5gb", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 7, 4864),
        profile("1g.5gb+me", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 1, 4864),
        profile("1g.10gb", 1, 2, &[0, 2, 4, 6], 4, 9856),
        profile("2g.10gb", 2, 2, &[0, 2, 4], 3, 9856),
        profile("3g.20gb", 3, 4, &[0, 4], 2, 19968),
        profile("4g.20gb", 4, 4, &[0], 1, 19968),
        profile("7g.40gb", 7, 8, &[0], 1, 40192),
    ] },
    Product { id: "a100-80gb", names: &["NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", "NVIDIA A800 80GB PCIe", "NVIDIA A800-SXM4-80GB"], memory_gb: 80, compute_slices: 7, memory_slices: 8, profiles: &[
        profile("1g.10gb", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 7, 9856),
        profile("1g.10gb+me", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 1, 9856),
        profile("1g.20gb", 1, 2, &[0, 2, 4, 6], 4, 19968),
        profile("2g.20gb", 2, 2, &[0, 2, 4], 3, 19968),
        profile("3g.40gb", 3, 4, &[0, 4], 2, 40192),
        profile("4g.40gb", 4, 4, &[0], 1, 40192),
        profile("7g.80gb", 7, 8, &[0], 1, 80384),
    ] },
    Product { id: "h100-80gb", names: &["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H800"], memory_gb: 80, compute_slices: 7, memory_slices: 8, profiles: &[
        profile("1g.10gb", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 7, 9984),
        profile("1g.10gb+me", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 1, 9984),
        profile("1g.20gb", 1, 2, &[0, 2, 4, 6], 4, 20096),
        profile("2g.20gb", 2, 2, &[0, 2, 4], 3, 20096),
        profile("3g.40gb", 3, 4, &[0, 4], 2, 40448),
        profile("4g.40gb", 4, 4, &[0], 1, 40448),
        profile("7g.80gb", 7, 8, &[0], 1, 81152),
    ] },
    Product { id: "h100-94gb", names: &["NVIDIA H100 NVL", "NVIDIA H800 NVL"], memory_gb: 94, compute_slices: 7, memory_slices: 8, profiles: &[
        profile("1g.12gb", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 7, 11008),
        profile("1g.12gb+me", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 1, 11008),
        profile("1g.24gb", 1, 2, &[0, 2, 4, 6], 4, 22144),
        profile("2g.24gb", 2, 2, &[0, 2, 4], 3, 22144),
        profile("3g.47gb", 3, 4, &[0, 4], 2, 47488),
        profile("4g.47gb", 4, 4, &[0], 1, 47488),
        profile("7g.94gb", 7, 8, &[0], 1, 95360),
    ] },
    Product { id: "h100-96gb-gh200", names: &["NVIDIA GH200 480GB", "NVIDIA H20"], memory_gb: 96, compute_slices: 7, memory_slices: 8, profiles: &[
        profile("1g.12gb", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 7, 0),
        profile("1g.12gb+me", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 1, 0),
        profile("1g.24gb", 1, 2, &[0, 2, 4, 6], 4, 0),
        profile("2g.24gb", 2, 2, &[0, 2, 4], 3, 0),
        profile("3g.48gb", 3, 4, &[0, 4], 2, 0),
        profile("4g.48gb", 4, 4, &[0], 1, 0),
        profile("7g.96gb", 7, 8, &[0], 1, 0),
    ] },
    Product { id: "gh200-144gb", names: &["NVIDIA GH200 144G HBM3e"], memory_gb: 144, compute_slices: 7, memory_slices: 8, profiles: &[
        profile("1g.18gb", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 7, 17920),
        profile("1g.18gb+me", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 1, 17920),
        profile("1g.36gb", 1, 2, &[0, 2, 4, 6], 4, 36096),
        profile("2g.36gb", 2, 2, &[0, 2, 4], 3, 36096),
        profile("3g.72gb", 3, 4, &[0, 4], 2, 0),
        profile("4g.72gb", 4, 4, &[0], 1, 0),
        profile("7g.144gb", 7, 8, &[0], 1, 0),
    ] },
    Product { id: "h200-141gb", names: &["NVIDIA H200", "NVIDIA H200 NVL"], memory_gb: 141, compute_slices: 7, memory_slices: 8, profiles: &[
        profile("1g.18gb", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 7, 16384),
        profile("1g.18gb+me", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 1, 16384),
        profile("1g.35gb", 1, 2, &[0, 2, 4, 6], 4, 33024),
        profile("2g.35gb", 2, 2, &[0, 2, 4], 3, 33024),
        profile("3g.71gb", 3, 4, &[0, 4], 2, 71168),
        profile("4g.71gb", 4, 4, &[0], 1, 71168),
        profile("7g.141gb", 7, 8, &[0], 1, 0),
    ] },
    Product { id: "b200-180gb", names: &["NVIDIA B200"], memory_gb: 180, compute_slices: 7, memory_slices: 8, profiles: &[
        profile("1g.23gb", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 7, 22528),
        profile("1g.23gb+me", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 1, 22528),
        profile("1g.45gb", 1, 2, &[0, 2, 4, 6], 4, 45312),
        profile("2g.45gb", 2, 2, &[0, 2, 4], 3, 45312),
        profile("3g.90gb", 3, 4, &[0, 4], 2, 0),
        profile("4g.90gb", 4, 4, &[0], 1, 0),
        profile("7g.180gb", 7, 8, &[0], 1, 0),
    ] },
    Product { id: "gb200-186gb", names: &["NVIDIA GB200"], memory_gb: 186, compute_slices: 7, memory_slices: 8, profiles: &[
        profile("1g.23gb", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 7, 22528),
        profile("1g.23gb+me", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 1, 22528),
        profile("1g.47gb", 1, 2, &[0, 2, 4, 6], 4, 46592),
        profile("2g.47gb", 2, 2, &[0, 2, 4], 3, 46592),
        profile("3g.93gb", 3, 4, &[0, 4], 2, 0),
        profile("4g.93gb", 4, 4, &[0], 1, 0),
        profile("7g.186gb", 7, 8, &[0], 1, 0),
    ] },
    Product { id: "b300-269gb", names: &["NVIDIA B300 SXM6 AC"], memory_gb: 269, compute_slices: 7, memory_slices: 8, profiles: &[
        profile("1g.34gb", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 7, 0),
        profile("1g.34gb+me", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 1, 0),
        profile("1g.67gb", 1, 2, &[0, 2, 4, 6], 4, 0),
        profile("2g.67gb", 2, 2, &[0, 2, 4], 3, 0),
        profile("3g.135gb", 3, 4, &[0, 4], 2, 0),
        profile("4g.135gb", 4, 4, &[0], 1, 0),
        profile("7g.269gb", 7, 8, &[0], 1, 0),
    ] },
    Product { id: "gb300-278gb", names: &["NVIDIA GB300"], memory_gb: 278, compute_slices: 7, memory_slices: 8, profiles: &[
        profile("1g.35gb", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 7, 0),
        profile("1g.35gb+me", 1, 1, &[0, 1, 2, 3, 4, 5, 6], 1, 0),
        profile("1g.70gb", 1, 2, &[0, 2, 4, 6], 4, 0),
        profile("2g.70gb", 2, 2, &[0, 2, 4], 3, 0),
        profile("3g.139gb", 3, 4, &[0, 4], 2, 0),
        profile("4g.139gb", 4, 4, &[0], 1, 0),
        profile("7g.278gb", 7, 8, &[0], 1, 0),
    ] },
    Product { id: "rtx-pro-6000-blackwell-96gb", names: &["NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"], memory_gb: 96, compute_slices: 4, memory_slices: 12, profiles: &[
        profile("1g.24gb", 1, 3, &[0, 3, 6, 9], 4, 24192),
        profile("1g.24gb+me", 1, 3, &[0, 3, 6, 9], 1, 24192),
        profile("1g.24gb+gfx", 1, 3, &[0, 3, 6, 9], 4, 24192),
        profile("1g.24gb+me.all", 1, 3, &[0, 3, 6, 9], 1, 24192),
        profile("1g.24gb-me", 1, 3, &[0, 3, 6, 9], 4, 24192),
        profile("2g.48gb", 2, 6, &[0, 6], 2, 48512),
        profile("2g.48gb+gfx", 2, 6, &[0, 6], 2, 48512),
        profile("2g.48gb+me.all", 2, 6, &[0, 6], 1, 48512),
        profile("2g.48gb-me", 2, 6, &[0, 6], 2, 48512),
        profile("4g.96gb", 4, 12, &[0], 1, 97280),
        profile("4g.96gb+gfx", 4, 12, &[0], 1, 97280),
    ] },
    Product { id: "rtx-pro-5000-blackwell-48gb", names: &["NVIDIA RTX PRO 5000 Blackwell"], memory_gb: 48, compute_slices: 2, memory_slices: 0, profiles: &[
        profile("1g.24gb", 1, 0, &[], 2, 0),
        profile("1g.24gb+me", 1, 0, &[], 1, 0),
        profile("1g.24gb+gfx", 1, 0, &[], 2, 0),
        profile("1g.24gb+me.all", 1, 0, &[], 1, 0),
        profile("1g.24gb-me", 1, 0, &[], 2, 0),
        profile("2g.48gb", 2, 0, &[], 1, 0),
        profile("2g.48gb+gfx", 2, 0, &[], 1, 0),
    ] },
    Product { id: "rtx-pro-4500-blackwell-32gb", names: &["NVIDIA RTX PRO 4500 Blackwell"], memory_gb: 32, compute_slices: 2, memory_slices: 0, profiles: &[
        profile("1g.16gb", 1, 0, &[], 2, 0),
        profile("1g.16gb+gfx", 1, 0, &[], 2, 0),
        profile("1g.16gb+me.all", 1, 0, &[], 1, 0),
        profile("1g.16gb-me", 1, 0, &[], 2, 0),
        profile("2g.32gb", 2, 0, &[], 1, 0),
        profile("2g.32gb+gfx", 2, 0, &[], 1, 0),
    ] },
];
