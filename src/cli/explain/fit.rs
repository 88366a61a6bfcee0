//! Which partitions and cards hold a model of a size, how many of it there are, and what part of a card's memory bandwidth
//! each keeps: that of its memory slices, which are each behind a part of the memory controllers.
//!
//! Memory is what slices publish. What a card that is not cut would give if it were is from the product table.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::str::FromStr;

use serde::Serialize;

use super::super::{Output, table};
use crate::model::{Bits, Device, Name, Quantity};
use crate::partition::Product;
use crate::snapshot::{Pool, PoolHealth, PoolState, Snapshot};

/// A part of a card with consumable capacity, as large as is needed: what its driver sells may be more.
const SHARED: &str = "shared (wattlane.dev/share)";

const GIB: f64 = (1_u64 << 30) as f64;

/// Bytes, as a quantity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size(i64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A part of a byte is one more: whoever plans takes the larger.
        let size = text.parse::<Quantity>().ok().map(|q| q.nanos());
        let bytes = size
            .filter(|nanos| *nanos > 0)
            .map(|nanos| (nanos - 1) / 1_000_000_000 + 1);
        let bytes = bytes.and_then(|bytes| i64::try_from(bytes).ok());
        bytes
            .filter(|bytes| *bytes >= Quantity::LEAST_SIZE)
            .map(Self)
            .ok_or_else(|| "write a size with its unit, like 14Gi".to_owned())
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Margin {
    /// Of the weights, in per cent.
    Part(u32),
    Bytes(i64),
}

impl FromStr for Margin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write a part of the weights (20%) or a size with its unit (4Gi)".to_owned();
        if let Some(part) = text.strip_suffix('%') {
            return part
                .parse()
                .ok()
                .filter(|p| *p <= 1000)
                .map(Self::Part)
                .ok_or_else(wrong);
        }
        if text == "0" {
            return Ok(Self::Bytes(0));
        }
        text.parse::<Size>().map(|s| Self::Bytes(s.0)).map_err(|_| wrong())
    }
}

