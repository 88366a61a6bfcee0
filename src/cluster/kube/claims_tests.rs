//! The sequences of calls, against one claim and one pod behind a service that keeps resourceVersions as the API does.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::api::Api;
use super::{body, claims, templates};
use crate::cluster::WriteError;
use crate::convert::{self, TEMPLATE_LAST_USED};
use crate::model::{Allocation, Claim, Consumer, DeviceId, DeviceResult, NamespacedName};

#[derive(Default)]
struct Store {
    claim: Option<Value>,
    pod: Option<Value>,
    template: Option<Value>,
    /// What somebody else makes of that name just before our own arrives.
    rival: Option<Value>,
    /// Method and last part of the path of each call.
    calls: Vec<String>,
    /// Changes the claim behind the caller's back after this many more GETs.
    meddle: u32,
    /// Who adds itself to the claim by that.
    joins: Option<Value>,
}

impl Store {
    fn answer(&mut self, method: &str, path: &str, sent: &Value) -> (u16, Value) {
        let last = path.rsplit('/').next().unwrap_or("").split('?').next().unwrap_or("");
        self.calls.push(format!("{method} {last}"));
        match (method, last) {
            ("GET", "c") => {
                let found = self.claim.clone();
                if self.meddle > 0 {
                    self.meddle -= 1;
                    let users = self
                        .claim
                        .as_mut()
                        .and_then(|c| c["status"]["reservedFor"].as_array_mut());
                    if let Some(users) = users {
                        users.extend(self.joins.take());
                    }
                    self.bump();
                }
                or_404(found)
            }
            ("PUT", "c" | "status") => {
                let Some(stored) = &mut self.claim else {
                    return or_404(None);
                };
                if body::meta(stored, "resourceVersion") != body::meta(sent, "resourceVersion") {
                    return (409, json!({"message": "the object has been modified"}));
                }
                // As the API: the one endpoint drops the status, the other everything else.
                if last == "status" {
                    stored["status"] = sent["status"].clone();
                } else {
                    stored["metadata"] = sent["metadata"].clone();
                }
                self.bump();
                or_404(self.claim.clone())
            }
            // What a strategic merge patch of finalizers does.
            ("PATCH", "c") => {
                let Some(stored) = &mut self.claim else {
                    return or_404(None);
                };
                let same = |field| body::meta(stored, field) == body::meta(sent, field);
                if !same("resourceVersion") || !same("uid") {
                    return (409, json!({"message": "the object has been modified"}));
                }
                let mut all = stored["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
                let new = sent["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
                all.extend(new);
                stored["metadata"]["finalizers"] = all.into();
                self.bump();
                or_404(self.claim.clone())
            }
            ("GET", "p") => or_404(self.pod.clone()),
            ("POST", "binding") => {
                let Some(pod) = &mut self.pod else { return or_404(None) };
                if body::meta(pod, "uid") != body::meta(sent, "uid") || !pod["spec"]["nodeName"].is_null() {
                    return (409, json!({"message": "conflict"}));
                }
                pod["spec"]["nodeName"] = sent["target"]["name"].clone();
                (201, json!({"status": "Success"}))
            }
            ("GET", "t") => or_404(self.template.clone()),
            ("PATCH", "t") if sent["kind"].is_null() => {
                let Some(stored) = &mut self.template else {
                    return or_404(None);
                };
                if body::meta(stored, "resourceVersion") != body::meta(sent, "resourceVersion") {
                    return (409, json!({"message": "the object has been modified"}));
                }
                stored["metadata"]["annotations"] = sent["metadata"]["annotations"].clone();
                or_404(self.template.clone())
            }
            ("PATCH", "t") if self.rival.is_some() => {
                self.template = self.rival.take();
                (409, json!({"message": "Apply failed with 1 conflict"}))
            }
            ("PATCH", "t") => {
                self.template = Some(sent.clone());
                (201, sent.clone())
            }
            ("DELETE", "t") => {
                let Some(stored) = &self.template else {
                    return or_404(None);
                };
                if body::meta(stored, "resourceVersion") != sent["preconditions"]["resourceVersion"] {
                    return (409, json!({"message": "the object has been modified"}));
                }
                self.template = None;
                (200, json!({"status": "Success"}))
            }
            // Two pages: the pod is on the second.
            ("GET", "pods") if !path.contains("continue=") => (
                200,
                json!({"metadata": {"continue": "e30="}, "items": [{"metadata": {"name": "other"}}]}),
            ),
            ("GET", "pods") => (
                200,
                json!({"metadata": {}, "items": self.pod.iter().collect::<Vec<_>>()}),
            ),
            other => (500, json!({"message": format!("not expected: {other:?}")})),
        }
    }

    fn bump(&mut self) {
        if let Some(claim) = &mut self.claim {
            let version: u32 = body::meta(claim, "resourceVersion").parse().unwrap_or(0);
            claim["metadata"]["resourceVersion"] = json!((version + 1).to_string());
        }
    }
}

fn or_404(found: Option<Value>) -> (u16, Value) {
    found.map_or((404, json!({"message": "not found"})), |v| (200, v))
}

fn serve(store: Store) -> (Api, Arc<Mutex<Store>>) {
    let store = Arc::new(Mutex::new(store));
    let served = store.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let store = served.clone();
        async move {
            let (parts, sent) = request.into_parts();
            let sent = sent.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
            let sent = serde_json::from_slice(&sent).unwrap_or(Value::Null);
            let uri = parts.uri.to_string();
            let (status, answer) = store
                .lock()
                .expect("not poisoned")
                .answer(parts.method.as_str(), &uri, &sent);
            let response = http::Response::builder().status(status);
            Ok::<_, Infallible>(
                response
                    .body(Body::from(answer.to_string().into_bytes()))
                    .expect("legal"),
            )
        }
    });
    (
        Api::new(Client::new(service, "default"), Duration::from_secs(10)),
        store,
    )
}

