//! Events as a busy cluster has them, without end: a tenth of them begins the life of a pod. It comes with its claim, is
//! placed, runs and goes, and nodes say that they are well or are labelled anew.

use serde_json::Value;

use crate::fixture::{ODD, node_name};
use crate::population;

/// Pods at one time, each with two cards of a node of its own, where there is one more node than that.
const AT_ONCE: u64 = 500;
/// Events of a life.
const STEPS: u64 = 10;
/// Stand in the texts for what is another in each life. The resourceVersion is put in by who sends it.
const LIFE: &str = "@LIFE@";
const NODE: &str = "@NODE@";
const VERSION: &str = "@VERSION@";

pub(crate) struct Lives {
    nodes: usize,
    /// Events sent.
    count: u64,
    /// Text of each step: the kind, and the line of the watch.
    steps: Vec<(&'static str, String)>,
}

/// The claim of that life; pods are of the same name.
pub(crate) fn name(life: u64) -> String {
    format!("life-{life}")
}

fn line(event: &str, mut object: Value) -> String {
    object["metadata"]["resourceVersion"] = VERSION.into();
    format!(r#"{{"type":"{event}","object":{object}}}"#)
}

impl Lives {
    pub(crate) fn new(nodes: usize) -> Self {
        let name = format!("life-{LIFE}");
        let uid = format!("uid-{LIFE}");
        let pod = |claim: Option<&str>, node| population::pod(&name, "bench", &uid, claim, node);
        let claim = |at| {
            let mut claim = population::claim(&name, "bench", Some((name.clone(), uid.clone())), at);
            claim["metadata"]["uid"] = format!("claim-uid-{LIFE}").into();
            claim
        };
        let mut waiting = pod(Some(&name), None);
        waiting["status"] = serde_json::json!({"phase": "Pending"});
        let node = |beat: u32| {
            let mut node = population::node(0);
            node["metadata"]["name"] = NODE.into();
            node["metadata"]["uid"] = format!("uid-{NODE}").into();
            node["metadata"]["labels"]["example.com/batch"] = LIFE.into();
            node["status"]["conditions"][3]["lastHeartbeatTime"] = format!("beat {beat} of life {LIFE}").into();
            node
        };
        let there = Some((NODE, 4));
        let mut running = pod(Some(&name), Some(NODE));
        running["status"]["startTime"] = "2026-01-01T00:00:00Z".into();
        let steps = vec![
            ("pods", line("ADDED", waiting)),
            ("resourceclaims", line("ADDED", claim(None))),
            ("pods", line("MODIFIED", pod(Some(&name), None))),
            ("resourceclaims", line("MODIFIED", claim(there))),
            ("pods", line("MODIFIED", pod(Some(&name), Some(NODE)))),
            ("pods", line("MODIFIED", running.clone())),
            ("nodes", line("MODIFIED", node(0))),
            // Nothing of this is kept by whoever places pods.
            ("nodes", line("MODIFIED", node(1))),
            // Of a life that began earlier.
            ("resourceclaims", line("DELETED", claim(there))),
            ("pods", line("DELETED", running)),
        ];
        Self { nodes, count: 0, steps }
    }

    /// The kind of the next event, and its line before and after the resourceVersion.
    pub(crate) fn next(&mut self) -> (&'static str, String, String) {
        let (mut life, mut step) = (self.count / STEPS, self.count % STEPS);
        self.count += 1;
        match (step, life.checked_sub(AT_ONCE)) {
            (8.., Some(earlier)) => life = earlier,
            (8.., None) => step = 7,
            _ => {}
        }
        let (kind, text) = &self.steps[step as usize];
        // Not one after the other: neighbours in memory would be cheap.
        let at = (life * 37) as usize % self.nodes.saturating_sub(1).max(1);
        // Not on the odd one: its last cards are held for the pod that fits there only, and it is to fit the others, too.
        let node = node_name(if at < ODD { at } else { at + 1 });
        let text = text.replace(LIFE, &life.to_string()).replace(NODE, &node);
        let (before, after) = text.split_once(VERSION).unwrap_or((&text, ""));
        (kind, before.to_owned(), after.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_goes() {
        let mut lives = Lives::new(5000);
        let mut there = std::collections::HashSet::new();
        let mut most = 0;
        for _ in 0..3 * AT_ONCE * STEPS {
            let (kind, before, after) = lives.next();
            let event: Value = serde_json::from_str(&format!("{before}7{after}")).expect("JSON");
            assert_eq!(event["object"]["metadata"]["resourceVersion"], "7");
            assert!(!after.contains(&node_name(ODD)), "{after}");
            let key = format!("{kind} {}", event["object"]["metadata"]["name"]);
            match event["type"].as_str() {
                Some("ADDED") => assert!(there.insert(key), "twice"),
                Some("DELETED") => assert!(there.remove(&key), "{key} was not there"),
                _ => assert!(kind == "nodes" || there.contains(&key), "{key} is not there"),
            }
            most = most.max(there.len());
        }
        assert_eq!(most as u64, 2 * (AT_ONCE + 1));
    }
}
