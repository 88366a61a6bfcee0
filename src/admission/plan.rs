//! From asks to claims of the pod: who holds which devices, and who shares.
//!
//! As Kubernetes counts an extended resource: ordinary containers and sidecars (restartable init containers) add up,
//! and an init container needs its number beside the sidecars that started before it. The pod takes the larger of the
//! two and not a device more. Nobody gets fewer, or other, devices than asked, and whoever runs side by side shares
//! nothing.
//!
//! The devices of one DeviceClass (and one profile) are thought of as a row. Ordinary containers stand at its front in their order,
//! sidecars at its end, the first to start last. An init container takes the first group of whole ordinary containers
//! that has its number, else the front: what reaches no sidecar before it is free then. The row is cut wherever
//! somebody begins or ends, and each piece is a claim; a container names the claims of its pieces. A container of four
//! beside an init container of one thus has claims of one and three; where nobody cuts it, one of four.

use std::collections::{BTreeMap, BTreeSet};

use super::ask::Ask;
use super::pod::{Phase, Pod};
use super::template::{Parts, Template};
use crate::model::Name;

/// A claim the pod gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// The pod's own name for it.
    pub(super) name: String,
    pub(super) template: Template,
}

/// Which claims serve which ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) claims: Vec<Claim>,
    /// Positions in `claims` with the ask they serve, in the order of the asks.
    pub(super) served: Vec<(Vec<usize>, Ask)>,
}

impl Plan {
    /// Whole cards in all claims.
    pub(super) fn cards(&self) -> u32 {
        let whole = self.claims.iter().filter(|c| !c.template.is_of_parts());
        whole.fold(0, |n, c| n.saturating_add(c.template.count))
    }

    /// Whether some claim may be of partitions, which are of one card at least.
    pub(super) fn has_parts(&self) -> bool {
        self.claims.iter().any(|c| c.template.is_of_parts())
    }
}

