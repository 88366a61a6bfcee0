//! The Secret and the webhook configuration as JSON: what of them is ours to read and to write.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use serde_json::{Map, Value, json};

use crate::certs::keyring::{BUNDLE, Data, Keyring};
use crate::certs::trust;
use crate::model::NamespacedName;

/// Two who write the same content would undo each other's work for ever.
const CERT_MANAGER: &str = "cert-manager.io/";

pub(super) fn new_secret(key: &NamespacedName) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"namespace": key.namespace, "name": key.name}})
}

/// # Errors
/// Somebody else keeps this Secret.
pub(super) fn ours(secret: Value) -> Result<Value, String> {
    match foreign(&secret) {
        None => Ok(secret),
        Some(by) => Err(format!(
            "Secret {}/{} has the annotation {by}: cert-manager keeps it; use another one, or --tls-cert and --tls-key",
            secret["metadata"]["namespace"].as_str().unwrap_or_default(),
            secret["metadata"]["name"].as_str().unwrap_or_default()
        )),
    }
}

fn foreign(object: &Value) -> Option<&String> {
    let annotations = object["metadata"]["annotations"].as_object()?;
    annotations.keys().find(|k| k.starts_with(CERT_MANAGER))
}

/// The content of a Secret, decoded. What is not base64 is as if it were garbled otherwise.
pub fn data(secret: &Value) -> Data {
    let fields = secret["data"].as_object();
    let decode = |v: &Value| STANDARD.decode(v.as_str().unwrap_or_default()).unwrap_or_default();
    fields
        .into_iter()
        .flatten()
        .map(|(k, v)| (k.clone(), decode(v)))
        .collect()
}

/// The content with our part of it replaced.
pub(super) fn with(found: &Data, ring: &Data) -> Data {
    let mut all = found.clone();
    all.retain(|name, _| !Keyring::names().contains(&name.as_str()));
    all.extend(ring.clone());
    all
}

pub(super) fn with_data(secret: &Value, data: &Data) -> Value {
    let data: Map<_, _> = data
        .iter()
        .map(|(k, v)| (k.clone(), STANDARD.encode(v).into()))
        .collect();
    let mut secret = secret.clone();
    secret["data"] = Value::Object(data);
    secret
}

/// Who is trusted by each webhook.
pub(super) fn published(webhooks: &Value) -> Vec<Vec<CertificateDer<'static>>> {
    let Some(all) = webhooks["webhooks"].as_array() else {
        // It could not be read: nobody is known to be trusted.
        return vec![vec![]];
    };
    all.iter()
        .map(|hook| trust::authorities(&STANDARD.decode(bundle_of(hook)).unwrap_or_default()))
        .collect()
}

/// Who is trusted by the owner of a client Secret.
pub(super) fn known_to(secret: &Value) -> Vec<CertificateDer<'static>> {
    trust::authorities(data(secret).get(BUNDLE).map(Vec::as_slice).unwrap_or_default())
}

/// What makes the caBundle of every webhook this one, if it is not. With the resourceVersion, so that the positions in it
/// are those that were read.
///
/// # Errors
/// Somebody else keeps the caBundle.
pub(super) fn patch(webhooks: &Value, bundle: &str) -> Result<Option<Value>, String> {
    if let Some(by) = foreign(webhooks) {
        return Err(format!(
            "the webhook configuration has the annotation {by}: cert-manager keeps its caBundle; remove the annotation, or \
             use --tls-cert and --tls-key"
        ));
    }
    let bundle = STANDARD.encode(bundle);
    let version = &webhooks["metadata"]["resourceVersion"];
    let mut patch = vec![json!({"op": "add", "path": "/metadata/resourceVersion", "value": version})];
    for (at, hook) in webhooks["webhooks"].as_array().into_iter().flatten().enumerate() {
        if bundle_of(hook) != bundle {
            patch.push(json!({"op": "test", "path": format!("/webhooks/{at}/name"), "value": hook["name"]}));
            patch.push(json!({"op": "add", "path": format!("/webhooks/{at}/clientConfig/caBundle"), "value": bundle}));
        }
    }
    Ok((patch.len() > 1).then(|| patch.into()))
}

fn bundle_of(hook: &Value) -> &str {
    hook["clientConfig"]["caBundle"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hooks(bundles: &[&str]) -> Value {
        let hooks: Vec<_> = bundles
            .iter()
            .map(|b| json!({"name": "a", "clientConfig": {"url": "https://x", "caBundle": b}}))
            .collect();
        json!({"metadata": {"name": "wattlane", "resourceVersion": "7"}, "webhooks": hooks})
    }

    #[test]
    fn only_bundles_that_differ_are_patched() {
        let bundle = STANDARD.encode("CA");
        assert_eq!(patch(&hooks(&[&bundle]), "CA"), Ok(None));
        let found = hooks(&["", &bundle, "b2xk"]);
        let patched = patch(&found, "CA").expect("ours").expect("differs");
        let mut after = found.clone();
        let patched: json_patch::Patch = serde_json::from_value(patched).expect("RFC 6902");
        json_patch::patch(&mut after, &patched).expect("applies");
        assert_eq!(after, hooks(&[bundle.as_str(); 3]));
    }

    #[test]
    fn what_cert_manager_keeps_is_left_alone() {
        let mut found = hooks(&[""]);
        found["metadata"]["annotations"] = json!({"cert-manager.io/inject-ca-from": "a/b"});
        assert!(patch(&found, "CA").expect_err("not ours").contains("inject-ca-from"));
        let mut secret = new_secret(&NamespacedName::new("ns", "s"));
        assert!(ours(secret.clone()).is_ok());
        secret["metadata"]["annotations"] = json!({"cert-manager.io/certificate-name": "c"});
        assert!(ours(secret).expect_err("not ours").contains("Secret ns/s"));
    }

    #[test]
    fn keys_of_others_in_the_secret_stay() {
        let found = Data::from([("theirs".into(), vec![1]), ("tls.crt".into(), vec![2])]);
        let ring = Data::from([("ca.crt".into(), vec![3])]);
        let wanted = with(&found, &ring);
        assert_eq!(
            wanted,
            Data::from([("theirs".into(), vec![1]), ("ca.crt".into(), vec![3])])
        );
        assert_eq!(data(&with_data(&json!({}), &wanted)), wanted);
        assert_eq!(
            data(&json!({"data": {"tls.crt": "no base64!"}})),
            Data::from([("tls.crt".into(), vec![])])
        );
    }
}
