//! Pods and nodes that are read from their text, without a tree.

use proptest::prelude::*;

use super::*;

fn pods_and_nodes() -> impl Strategy<Value = Value> {
    let word = || {
        prop_oneof![
            Just("a".to_owned()),
            Just("wattlane.dev/class".to_owned()),
            "[a\"\\\\é]{0,3}"
        ]
    };
    let odd = || {
        prop_oneof![
            Just(Value::Null),
            Just(json!(7)),
            Just(json!([{}])),
            word().prop_map(Value::from)
        ]
    };
    let text = move || prop_oneof![4 => word().prop_map(Value::from), 1 => odd()];
    let map = move || prop::collection::btree_map(word(), text(), 0..3).prop_map(|m| json!(m));
    let container = prop_oneof![
        Just(json!({"env": [{"value": "\"x\""}]})),
        map().prop_map(|m| json!({"resources": {"limits": m}}))
    ];
    let claims = (text(), text()).prop_map(|(name, of)| json!([{"name": name, "resourceClaimName": of}]));
    (
        [text(), text()],
        [map(), map()],
        prop::collection::vec(container, 0..3),
        prop_oneof![claims, odd()],
        text(),
    )
        .prop_map(|([name, uid], [labels, annotations], containers, claims, node)| {
            json!({"metadata": {"name": name, "uid": uid, "labels": labels, "annotations": annotations},
                "spec": {"nodeName": node, "containers": containers, "resourceClaims": claims, "later": [labels],
                    "taints": [{"key": name, "effect": node}]},
                "status": {"phase": node, "resourceClaimStatuses": claims,
                    "allocatable": {"cpu": "8", "memory": "64Gi", "example.com/gpu": 2}}})
        })
}

proptest! {
    /// What is read without a tree is what the tree has; what is not is left to the tree.
    #[test]
    fn pods_and_nodes_read_the_same_with_and_without_a_tree(value in pods_and_nodes()) {
        let text = value.to_string();
        if let Some(read) = pod_of_text(&text) {
            prop_assert_eq!(Ok(read), pod(&value));
        }
        if let Some(read) = node_of_text(&text) {
            prop_assert_eq!(Ok(read), node(&value));
        }
    }
}

#[test]
fn escapes_where_anything_may_stand_are_no_reason_for_a_tree() {
    let text = r#"{"metadata": {"name": "a", "annotations": {"wattlane.dev/class": "\"x\""}},
        "spec": {"containers": [{"name": "\n", "env": [{"value": "\ud800"}]}]}}"#;
    let pod = pod_of_text(text).expect("read");
    assert_eq!(pod.annotation("wattlane.dev/class"), Some("\"x\""));
}
