//! From a case's objects to the snapshot wattlane makes of them. Shared with the measurements of loadtest/.

use std::sync::Arc;

use wattlane::convert::{self, Object};
use wattlane::index::{Change, Index};
use wattlane::model::{Pod, Unclassified};
use wattlane::snapshot::Snapshot;

use super::case::Case;

/// The snapshot wattlane makes of a case, and the pod.
pub(crate) fn load(case: &Case) -> (Arc<Snapshot>, Pod) {
    let mut index = Index::new(Arc::new(Unclassified));
    let mut pod = None;
    for value in case.objects() {
        let object = convert::object(&value)
            .unwrap_or_else(|e| panic!("{e:?} in {value}"))
            .unwrap_or_else(|| panic!("unknown kind: {value}"));
        if let Object::Pod(p) = &object {
            pod = Some(p.clone());
        }
        index.apply(Change::Upsert(object));
    }
    (
        index.publish().expect("something changed"),
        pod.expect("a case has a pod"),
    )
}
