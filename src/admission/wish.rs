//! What a pod wishes beyond devices and a class, and what becomes of wishes that nothing here grants: those that could
//! be granted halfway are warned about, those that only mean something when kept are refused.

use super::ask::Ask;
use super::pod::Pod;
use super::refuse::{Refused, shown};
use super::{ADMITTED, CLASS, WEBHOOK};
use crate::model::{CARDS, GROUP, MEMORY, MIX, Name, PARTITION, PARTITIONS, SHARE, TOPOLOGY, alike};
use crate::policy::{HAMI_AMOUNTS, Policy};

/// The API server cuts warnings behind this many characters.
const WARNING: usize = 256;
const MOST_WARNINGS: usize = 8;

/// Annotations that HAMi or later versions read, and this one does not.
const UNREAD: [&str; 5] = [
    "hami.io/gpu-scheduler-policy",
    "hami.io/node-scheduler-policy",
    "nvidia.com/numa-bind",
    "nvidia.com/vgpu-mode",
    "wattlane.dev/group-size",
];

const PREFIX: &str = "wattlane.dev/";

/// The annotations of wattlane's own that a pod may carry.
const OURS: [&str; 10] = [
    ADMITTED,
    CLASS,
    WEBHOOK,
    GROUP,
    "wattlane.dev/group-size",
    MEMORY,
    MIX,
    PARTITION,
    SHARE,
    TOPOLOGY,
];

/// Wishes with a fixed set of words. Placement would refuse any other; its author is still here to be told.
const WORDS: [(&str, &[&str]); 2] = [
    (TOPOLOGY, &["required", "preferred", "none"]),
    (MIX, &["true", "false"]),
];

/// Wishes that cannot be read.
pub(super) fn unreadable(pod: Pod<'_>) -> Result<(), Refused> {
    let refused = |what: String| Err(Refused::new(422, what));
    for (key, words) in WORDS {
        if let Some(value) = pod.annotation(key).filter(|v| !words.contains(v)) {
            return refused(format!("{key} is {}; it may be {}", shown(value), words.join(", ")));
        }
    }
    Ok(())
}

/// The pod chose its cards in HAMi's words, which placement reads: a default class would overrule it.
pub(super) fn chooses_cards(pod: Pod<'_>) -> bool {
    ["nvidia.com/use-gputype", "nvidia.com/use-gpuuuid"]
        .into_iter()
        .any(|key| pod.annotation(key).is_some())
}

/// The default class of a restricted namespace holds beside what the pod chose in other words: that may leave nothing.
pub(super) fn overruled(pod: Pod<'_>, class: &Name, converted: bool) -> Option<String> {
    let by = match (pod.annotation(CLASS), converted) {
        (Some(_), _) => return None,
        (None, false) => "its own claims",
        (None, true) if chooses_cards(pod) => "nvidia.com/use-gputype and use-gpuuuid",
        (None, true) => return None,
    };
    Some(format!(
        "wattlane: the pod names no class and gets {class}, the default of its namespace, beside what {by} ask for"
    ))
}

fn beside_a_claim(resource: &str) -> String {
    format!(
        "wattlane: the pod has claims and asks a device plugin for {resource} beside them: neither knows what the other gives"
    )
}