/// Asks without a DeviceClass are not planned.
pub(super) fn plan(pod: Pod<'_>, asks: &[Ask]) -> Plan {
    let mut rows: BTreeMap<Kind<'_>, Vec<usize>> = BTreeMap::new();
    for (i, ask) in asks.iter().enumerate() {
        if let Some(class) = &ask.device_class {
            rows.entry((class, ask.parts.as_ref())).or_default().push(i);
        }
    }
    let mut pieces_of: Vec<Vec<(Kind<'_>, Span)>> = vec![vec![]; asks.len()];
    for (kind, members) in rows {
        let row: Vec<&Ask> = members.iter().map(|i| &asks[*i]).collect();
        for (i, pieces) in members.into_iter().zip(pieces(&spans(&row))) {
            pieces_of[i] = pieces.into_iter().map(|p| (kind, p)).collect();
        }
    }
    // Numbered in the order in which the manifest first uses them.
    let mut plan = Plan::default();
    let mut known: BTreeMap<(Kind<'_>, Span), usize> = BTreeMap::new();
    let mut names = fresh_names(pod);
    for (ask, pieces) in asks.iter().zip(pieces_of).filter(|(_, p)| !p.is_empty()) {
        let mut claims = vec![];
        for (kind, piece) in pieces {
            let at = *known.entry((kind, piece)).or_insert_with(|| {
                plan.claims.push(Claim {
                    name: names.next().unwrap_or_default(),
                    template: Template {
                        device_class: kind.0.clone(),
                        count: piece.1 - piece.0,
                        parts: kind.1.cloned(),
                    },
                });
                plan.claims.len() - 1
            });
            claims.push(at);
        }
        plan.served.push((claims, ask.clone()));
    }
    plan
}

/// DeviceClass, and which parts of cards: devices of one row are alike.
type Kind<'a> = (&'a Name, Option<&'a Parts>);

/// A part of the row: from, and up to but without.
type Span = (u32, u32);

/// Where in the row of its DeviceClass each ask stands.
fn spans(row: &[&Ask]) -> Vec<Span> {
    // The asks of a container, side by side. At most 128 asks of at most 32: no sum overflows.
    let mut containers: Vec<(Phase, std::ops::Range<usize>, u32)> = vec![];
    for (i, ask) in row.iter().enumerate() {
        match containers.last_mut() {
            Some((_, asks, count)) if (row[asks.start].list, row[asks.start].at) == (ask.list, ask.at) => {
                asks.end = i + 1;
                *count += ask.count;
            }
            _ => containers.push((ask.phase, i..i + 1, ask.count)),
        }
    }
    let of = |phase| containers.iter().filter(move |c| c.0 == phase).map(|c| c.2);
    let mut length = of(Phase::Regular).sum::<u32>() + of(Phase::Sidecar).sum::<u32>();
    let mut started = 0;
    for (phase, _, count) in &containers {
        match phase {
            Phase::Init => length = length.max(started + count),
            Phase::Sidecar => started += count,
            Phase::Regular => {}
        }
    }
    let mut ends: Vec<u32> = vec![0];
    for count in of(Phase::Regular) {
        ends.push(ends[ends.len() - 1] + count);
    }
    let (mut front, mut back) = (0, length);
    let mut spans = vec![];
    for (phase, asks, count) in &containers {
        let mut at = match phase {
            Phase::Regular => {
                front += count;
                front - count
            }
            Phase::Sidecar => {
                back -= count;
                back
            }
            Phase::Init => ends
                .iter()
                .copied()
                .find(|start| ends.contains(&(start + count)))
                .unwrap_or(0),
        };
        for ask in &row[asks.clone()] {
            spans.push((at, at + ask.count));
            at += ask.count;
        }
    }
    spans
}

/// What of the row each span consists of, when it is cut at every beginning and every end.
fn pieces(spans: &[Span]) -> Vec<Vec<Span>> {
    let cuts: BTreeSet<u32> = spans.iter().flat_map(|s| [s.0, s.1]).collect();
    let of = |span: &Span| {
        let inner = cuts.range(span.0..=span.1).copied();
        inner.clone().zip(inner.skip(1)).collect()
    };
    spans.iter().map(of).collect()
}

/// `wl-gpu-0`, `wl-gpu-1`, … without those the pod uses already.
pub(super) fn fresh_names(pod: Pod<'_>) -> impl Iterator<Item = String> {
    let taken: BTreeSet<String> = pod
        .spec_list("resourceClaims")
        .iter()
        .filter_map(|c| c["name"].as_str().map(str::to_owned))
        .collect();
    (0_u32..)
        .map(|n| format!("wl-gpu-{n}"))
        .filter(move |name| !taken.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for one resource; `i`, `s` and `m` are init container, sidecar and ordinary one.
    fn spans_of(containers: &[(char, u32)]) -> (Vec<Span>, Vec<Vec<Span>>) {
        let asks: Vec<Ask> = containers
            .iter()
            .enumerate()
            .map(|(at, (phase, count))| Ask {
                phase: match phase {
                    'i' => Phase::Init,
                    's' => Phase::Sidecar,
                    _ => Phase::Regular,
                },
                list: if *phase == 'm' { "containers" } else { "initContainers" },
                at,
                resource: "nvidia.com/gpu".into(),
                cards: "nvidia.com/gpu".into(),
                device_class: Some("gpu.nvidia.com".into()),
                left: None,
                parts: None,
                count: *count,
            })
            .collect();
        let spans = spans(&asks.iter().collect::<Vec<_>>());
        let pieces = pieces(&spans);
        (spans, pieces)
    }

    #[test]
    fn the_row_is_as_long_as_kubernetes_counts() {
        for (containers, length) in [
            (&[('m', 2)][..], 2),
            (&[('i', 1), ('i', 1), ('m', 2)], 2),
            (&[('i', 3), ('m', 2)], 3),
            (&[('i', 5), ('i', 3), ('m', 2), ('m', 2)], 5),
            (&[('s', 1), ('i', 1), ('m', 1)], 2),
            (&[('i', 4), ('s', 1), ('i', 2), ('m', 1)], 4),
            (&[('s', 1), ('i', 4), ('m', 1)], 5),
            (&[('s', 2), ('s', 1), ('m', 1)], 4),
        ] {
            let (spans, _) = spans_of(containers);
            assert_eq!(
                spans.iter().map(|s| s.1).max(),
                Some(length),
                "{containers:?}: {spans:?}"
            );
        }
    }

    #[test]
    fn nothing_is_cut_without_need() {
        // Of another's size, of two together, and of nobody's.
        assert_eq!(spans_of(&[('i', 2), ('m', 1), ('m', 2)]).0[0], (1, 3));
        assert_eq!(spans_of(&[('i', 3), ('m', 4), ('m', 1), ('m', 2)]).0[0], (4, 7));
        let (_, pieces) = spans_of(&[('i', 1), ('m', 4)]);
        assert_eq!(pieces, [vec![(0, 1)], vec![(0, 1), (1, 4)]]);
        let (_, pieces) = spans_of(&[('i', 3), ('m', 2)]);
        assert_eq!(pieces, [vec![(0, 2), (2, 3)], vec![(0, 2)]]);
    }
}
