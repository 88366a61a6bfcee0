//! The Secret and the webhook configuration as JSON: what of them is ours to read and to write.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use serde_json::{Map, Value, json};

use crate::certs::keyring::{BUNDLE, Data, Keyring};
use crate::certs::{Token, trust};
use crate::model::NamespacedName;
use crate::server::{ADMISSION, ending};

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

/// What follows the path of admission in the address of each webhook. None: one of them leads somewhere else, as through a
/// proxy that knows this path and no other.
pub(super) fn endings(webhooks: &Value) -> Option<Vec<String>> {
    let all = webhooks["webhooks"].as_array().into_iter().flatten();
    all.map(|hook| ending(address(hook).path).map(str::to_owned)).collect()
}

/// Where a webhook is asked.
struct Address<'a> {
    /// Of `clientConfig`, where the path stands.
    field: &'static str,
    /// In front of the path, in the same text.
    before: &'a str,
    path: &'a str,
}

fn address(hook: &Value) -> Address<'_> {
    let config = &hook["clientConfig"];
    let (field, text) = match config["url"].as_str() {
        Some(url) => ("url", url),
        None => ("service/path", config["service"]["path"].as_str().unwrap_or_default()),
    };
    let host = match field {
        "url" => text.find("://").map_or(0, |at| at + 3),
        _ => 0,
    };
    let end = text[host..].find('/').map_or(text.len(), |at| host + at);
    Address {
        field,
        before: &text[..end],
        path: &text[end..],
    }
}

/// A change of the webhook configuration.
#[derive(Debug, PartialEq)]
pub(super) struct Change {
    /// RFC 6902.
    pub(super) patch: Value,
    pub(super) bundle: bool,
    pub(super) path: bool,
}

/// What makes the caBundle of every webhook this one and lets its path end in this token, if it is not so. With the
/// resourceVersion, so that the positions in it are those that were read.
///
/// # Errors
/// Somebody else keeps the caBundle.
pub(super) fn change(webhooks: &Value, bundle: &str, token: Option<&Token>) -> Result<Option<Change>, String> {
    if let Some(by) = foreign(webhooks) {
        return Err(format!(
            "the webhook configuration has the annotation {by}: cert-manager keeps its caBundle; remove the annotation, or \
             use --tls-cert and --tls-key"
        ));
    }
    let bundle = STANDARD.encode(bundle);
    // One that leads somewhere else would not be closed by the others.
    let token = token.filter(|_| endings(webhooks).is_some());
    let version = &webhooks["metadata"]["resourceVersion"];
    let mut patch = vec![json!({"op": "add", "path": "/metadata/resourceVersion", "value": version})];
    let mut change = Change {
        patch: Value::Null,
        bundle: false,
        path: false,
    };
    for (at, hook) in webhooks["webhooks"].as_array().into_iter().flatten().enumerate() {
        let mut puts = vec![];
        if bundle_of(hook) != bundle {
            puts.push(("caBundle", bundle.clone()));
            change.bundle = true;
        }
        let address = address(hook);
        if let Some(token) = token.filter(|t| ending(address.path) != Some(t.as_str())) {
            puts.push((
                address.field,
                format!("{}{ADMISSION}/{}", address.before, token.as_str()),
            ));
            change.path = true;
        }
        if !puts.is_empty() {
            patch.push(json!({"op": "test", "path": format!("/webhooks/{at}/name"), "value": hook["name"]}));
        }
        for (field, value) in puts {
            let path = format!("/webhooks/{at}/clientConfig/{field}");
            patch.push(json!({"op": "add", "path": path, "value": value}));
        }
    }
    change.patch = patch.into();
    Ok((change.bundle || change.path).then_some(change))
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

    fn after(found: &Value, change: Change) -> Value {
        let mut after = found.clone();
        let patch: json_patch::Patch = serde_json::from_value(change.patch).expect("RFC 6902");
        json_patch::patch(&mut after, &patch).expect("applies");
        after
    }

    #[test]
    fn only_bundles_that_differ_are_patched() {
        let bundle = STANDARD.encode("CA");
        assert_eq!(change(&hooks(&[&bundle]), "CA", None), Ok(None));
        let found = hooks(&["", &bundle, "b2xk"]);
        let patched = change(&found, "CA", None).expect("ours").expect("differs");
        assert!(patched.bundle && !patched.path);
        assert_eq!(after(&found, patched), hooks(&[bundle.as_str(); 3]));
    }

    #[test]
    fn every_path_is_made_to_end_in_the_token_and_nothing_else_of_it_changes() {
        let token = Token::new().expect("random");
        let bundle = STANDARD.encode("CA");
        let full = format!("/admission/mutate/{}", token.as_str());
        let old = format!("/admission/mutate/{}", Token::new().expect("random").as_str());
        let hook = |config: Value| {
            let mut config = config;
            config["caBundle"] = bundle.clone().into();
            json!({"metadata": {"resourceVersion": "7"}, "webhooks": [{"name": "a", "clientConfig": config}]})
        };
        for path in [None, Some(""), Some("/"), Some("/admission/mutate"), Some(&*old)] {
            let url = |path: &str| hook(json!({"url": format!("https://[::1]:8443{path}")}));
            let service = |path: Option<&str>| match path {
                None => hook(json!({"service": {"name": "w", "namespace": "ns"}})),
                Some(path) => hook(json!({"service": {"name": "w", "namespace": "ns", "path": path}})),
            };
            for (found, wanted) in [
                (url(path.unwrap_or_default()), url(&full)),
                (service(path), service(Some(&full))),
            ] {
                let patched = change(&found, "CA", Some(&token)).expect("ours").expect("differs");
                assert!(patched.path && !patched.bundle);
                assert_eq!(endings(&found).map(|e| e.len()), Some(1));
                assert_eq!(after(&found, patched), wanted);
                assert_eq!(change(&wanted, "CA", Some(&token)), Ok(None));
                assert_eq!(endings(&wanted), Some(vec![token.as_str().to_owned()]));
            }
        }
        // Not ours to change, and then nothing is closed.
        let proxied = hook(json!({"url": "https://gateway/wattlane/admission/mutate"}));
        assert_eq!(
            (change(&proxied, "CA", Some(&token)), endings(&proxied)),
            (Ok(None), None)
        );
    }

    #[test]
    fn what_cert_manager_keeps_is_left_alone() {
        let mut found = hooks(&[""]);
        found["metadata"]["annotations"] = json!({"cert-manager.io/inject-ca-from": "a/b"});
        assert!(
            change(&found, "CA", None)
                .expect_err("not ours")
                .contains("inject-ca-from")
        );
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