/// What works but may surprise. `slot`: the one card that is asked for becomes a slot of a shared one.
pub(super) fn warnings(policy: &Policy, pod: Pod<'_>, asks: &[Ask], slot: bool) -> Vec<String> {
    let mut said: Vec<String> = vec![];
    let mut say = |text: String| {
        let text: String = text.chars().take(WARNING).collect();
        if said.len() < MOST_WARNINGS && !said.contains(&text) {
            said.push(text);
        }
    };
    // Those it brings, and those that are made for it.
    let claims = !pod.spec_list("resourceClaims").is_empty() || asks.iter().any(|a| a.device_class.is_some());
    for ask in asks.iter().filter(|a| a.device_class.is_none()) {
        let why = ask.left.as_deref().unwrap_or("it is not claimed");
        say(format!(
            "wattlane: {} is left to the device plugin: {why}",
            ask.resource
        ));
        if claims {
            say(beside_a_claim(&ask.resource));
        }
    }
    for ask in asks.iter().filter(|a| a.parts.is_none()) {
        let named = policy.defaults.device_classes.get(&ask.resource);
        if let (Some(named), Some(class)) = (named, &ask.device_class)
            && named != class
        {
            say(format!(
                "wattlane: {} is claimed from DeviceClass {class}, which says it serves it: there is no {named}, which the policy names",
                ask.resource
            ));
        }
    }
    for (key, of_parts) in [(PARTITION, "partition"), (MEMORY, "size")] {
        let templates = pod.spec_list("resourceClaims").iter();
        let mut named = templates.filter_map(|c| c["resourceClaimTemplateName"].as_str());
        let treated = named.any(|n| n.starts_with(CARDS) || n.starts_with(PARTITIONS));
        if pod.annotation(key).is_some() && asks.iter().all(|a| a.parts.is_none()) && !treated && !slot {
            say(format!(
                "wattlane: {key} is the {of_parts} of what is asked for as cards (nvidia.com/gpu: 1), and the pod asks for none"
            ));
        }
    }
    if super::share::wish(pod).is_some() && asks.is_empty() && !claims {
        say(format!(
            "wattlane: {SHARE} is for the one card that a pod asks for (nvidia.com/gpu: 1), and the pod asks for none"
        ));
    }
    for key in [SHARE, MEMORY, PARTITION] {
        if pod.annotation(key).is_none() && pod.annotations().any(|k| k == key) {
            say(format!(
                "wattlane: {key} is empty, which means nothing: the pod is treated as without it"
            ));
        }
    }
    for ask in asks.iter().filter(|a| a.count > 1 && a.may_be_parts()) {
        say(format!(
            "wattlane: partitions have no peer-to-peer: {} of {} reach each other through the host",
            ask.count, ask.resource
        ));
    }
    for container in pod.containers() {
        let mine = |a: &&Ask| (a.list, a.at) == (container.list, container.at);
        let of_parts = asks.iter().filter(mine).any(Ask::may_be_parts);
        let whole_cards = asks.iter().any(|a| {
            (a.list, a.at) == (container.list, container.at)
                && a.device_class.is_some()
                && a.resource.starts_with("nvidia.com/")
        });
        let amounts = ["limits", "requests"].into_iter().filter_map(|w| container.amounts(w));
        for key in amounts.flat_map(|m| m.keys()) {
            if HAMI_AMOUNTS.contains(&key.as_str()) {
                say(match whole_cards {
                    true if of_parts => {
                        format!("wattlane: {key} is dropped: the container gets a partition of its own")
                    }
                    true if slot => format!("wattlane: {key} is dropped: the container gets a slot of a card"),
                    true => format!("wattlane: {key} is dropped: the container gets whole cards"),
                    false => format!("wattlane: {key} is left as it is: the container has no NVIDIA card from a claim"),
                });
            }
        }
    }
    for key in pod.annotations() {
        if let Some(name) = key.strip_prefix(PREFIX).filter(|_| !OURS.contains(&key)) {
            // The prefix alone would make any two alike.
            // What wattlane itself writes is nothing to advise.
            let known = OURS.iter().filter(|k| **k != ADMITTED);
            let meant = alike::likeliest(known.map(|k| k.trim_start_matches(PREFIX)), name);
            let meant = meant.map(|k| format!("; did you mean {PREFIX}{k}?"));
            let (key, meant) = (shown(key), meant.unwrap_or_default());
            say(format!(
                "wattlane: the annotation {key} means nothing to wattlane{meant}"
            ));
        }
    }
    for key in pod
        .labels()
        .filter(|k| OURS.contains(k) && ![ADMITTED, WEBHOOK].contains(k))
    {
        say(format!(
            "wattlane: the label {key} is not read: wattlane reads the annotation of that name"
        ));
    }
    for key in UNREAD.into_iter().filter(|k| pod.annotation(k).is_some()) {
        say(format!("wattlane: the annotation {key} is not read in this version"));
    }
    said
}