impl Margin {
    fn of(self, size: Size) -> i64 {
        match self {
            Self::Part(percent) => i64::try_from(i128::from(size.0) * i128::from(percent) / 100).unwrap_or(i64::MAX),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// A part of a card: so many of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Share(u32, u32);

/// What kind of thing holds the model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    product: String,
    /// Bytes.
    memory: i128,
    profile: String,
    if_cut: bool,
    share: Option<Share>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    now: u32,
    empty: u32,
    /// Empty cards that give at least one, and the most that one of them gives.
    cards: u32,
    most: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    product: String,
    profile: String,
    memory_gi_b: f64,
    /// The card is not cut: what it would give if it were.
    if_cut: bool,
    now: u32,
    empty: u32,
    cards: u32,
    per_card: u32,
    /// Of the card's memory bandwidth, for each instance. None: not known.
    bandwidth_share: Option<f64>,
    /// Of all instances of one card: `2 x 4/8 = 8/8`.
    bandwidth_sum: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    weights_gi_b: f64,
    margin_gi_b: f64,
    needed_gi_b: f64,
    fits: Vec<Row>,
}

impl Report {
    pub(super) fn of(snapshot: &Snapshot, size: Size, margin: Margin) -> Self {
        let margin = margin.of(size);
        let needed = i128::from(size.0) + i128::from(margin);
        let mut found: BTreeMap<Key, Counts> = BTreeMap::new();
        for (state, seen) in snapshot.pools.iter().zip(open(snapshot)) {
            if let Some(state) = state.as_ref().filter(|s| s.pool.health == PoolHealth::Complete) {
                let open = |i| seen.as_ref().is_none_or(|s| s.contains(i));
                add(state, needed, open, &mut found);
            }
        }
        Self {
            weights_gi_b: gib(size.0.into()),
            margin_gi_b: gib(margin.into()),
            // As printed: whoever adds up the other two gets it.
            needed_gi_b: ((gib(size.0.into()) + gib(margin.into())) * 100.0).round() / 100.0,
            fits: found.into_iter().filter(|(_, c)| c.empty > 0).map(row).collect(),
        }
    }

    /// 0 when something of the cluster holds it as it is now, else 1.
    pub(super) fn print(&self, output: Output) -> anyhow::Result<ExitCode> {
        let mut out = std::io::stdout().lock();
        match output {
            Output::Json => writeln!(out, "{}", serde_json::to_string(self)?)?,
            Output::Table => out.write_all(self.text().as_bytes())?,
        }
        Ok(ExitCode::from(u8::from(
            !self.fits.iter().any(|r| r.now > 0 && !r.if_cut),
        )))
    }

    fn text(&self) -> String {
        let sum = format!(
            "{:.2} GiB of weights + {:.2} GiB margin = {:.2} GiB\n",
            self.weights_gi_b, self.margin_gi_b, self.needed_gi_b
        );
        if self.fits.is_empty() {
            return format!("{sum}\nNothing of this cluster holds it.\n");
        }
        let head = [
            "PRODUCT",
            "PROFILE",
            "MEMORY",
            "NOW",
            "ALL EMPTY",
            "OF A CARD",
            "BANDWIDTH",
        ];
        let mut rows = vec![head.map(str::to_owned)];
        for r in &self.fits {
            let cut = if r.if_cut { " (if cut)" } else { "" };
            // Whoever shares a card may have all of it.
            let unknown = if r.profile == SHARED { "-" } else { "?" };
            rows.push([
                r.product.clone(),
                format!("{}{cut}", r.profile),
                format!("{:.1} GiB", r.memory_gi_b),
                r.now.to_string(),
                r.empty.to_string(),
                r.per_card.to_string(),
                r.bandwidth_sum.clone().unwrap_or_else(|| unknown.to_owned()),
            ]);
        }
        format!("{sum}\n{}", table(&rows))
    }
}

fn row((key, counts): (Key, Counts)) -> Row {
    let sum = |Share(of, all): Share| {
        let taken = of.saturating_mul(counts.most);
        format!("{} x {of}/{all} = {taken}/{all}", counts.most)
    };
    Row {
        memory_gi_b: gib(key.memory),
        if_cut: key.if_cut,
        now: counts.now,
        empty: counts.empty,
        cards: counts.cards,
        per_card: counts.most,
        bandwidth_share: key.share.map(|Share(of, all)| f64::from(of) / f64::from(all)),
        bandwidth_sum: key.share.map(sum),
        product: key.product,
        profile: key.profile,
    }
}

/// To a hundredth: nobody plans with less.
pub(super) fn gib(bytes: i128) -> f64 {
    (bytes as f64 / GIB * 100.0).round() / 100.0
}

/// By pool, the devices that some node may be given: not where a device plugin may have given them away, say. None: no node
/// sees the pool, and nothing of that kind is known.
fn open(snapshot: &Snapshot) -> Vec<Option<Bits>> {
    let mut open: Vec<Option<Bits>> = vec![None; snapshot.pools.len()];
    for (_, node) in snapshot.nodes() {
        for visible in &node.pools {
            let (Some(state), Some(open)) = (snapshot.pool(visible.pool), open.get_mut(visible.pool.0 as usize)) else {
                continue;
            };
            let size = state.pool.devices.len();
            let of_pool = open.get_or_insert_with(|| Bits::new(size));
            if *visible.health(&state.pool) == PoolHealth::Complete {
                (0..size).filter(|i| visible.sees(*i)).for_each(|i| of_pool.insert(i));
            }
        }
    }
    open
}

/// `open`: which of the devices can be given now.
fn add(state: &PoolState, needed: i128, open: impl Fn(usize) -> bool, found: &mut BTreeMap<Key, Counts>) {
    let pool = &*state.pool;
    // Counted by card: so many now and on the empty card.
    let mut by_card: BTreeMap<(Key, u32), (u32, u32)> = BTreeMap::new();
    for empty in [false, true] {
        for fit in state.fits(empty, |i| empty || open(i)) {
            let device = &pool.devices[fit.device].device;
            let Some(memory) = device.memory().map(bytes).filter(|m| *m >= needed) else {
                continue;
            };
            let key = Key {
                product: product(device),
                memory,
                profile: fit.profile.to_string(),
                if_cut: false,
                share: share(pool, fit.device),
            };
            let counts = by_card.entry((key, card(pool, fit.device))).or_default();
            let of = if empty { &mut counts.1 } else { &mut counts.0 };
            *of = of.saturating_add(fit.count);
        }
    }
    for (i, d) in pool.devices.iter().enumerate() {
        let device = &*d.device;
        if device.is_shared() && d.classified.class.is_some() {
            let Some(memory) = device.memory().map(bytes).filter(|m| *m >= needed) else {
                continue;
            };
            let untainted = !pool.summary().tainted.contains(i);
            let times = |given: i128| u32::try_from((memory - given) / needed.max(1)).unwrap_or(0);
            let of = |sees: bool, given| if sees && untainted { times(given) } else { 0 };
            let now = of(
                open(i) && !state.taken.contains(i),
                state.memory_given(i) / 1_000_000_000,
            );
            let key = Key {
                product: product(device),
                memory,
                profile: SHARED.to_owned(),
                if_cut: false,
                share: None,
            };
            by_card.insert((key, card(pool, i)), (now, of(true, 0)));
            continue;
        }
        let plain = pool.cuts.of(i).is_none() && !device.is_partition() && !device.is_shared();
        // A NIC has no memory, and a card without a class is none.
        let Some(memory) = device
            .memory()
            .map(bytes)
            .filter(|_| plain && d.classified.class.is_some())
        else {
            continue;
        };
        let untainted = !pool.summary().tainted.contains(i);
        let now = u32::from(untainted && open(i) && state.is_whole(i));
        let mut whole = |profile: &str, memory: i128, most: u32, if_cut: bool, share: Option<Share>| {
            if memory >= needed {
                let (product, profile) = (product(device), profile.to_owned());
                let key = Key {
                    product,
                    memory,
                    profile,
                    if_cut,
                    share,
                };
                let counts = by_card.entry((key, card(pool, i))).or_default();
                *counts = (now * most, u32::from(untainted) * most);
            }
        };
        whole("whole", memory, 1, false, Some(Share(1, 1)));
        let product = device.text("productName").and_then(|name| Product::named(name));
        for profile in product.iter().flat_map(|p| p.profiles) {
            let slices = product.map_or(0, |p| p.memory_slices);
            let share = (slices > 0).then(|| Share(profile.memory_slices.into(), slices.into()));
            if let Some(mib) = profile.memory_mib {
                whole(profile.name, i128::from(mib) << 20, profile.most.into(), true, share);
            }
        }
    }
    for ((key, _), (now, empty)) in by_card {
        let counts = found.entry(key).or_default();
        counts.now = counts.now.saturating_add(now);
        counts.empty = counts.empty.saturating_add(empty);
        counts.cards += u32::from(empty > 0);
        counts.most = counts.most.max(empty);
    }
}

fn bytes(q: Quantity) -> i128 {
    q.nanos() / 1_000_000_000
}

fn product(device: &Device) -> String {
    let named = ["productName", "model"].into_iter().find_map(|name| device.text(name));
    named.map_or_else(|| "?".to_owned(), Name::to_string)
}

fn card(pool: &Pool, device: usize) -> u32 {
    pool.boards().board(device).map_or(u32::MAX, |(card, _)| card)
}

/// What part of its card's memory the device is behind: its memory slices, where the driver says which; else its part of the
/// card's memory; else what the product table says of its profile. None: nobody knows, and how many are side by side says
/// nothing.
fn share(pool: &Pool, at: usize) -> Option<Share> {
    let device = &*pool.devices[at].device;
    let of_set = |prefix: &str| -> Option<(i128, i128)> {
        let set = device.consumes.first()?;
        let all = pool.counter_sets.iter().find(|s| s.name == set.counter_set)?;
        let sum = |list: &[(Name, Quantity)]| {
            list.iter()
                .filter(|(n, _)| n.starts_with(prefix))
                .map(|(_, q)| bytes(*q))
                .sum()
        };
        Some((sum(&set.counters), sum(&all.counters)))
    };
    let of = |pair: Option<(i128, i128)>| pair.filter(|(of, all)| *of > 0 && all >= of);
    if let Some((of, all)) = of(of_set("memory-slice-")).or_else(|| of(of_set("memory"))) {
        return Some(reduced(of, all));
    }
    let slices = device
        .capacity
        .iter()
        .filter(|(q, _)| q.name.starts_with("memorySlice"))
        .count();
    let product = device.text("productName").and_then(|name| Product::named(name));
    let product = product.filter(|p| p.memory_slices > 0);
    if let Some(product) = product.filter(|_| slices > 0) {
        return Some(Share(u32::try_from(slices).ok()?, product.memory_slices.into()));
    }
    if let Some(equal) = device.amount("partitions").map(bytes).filter(|n| *n > 0) {
        return Some(Share(1, u32::try_from(equal).ok()?));
    }
    if !device.is_partition() {
        return Some(Share(1, 1));
    }
    let (product, profile) = (product?, device.profile()?);
    let known = product.profiles.iter().find(|p| *p.name == *profile)?;
    Some(Share(known.memory_slices.into(), product.memory_slices.into()))
}

/// Slices stay as they are counted; bytes become a small fraction.
fn reduced(of: i128, all: i128) -> Share {
    if all <= 64 {
        return Share(u32::try_from(of).unwrap_or(1), u32::try_from(all).unwrap_or(1));
    }
    let (mut a, mut b) = (of, all);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    Share(u32::try_from(of / a).unwrap_or(1), u32::try_from(all / a).unwrap_or(1))
}