fn stored_claim() -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "7", "newer": 1},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
    })
}

fn with_claim() -> Store {
    Store {
        claim: Some(stored_claim()),
        ..Store::default()
    }
}

fn known() -> Claim {
    convert::claim(&stored_claim()).expect("a claim")
}

fn consumer(name: &str) -> Consumer {
    Consumer {
        resource: "pods".into(),
        name: name.into(),
        uid: format!("uid-of-{name}").into(),
    }
}

fn allocation() -> Allocation {
    let result = DeviceResult {
        request: "gpu".into(),
        id: DeviceId {
            driver: "gpu.nvidia.com".into(),
            pool: "n".into(),
            device: "gpu-0".into(),
        },
        ..DeviceResult::default()
    };
    Allocation {
        results: vec![result],
        config: vec![],
        node_selector: None,
    }
}

fn calls(store: &Arc<Mutex<Store>>) -> Vec<String> {
    std::mem::take(&mut store.lock().expect("not poisoned").calls)
}

#[tokio::test(start_paused = true)]
async fn allocate_then_undo_leaves_the_claim_as_it_was() {
    let (api, store) = serve(with_claim());
    let written = claims::allocate(&api, &known(), &allocation(), &consumer("p"))
        .await
        .expect("written");
    assert_eq!(calls(&store), ["PATCH c", "PUT status"]);
    assert_eq!(
        written.allocation.as_ref().map(|a| a.results.clone()),
        Some(allocation().results)
    );
    assert_eq!(written.reserved_for, [consumer("p")]);
    {
        let store = store.lock().expect("not poisoned");
        let claim = store.claim.as_ref().expect("there");
        assert_eq!(claim["metadata"]["finalizers"], json!([crate::model::FINALIZER]));
        assert_eq!(claim["metadata"]["newer"], 1);
        let time = claim["status"]["allocation"]["allocationTimestamp"]
            .as_str()
            .unwrap_or("");
        assert!(
            time.ends_with('Z') && time.len() == "2026-11-29T16:00:00Z".len(),
            "{time}"
        );
    }
    // The same pod again: nothing to write.
    assert_eq!(
        claims::reserve(&api, &written, &consumer("p"), None).await,
        Ok(written.clone())
    );
    assert_eq!(calls(&store), ["GET c"]);

    let key = NamespacedName::new("ns", "c");
    for _ in 0..2 {
        assert_eq!(claims::unreserve(&api, &key, "u", &consumer("p"), true).await, Ok(()));
    }
    assert_eq!(
        calls(&store),
        ["GET c", "PUT status", "GET c", "PUT c", "GET c", "GET c"]
    );
    let mut now = store.lock().expect("not poisoned").claim.clone().expect("there");
    assert_eq!(now["metadata"]["finalizers"], json!([]));
    assert_eq!(now["status"], json!({}));
    for key in ["finalizers", "resourceVersion"] {
        now["metadata"].as_object_mut().expect("a map").remove(key);
    }
    now.as_object_mut().expect("a map").remove("status");
    let mut before = stored_claim();
    before["metadata"]
        .as_object_mut()
        .expect("a map")
        .remove("resourceVersion");
    assert_eq!(now, before);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_is_there_is_not_written_again() {
    let mut store = with_claim();
    store.claim.as_mut().expect("there")["metadata"]["finalizers"] = json!(["other", crate::model::FINALIZER]);
    let known = convert::claim(store.claim.as_ref().expect("there")).expect("a claim");
    let (api, store) = serve(store);
    let written = claims::allocate(&api, &known, &allocation(), &consumer("p")).await;
    assert!(written.is_ok(), "{written:?}");
    assert_eq!(calls(&store), ["GET c", "PUT status"]);
}

#[tokio::test(start_paused = true)]
async fn another_version_or_another_object_is_not_written_to() {
    let mut store = with_claim();
    store.bump();
    let (api, store) = serve(store);
    let result = claims::allocate(&api, &known(), &allocation(), &consumer("p")).await;
    assert!(matches!(result, Err(WriteError::Conflict(_))), "{result:?}");
    let other = Claim {
        uid: "other".into(),
        ..known()
    };
    let result = claims::allocate(&api, &other, &allocation(), &consumer("p")).await;
    assert!(matches!(result, Err(WriteError::Conflict(_))), "{result:?}");
    // One that has the finalizer is read before it is written.
    let protected = |claim: Claim| Claim {
        protected: true,
        ..claim
    };
    let result = claims::allocate(&api, &protected(known()), &allocation(), &consumer("p")).await;
    assert!(matches!(result, Err(WriteError::Conflict(_))), "{result:?}");
    let result = claims::allocate(&api, &protected(other), &allocation(), &consumer("p")).await;
    assert!(matches!(result, Err(WriteError::NotFound(_))), "{result:?}");
    assert_eq!(
        claims::unreserve(&api, &known().key, "other", &consumer("p"), true).await,
        Ok(())
    );
    assert_eq!(calls(&store), ["PATCH c", "PATCH c", "GET c", "GET c", "GET c"]);
}

#[tokio::test(start_paused = true)]
async fn undo_and_reserve_look_again_after_a_conflict_but_not_for_ever() {
    let (api, store) = serve(with_claim());
    let written = claims::allocate(&api, &known(), &allocation(), &consumer("p"))
        .await
        .expect("written");
    store.lock().expect("not poisoned").meddle = 2;
    let shared = claims::reserve(&api, &written, &consumer("q"), None)
        .await
        .expect("in the end");
    assert_eq!(shared.reserved_for, [consumer("p"), consumer("q")]);
    store.lock().expect("not poisoned").meddle = 2;
    let key = NamespacedName::new("ns", "c");
    assert_eq!(claims::unreserve(&api, &key, "u", &consumer("p"), true).await, Ok(()));
    let now = claims::claim(&api, &key).await.expect("there").expect("there");
    assert!(now.allocation.is_some(), "q still uses it");
    assert_eq!(now.reserved_for, [consumer("q")]);
    store.lock().expect("not poisoned").meddle = u32::MAX;
    let result = claims::unreserve(&api, &key, "u", &consumer("q"), true).await;
    assert!(matches!(result, Err(WriteError::Conflict(_))), "{result:?}");
}

/// The API has no rule for it: the claim as it is read, and its version, are all that keeps one pod too many out.
#[tokio::test(start_paused = true)]
async fn reserve_gives_no_slot_beyond_the_last() {
    let (api, store) = serve(with_claim());
    let written = claims::allocate(&api, &known(), &allocation(), &consumer("p"))
        .await
        .expect("written");
    let no = |result: Result<Claim, WriteError>| {
        let Err(WriteError::Conflict(why)) = result else {
            panic!("{result:?}")
        };
        assert_eq!(why, "all slots of ResourceClaim ns/c are taken");
    };
    calls(&store);
    no(claims::reserve(&api, &written, &consumer("q"), Some(1)).await);
    assert_eq!(calls(&store), ["GET c"], "nothing is written");
    // Who has one keeps it, however few there are.
    let mine = claims::reserve(&api, &written, &consumer("p"), Some(1)).await;
    assert!(mine.is_ok(), "{mine:?}");
    let two = claims::reserve(&api, &written, &consumer("q"), Some(2)).await;
    let two = two.expect("the second");
    no(claims::reserve(&api, &two, &consumer("r"), Some(2)).await);
    // One was free when it was read, and another pod had it before the write.
    let rival = consumer("rival");
    {
        let mut store = store.lock().expect("not poisoned");
        store.meddle = 1;
        store.joins = Some(json!({"resource": "pods", "name": rival.name, "uid": rival.uid}));
    }
    no(claims::reserve(&api, &two, &consumer("r"), Some(3)).await);
    let now = claims::claim(&api, &known().key).await.expect("there").expect("there");
    assert_eq!(now.reserved_for, [consumer("p"), consumer("q"), rival]);
}

/// Between placement and this call the claim was freed, and perhaps given again.
#[tokio::test(start_paused = true)]
async fn reserve_wants_the_devices_the_pod_was_placed_on() {
    let (api, _) = serve(with_claim());
    let placed = Claim {
        allocation: Some(Arc::new(allocation())),
        ..known()
    };
    let result = claims::reserve(&api, &placed, &consumer("p"), None).await;
    assert!(matches!(result, Err(WriteError::Conflict(_))), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bound_pod_is_a_success_on_its_node_only() {
    let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {}});
    let (api, _) = serve(Store {
        pod: Some(pod),
        ..Store::default()
    });
    let key = NamespacedName::new("ns", "p");
    assert_eq!(claims::bind(&api, &key, "u", "n1").await, Ok(()));
    assert_eq!(claims::bind(&api, &key, "u", "n1").await, Ok(()));
    assert!(matches!(
        claims::bind(&api, &key, "u", "n2").await,
        Err(WriteError::Conflict(_))
    ));
    assert!(matches!(
        claims::bind(&api, &key, "v", "n1").await,
        Err(WriteError::NotFound(_))
    ));
    let (api, _) = serve(Store::default());
    assert!(matches!(
        claims::bind(&api, &key, "u", "n1").await,
        Err(WriteError::NotFound(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_template_is_applied_once() {
    let (api, store) = serve(Store::default());
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "ns", "labels": {"app.kubernetes.io/managed-by": "wattlane"}},
        "spec": {"spec": {"devices": {"requests": []}}},
    });
    assert_eq!(templates::ensure(&api, &template).await, Ok(()));
    assert_eq!(templates::ensure(&api, &template).await, Ok(()));
    assert_eq!(calls(&store), ["GET t", "PATCH t", "GET t"]);
}

fn used_at(time: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "ns", "uid": "u", "resourceVersion": "4",
            "labels": {"app.kubernetes.io/managed-by": "wattlane"}, "annotations": {TEMPLATE_LAST_USED: time}},
        "spec": {"spec": {"devices": {"requests": []}}},
    })
}

