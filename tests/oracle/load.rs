//! From a case's objects to the snapshot wattlane makes of them. Shared with the measurements of loadtest/.

use std::sync::Arc;

use wattlane::convert::{self, Object};
use wattlane::index::{Change, Index};
use wattlane::model::{Classified, Classifier, Device, Labels, Name, Pod, WattOrigin};
use wattlane::snapshot::Snapshot;

use super::case::Case;

/// No device has a wattage class, so that the one-class rule, which Kubernetes does not know, never bites.
struct NoClasses;

impl Classifier for NoClasses {
    fn classify(&self, _: &Name, _: &Device, _: &Labels, _: &Labels) -> Classified {
        Classified {
            class: None,
            watts: None,
            origin: WattOrigin::Unknown,
            board: None,
        }
    }
}

/// The snapshot wattlane makes of a case, and the pod.
pub(crate) fn load(case: &Case) -> (Arc<Snapshot>, Pod) {
    let mut index = Index::new(Arc::new(NoClasses));
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
