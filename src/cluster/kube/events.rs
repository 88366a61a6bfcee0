//! Events on objects (events.k8s.io/v1). The name of an event is made of what it says, so that writing it again, by us
//! after a restart or by another replica, finds it there.

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::api::Api;
use super::paths;
use crate::cluster::{Event, WriteError};

/// k8s.io/kubernetes/pkg/apis/core/validation/events.go
const MOST_NOTE: usize = 1024;
/// Of the object's name in the event's: 253 less a dot and the hash.
const MOST_NAME: usize = 220;

pub(super) async fn write(api: &Api, event: &Event) -> Result<(), WriteError> {
    let path = paths::events(&event.key.namespace)?;
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    match api.post(&path, &body(event, &now)).await {
        // It is there.
        Ok(_) | Err(WriteError::Conflict(_)) => Ok(()),
        Err(e) => Err(e),
    }
}

fn body(event: &Event, now: &str) -> Value {
    let about = paths::resource(event.kind);
    let (namespace, name) = (&*event.key.namespace, &*event.key.name);
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": event_name(event)},
        "eventTime": now,
        "reportingController": "wattlane.dev/audit",
        "reportingInstance": "wattlane",
        "action": "Audit",
        "reason": event.reason,
        "regarding": {"apiVersion": about.api_version, "kind": about.kind, "namespace": namespace, "name": name,
            "uid": &*event.uid},
        "note": cut(&event.note, MOST_NOTE),
        "type": "Warning",
    })
}

fn event_name(event: &Event) -> String {
    let mut hash = Sha256::new();
    for part in [event.kind.as_str(), &*event.uid, event.reason] {
        hash.update(part);
        hash.update([0]);
    }
    let hex: String = hash.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect();
    // What stands before a dot of a name must end in a letter or a digit.
    let name = cut(&event.key.name, MOST_NAME).trim_end_matches(['.', '-']);
    format!("{name}.{hex}")
}

/// At most so many bytes of it, whole characters.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Kind;
    use crate::model::NamespacedName;

    #[test]
    fn an_event_has_the_name_of_what_it_says() {
        let event = |name: &str, uid: &str, reason| Event {
            kind: Kind::Pod,
            key: NamespacedName::new("ns", name),
            uid: uid.into(),
            reason,
            note: "é".repeat(600),
        };
        let one = event("p", "u", "UnknownHolder");
        let json = body(&one, "2026-01-01T00:00:00.000000Z");
        assert_eq!(json["note"].as_str().map(str::len), Some(1024));
        assert_eq!(json["regarding"]["apiVersion"], "v1");
        let name = event_name(&one);
        assert!(name.starts_with("p.") && name == event_name(&one));
        for other in [event("p", "v", "UnknownHolder"), event("p", "u", "PodUntreated")] {
            assert_ne!(name, event_name(&other));
        }
        let long = event_name(&event(&format!("{}.-{}", "a".repeat(218), "b".repeat(30)), "u", "R"));
        assert!(
            long.len() <= 253 && !long.contains("-.") && !long.contains(".."),
            "{long}"
        );
    }
}