#[tokio::test(start_paused = true)]
async fn of_two_who_make_a_template_at_once_both_use_the_one() {
    let wanted = used_at("2026-01-01T12:00:00Z");
    let (api, store) = serve(Store {
        rival: Some(used_at("2026-01-01T11:59:59Z")),
        ..Store::default()
    });
    assert_eq!(templates::ensure(&api, &wanted).await, Ok(()));
    assert_eq!(calls(&store), ["GET t", "PATCH t", "GET t"]);

    let mut other = used_at("2026-01-01T11:59:59Z");
    other["spec"]["spec"]["devices"]["requests"] = json!([{"name": "x", "exactly": {"deviceClassName": "y"}}]);
    let (api, _) = serve(Store {
        rival: Some(other),
        ..Store::default()
    });
    assert!(matches!(
        templates::ensure(&api, &wanted).await,
        Err(WriteError::Refused(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn the_use_of_a_template_is_noted_when_that_is_due() {
    let wanted = used_at("2026-01-01T12:00:00Z");
    let (api, store) = serve(Store {
        template: Some(used_at("2026-01-01T11:30:01Z")),
        ..Store::default()
    });
    assert_eq!(templates::ensure(&api, &wanted).await, Ok(()));
    assert_eq!(calls(&store), ["GET t"]);

    let (api, store) = serve(Store {
        template: Some(used_at("2026-01-01T11:30:00Z")),
        ..Store::default()
    });
    assert_eq!(templates::ensure(&api, &wanted).await, Ok(()));
    assert_eq!(calls(&store), ["GET t", "PATCH t"]);
    let stored = store.lock().expect("not poisoned").template.clone();
    assert_eq!(stored, Some(wanted.clone()), "nothing but the note has changed");

    // One that goes is not answered with.
    let mut going = used_at("2026-01-01T12:00:00Z");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:00:00Z");
    let (api, _) = serve(Store {
        template: Some(going),
        ..Store::default()
    });
    assert!(matches!(
        templates::ensure(&api, &wanted).await,
        Err(WriteError::Conflict(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_template_is_removed_as_it_was_seen_and_only_if_no_pod_names_it() {
    let seen = convert::template(&used_at("2026-01-01T11:30:00Z")).expect("readable");
    let store = |pod: Option<Value>| Store {
        template: Some(used_at("2026-01-01T11:30:00Z")),
        pod,
        ..Store::default()
    };
    // Whatever else is in the pod that `convert` would not read.
    let pod = |template: &str| {
        let claims = json!([{"name": "x", "later": {}}, {"name": "gpu", "resourceClaimTemplateName": template}]);
        Some(json!({"metadata": {"name": "p"}, "spec": {"resourceClaims": claims}}))
    };
    let (api, of) = serve(store(pod("another")));
    assert_eq!(templates::remove(&api, &seen).await, Ok(()));
    assert_eq!(calls(&of), ["GET pods", "GET pods", "DELETE t"]);
    assert_eq!(templates::remove(&api, &seen).await, Ok(()), "it is gone already");

    let (api, of) = serve(store(pod("t")));
    assert!(matches!(
        templates::remove(&api, &seen).await,
        Err(WriteError::Conflict(_))
    ));
    assert_eq!(calls(&of), ["GET pods", "GET pods"]);

    let mut older = seen.clone();
    older.resource_version = "3".into();
    let (api, of) = serve(store(None));
    assert!(matches!(
        templates::remove(&api, &older).await,
        Err(WriteError::Conflict(_))
    ));
    assert!(of.lock().expect("not poisoned").template.is_some());
}
