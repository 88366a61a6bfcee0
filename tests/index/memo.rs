//! What is remembered of nodes is what placement would say anew, whatever happened to the cluster in between.

use proptest::prelude::*;
use serde_json::json;
use wattlane::convert;
use wattlane::model::Pod;
use wattlane::placement::{self, Context, Demand, Fitting, Memo, Rules, Topology};
use wattlane::selector::Selectors;

use super::property::{Expected, NODES, Op, op, step};
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

/// Pods of another node that want two cards each: from them it is known what pods ask for, and what is left of a node has a
/// price.
fn others(index: &mut wattlane::index::Index) {
    for i in 0..9 {
        let name = format!("other-{i}");
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ask", "uid": name},
            "spec": {"nodeName": "elsewhere", "containers": [{"name": "c", "resources": {"requests": {"cpu": 1}}}],
                "resourceClaims": [{"name": "c", "resourceClaimName": "ask-1"}]}});
        upsert(index, &pod);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_remembered_is_what_is_so(ops in prop::collection::vec((op(), prop::option::of(0..4_usize)), 1..40)) {
        let (mut index, mut expected, selectors) = (index(), Expected::default(), Selectors::new());
        let pods = asks(&mut index);
        others(&mut index);
        // Something is there from the start: whole cards on nodes of a class.
        for (i, name) in NODES.iter().enumerate() {
            let mut named = node(name, json!({"sort": "a"}));
            named["status"] = json!({"allocatable": {"cpu": 2 + 2 * i, "memory": "8Gi"}});
            step(&mut index, &mut expected, Op::Upsert(object(&named)))?;
            let cards = slice(&format!("s{i}"), &format!("p{i}"), 1, 1, json!({"nodeName": name}), plain(&["d0", "d1", "d2"]));
            step(&mut index, &mut expected, Op::Upsert(object(&cards)))?;
        }
        let topology = |topology| Rules { topology, ..Rules::default() };
        let spread = Rules { spread: true, ..Rules::default() };
        let mixed = Rules { mix_classes: true, ..Rules::default() };
        let policies = [topology(Topology::Preferred), topology(Topology::None), spread, mixed];
        let mut memo = Memo::default();
        let mut snapshots = vec![];
        for (op, look) in ops {
            step(&mut index, &mut expected, op)?;
            // A relist may have forgotten them and their claims.
            asks(&mut index);
            others(&mut index);
            snapshots.extend(index.publish());
            // Policy is another one now and then.
            let Some(rules) = look.map(|at| &policies[at]) else {
                continue;
            };
            // The newest, and an older one, as by a request that took its time.
            for snapshot in snapshots.iter().rev().step_by(3).take(2) {
                memo.renew(snapshot);
                for pod in &pods {
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
