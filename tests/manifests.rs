//! What the manifests say of certificates fits together: names, mounts, rights and arguments, in each of the three ways.
//! The API server's own opinion of manifests/base is in tests/e2e.

use std::path::Path;

use serde_json::{Value, json};

fn documents(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{file}: {e}"));
    serde_saphyr::from_str_multiple(&text).unwrap_or_else(|e| panic!("{file}: {e}"))
}

fn one<'d>(documents: &'d [Value], kind: &str, name: &str) -> &'d Value {
    let found = documents
        .iter()
        .find(|d| d["kind"] == kind && d["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// The Secrets a Deployment mounts.
fn mounted(deployment: &Value) -> Vec<&str> {
    let volumes = deployment["spec"]["template"]["spec"]["volumes"].as_array();
    let secrets = volumes
        .into_iter()
        .flatten()
        .filter_map(|v| v["secret"]["secretName"].as_str());
    secrets.collect()
}

/// The Deployment, and the names by which its TLS port is reached.
fn service() -> (Value, [String; 2]) {
    let all = documents("base/wattlane.yaml");
    let names = ["wattlane", "wattlane-extender"];
    for name in names {
        one(&all, "Service", name);
    }
    let wattlane = one(&all, "Deployment", "wattlane").clone();
    (wattlane, names.map(|name| format!("{name}.wattlane-system.svc")))
}

#[test]
fn what_wattlane_keeps_it_may_read_and_write_and_nothing_else_of_the_kind() {
    let (wattlane, _) = service();
    let certs = documents("base/certs.yaml");
    let args = &wattlane["spec"]["template"]["spec"]["containers"][0]["args"];
    let kept: Vec<_> = texts(args)
        .into_iter()
        .filter_map(|a| {
            a.strip_prefix("--tls-secret=")
                .or(a.strip_prefix("--tls-client-secret="))
        })
        .filter_map(|a| a.strip_prefix("wattlane-system/"))
        .collect();
    assert_eq!(kept.len(), 2, "{args}");
    let role = &one(&certs, "Role", "wattlane-certs")["rules"];
    let rule =
        json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": kept, "verbs": ["get", "update"]}]);
    assert_eq!(role, &rule);
    for name in &kept {
        let secret = one(&certs, "Secret", name);
        assert!(
            secret["data"].is_null() && secret["stringData"].is_null(),
            "{name} is not empty"
        );
    }
    let hook = &documents("base/webhook.yaml")[0];
    let rule = json!([{"apiGroups": ["admissionregistration.k8s.io"], "resources": ["mutatingwebhookconfigurations"],
        "resourceNames": [hook["metadata"]["name"]], "verbs": ["get", "patch"]}]);
    assert_eq!(one(&certs, "ClusterRole", "wattlane-ca-bundle")["rules"], rule);
    // Applying the manifest again must take neither the bundle nor the token away.
    let config = &hook["webhooks"][0]["clientConfig"];
    assert!(config["caBundle"].is_null() && config["service"]["path"].is_null());
    let scheduler = documents("base/scheduler.yaml");
    assert_eq!(mounted(one(&scheduler, "Deployment", "wattlane-scheduler")), [kept[1]]);
    assert!(mounted(&wattlane).is_empty(), "read from the API, not from files");
}

/// The patch of manifests/mounted as kustomize applies it.
fn with_files() -> Value {
    let (mut wattlane, _) = service();
    let patch: json_patch::Patch =
        serde_json::from_value(documents("mounted/deployment.yaml").remove(0)).expect("RFC 6902");
    json_patch::patch(&mut wattlane, &patch).expect("it fits manifests/base");
    wattlane
}

#[test]
fn mounted_certificates_are_the_files_of_the_arguments() {
    let wattlane = with_files();
    assert_eq!(mounted(&wattlane), ["wattlane-tls"]);
    let container = &wattlane["spec"]["template"]["spec"]["containers"][0];
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    let folder = mounts.iter().find(|m| m["name"] == "tls").expect("the Secret")["mountPath"].clone();
    let folder = folder.as_str().expect("a path");
    let args = texts(&container["args"]);
    for (flag, file) in [("tls-cert", "tls.crt"), ("tls-key", "tls.key"), ("client-ca", "ca.crt")] {
        assert!(args.contains(&format!("--{flag}={folder}/{file}").as_str()), "{args:?}");
    }
    assert!(!args.iter().any(|a| a.contains("secret")), "{args:?}");
    // Everything of certs.yaml goes.
    let component = &documents("mounted/kustomization.yaml")[0];
    let patches = component["patches"].as_array().expect("patches");
    let gone: Vec<_> = patches
        .iter()
        .filter(|p| p["patch"].as_str().is_some_and(|t| t.contains("$patch: delete")))
        .collect();
    // The path, which nobody puts in then.
    let hook = patches
        .iter()
        .find(|p| p["target"]["kind"] == "MutatingWebhookConfiguration");
    let patch = hook.and_then(|p| p["patch"].as_str()).expect("a patch");
    let patch: Value = serde_saphyr::from_str(patch).expect("YAML");
    let path =
        json!([{"op": "add", "path": "/webhooks/0/clientConfig/service/path", "value": wattlane::server::ADMISSION}]);
    assert_eq!(patch, path);
    assert_eq!(
        documents("base/webhook.yaml")[0]["webhooks"].as_array().map(Vec::len),
        Some(1)
    );
    for object in documents("base/certs.yaml") {
        let name = object["metadata"]["name"].as_str().expect("named");
        let covered = gone.iter().any(|p| {
            let named = p["target"]["name"]
                .as_str()
                .unwrap_or_default()
                .split('|')
                .any(|n| n == name);
            p["target"]["kind"] == object["kind"] && named
        });
        assert!(covered, "{} {name} stays", object["kind"]);
    }
}

#[test]
fn cert_managers_objects_refer_to_one_another_and_to_what_is_mounted() {
    let (_, dns) = service();
    let all = documents("cert-manager/certificates.yaml");
    let certificates = || all.iter().filter(|d| d["kind"] == "Certificate");
    for object in &all {
        assert_eq!(object["metadata"]["namespace"], "wattlane-system");
        assert_eq!(object["apiVersion"], "cert-manager.io/v1");
    }
    for certificate in certificates() {
        let issuer = certificate["spec"]["issuerRef"]["name"].as_str().expect("an issuer");
        let issuer = one(&all, "Issuer", issuer);
        if let Some(secret) = issuer["spec"]["ca"]["secretName"].as_str() {
            let ca = certificates()
                .find(|c| c["spec"]["secretName"] == secret)
                .expect("who writes the CA");
            assert!(ca["spec"]["isCA"] == true && ca["spec"]["privateKey"]["rotationPolicy"] == "Never");
        }
    }
    let written: Vec<_> = certificates()
        .filter_map(|c| c["spec"]["secretName"].as_str())
        .collect();
    let scheduler = documents("base/scheduler.yaml");
    let scheduler = one(&scheduler, "Deployment", "wattlane-scheduler");
    for secret in mounted(&with_files()).into_iter().chain(mounted(scheduler)) {
        assert!(written.contains(&secret), "nobody writes {secret}");
    }
    let serving = one(&all, "Certificate", "wattlane-tls");
    assert_eq!(serving["spec"]["dnsNames"], json!(dns));
    assert!(texts(&serving["spec"]["usages"]).contains(&"server auth"));
    let client = one(&all, "Certificate", "wattlane-scheduler-client");
    assert_eq!(client["spec"]["dnsNames"], json!([wattlane::certs::client::NAME]));
    assert!(texts(&client["spec"]["usages"]).contains(&"client auth"));
    let component = &documents("cert-manager/kustomization.yaml")[0];
    assert!(texts(&component["components"]).contains(&"../mounted"));
    let patch = component["patches"][0]["patch"].as_str().expect("a patch");
    let patch: Value = serde_saphyr::from_str(patch).expect("YAML");
    let from = &patch["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
    assert_eq!(from, "wattlane-system/wattlane-tls");
    assert_eq!(
        patch["metadata"]["name"],
        documents("base/webhook.yaml")[0]["metadata"]["name"]
    );
}

/// The root file system is read-only, and what is kept must outlive the container.
#[test]
fn the_last_good_policy_is_kept_on_a_volume_of_the_pod() {
    let (wattlane, _) = service();
    let spec = &wattlane["spec"]["template"]["spec"];
    let container = &spec["containers"][0];
    let kept = texts(&container["args"])
        .into_iter()
        .find_map(|a| a.strip_prefix("--policy-kept="))
        .expect("kept");
    let (folder, _) = kept.rsplit_once('/').expect("a path");
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    let mount = mounts.iter().find(|m| m["mountPath"] == folder).expect("a mount");
    assert!(mount["readOnly"].is_null(), "{mount}");
    let volumes = spec["volumes"].as_array().expect("volumes");
    let volume = volumes.iter().find(|v| v["name"] == mount["name"]).expect("a volume");
    assert!(volume["emptyDir"].is_object(), "{volume}");
}
