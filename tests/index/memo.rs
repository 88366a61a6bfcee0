//! What is remembered of nodes is what placement would say anew, whatever happened to the cluster in between.

use proptest::prelude::*;
use serde_json::json;
use wattlane::convert;
use wattlane::model::Pod;
use wattlane::placement::{self, Context, Demand, Fitting, Memo, Rules, Topology};
use wattlane::selector::Selectors;

use super::property::{Expected, NODES, op, step};
use super::support::*;

/// Pods with a claim each, no two of one ask.
fn asks(index: &mut wattlane::index::Index) -> Vec<Pod> {
    let selectors = json!([{"cel": {"expression": "device.capacity['gpu.test'].mem.compareTo(quantity('5')) == 0"}}]);
    let classes = json!([{"cel": {"expression": "device.driver == 'gpu.test'"}}]);
    upsert(
        index,
        &json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.test"},
            "spec": {"selectors": classes}}),
    );
    let asks = [
        (1, json!([]), json!({})),
        (2, json!([]), json!({})),
        (2, json!([]), json!({"wattlane.dev/topology": "required"})),
        (1, selectors, json!({})),
        (1, json!([]), json!({"wattlane.dev/class": "a"})),
        (3, json!([]), json!({"wattlane.dev/mix-classes": "true"})),
    ];
    let ask = |(i, (count, selectors, annotations)): (usize, (u32, serde_json::Value, serde_json::Value))| {
        let name = format!("ask-{i}");
        upsert(
            index,
            &json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "ask", "uid": name}, "spec": {"devices": {"requests": [{"name": "r",
            "exactly": {"deviceClassName": "gpu.test", "count": count, "selectors": selectors}}]}}}),
        );
        let pod = json!({"metadata": {"name": name, "namespace": "ask", "uid": name, "annotations": annotations},
            "spec": {"containers": [], "resourceClaims": [{"name": "c", "resourceClaimName": name}]}});
        convert::pod(&pod).expect("a pod")
    };
    asks.into_iter().enumerate().map(ask).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_is_remembered_is_what_is_so(ops in prop::collection::vec((op(), any::<bool>()), 1..40)) {
        let (mut index, mut expected, selectors) = (index(), Expected::default(), Selectors::new());
        let pods = asks(&mut index);
        let rules = [Topology::Preferred, Topology::None].map(|topology| Rules { topology, ..Rules::default() });
        let mut memo = Memo::default();
        let mut snapshots = vec![];
        for (op, look) in ops {
            step(&mut index, &mut expected, op)?;
            // A relist may have forgotten their claims.
            asks(&mut index);
            snapshots.extend(index.publish());
            if !look {
                continue;
            }
            // The newest, and an older one, as by a request that took its time.
            for snapshot in snapshots.iter().rev().step_by(3).take(2) {
                memo.renew(snapshot);
                for (pod, rules) in pods.iter().flat_map(|pod| rules.iter().map(move |r| (pod, r))) {
                    let ctx = Context { snapshot, selectors: &selectors, rules };
                    let Ok(demand) = Demand::of(ctx, pod) else { continue };
                    let mut known = memo.about(ctx, &demand);
                    for ix in NODES.iter().filter_map(|n| snapshot.node_ix(n)) {
                        let node = snapshot.node(ix).expect("it has a position");
                        let anew = placement::check(ctx, &demand, node);
                        prop_assert_eq!(known.check(ctx, &demand, ix), Some(anew.as_ref().copied()));
                        prop_assert_eq!(known.rank(ctx, &demand, ix), placement::rank(ctx, &demand, ix));
                    }
                    let mut fitting = Fitting::default();
                    let mut nodes: Vec<_> = snapshot.nodes().collect();
                    nodes.sort_by_key(|(_, n)| &n.node.name);
                    // Whatever order they are asked for in.
                    for (at, order) in (0..nodes.len()).rev().enumerate() {
                        known.add_to(&mut fitting, ctx, &demand, nodes[order].0, (order as u32, at as u32));
                    }
                    let asked: Vec<_> = nodes.iter().rev().map(|(_, node)| *node).collect();
                    prop_assert_eq!(fitting.scores(&demand, asked.len()), placement::scores(ctx, &demand, &asked));
                }
            }
        }
    }
}
