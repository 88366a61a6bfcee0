//! The role of manifests/base is the least there can be: without any one verb of any one rule, something of what
//! wattlane does fails. Driven by the manifest, so a new rule is covered as it comes; what the new verb is for goes
//! into `script`.

mod script;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::manifests::{SYSTEM, apply, manifest};
use crate::plane::Plane;
use crate::taint_rules;
use crate::wait::{SOON, until};

const ACCOUNT: &str = "wattlane";

/// One verb on one resource, of one rule of a role.
#[derive(Clone, Debug, PartialEq)]
struct Atom {
    group: Value,
    resource: Value,
    verb: Value,
    names: Option<Value>,
}

impl Atom {
    fn rule(&self) -> Value {
        let mut rule = json!({"apiGroups": [self.group], "resources": [self.resource], "verbs": [self.verb]});
        if let Some(names) = &self.names {
            rule["resourceNames"] = names.clone();
        }
        rule
    }
}

/// The roles bound to wattlane's ServiceAccount, with their atoms.
fn roles() -> Result<Vec<(Value, Vec<Atom>)>> {
    let mut documents = manifest("rbac.yaml")?;
    documents.extend(manifest("certs.yaml")?);
    let bound: Vec<&Value> = documents
        .iter()
        .filter(|d| {
            let subjects = d["subjects"].as_array().into_iter().flatten();
            subjects
                .into_iter()
                .any(|s| s["kind"] == "ServiceAccount" && s["name"] == ACCOUNT)
        })
        .map(|d| &d["roleRef"])
        .collect();
    let mut roles = vec![];
    for role in documents.iter().filter(|d| {
        bound
            .iter()
            .any(|r| r["kind"] == d["kind"] && r["name"] == d["metadata"]["name"])
    }) {
        let mut atoms = vec![];
        for rule in role["rules"].as_array().context("a role without rules")? {
            let list = |key: &str| {
                rule[key]
                    .as_array()
                    .with_context(|| format!("a rule without {key}: {rule}"))
            };
            for group in list("apiGroups")? {
                for resource in list("resources")? {
                    for verb in list("verbs")? {
                        atoms.push(Atom {
                            group: group.clone(),
                            resource: resource.clone(),
                            verb: verb.clone(),
                            names: rule.get("resourceNames").cloned(),
                        });
                    }
                }
            }
        }
        roles.push((role.clone(), atoms));
    }
    ensure!(
        !roles.is_empty() && bound.len() == roles.len(),
        "roles of others are bound: {bound:?}"
    );
    Ok(roles)
}

/// Applies a role with these atoms, and waits until the API server says so of `about`.
async fn grant(client: &kube::Client, role: &Value, atoms: &[Atom], about: &Atom, expected: bool) -> Result<()> {
    let mut role = role.clone();
    role["rules"] = atoms.iter().map(Atom::rule).collect();
    apply(client, &role, SYSTEM).await?;
    let (resource, subresource) = match about.resource.as_str().context("a text")?.split_once('/') {
        Some((resource, sub)) => (resource.to_owned(), Some(sub)),
        None => (about.resource.as_str().context("a text")?.to_owned(), None),
    };
    let namespace = (role["kind"] == "Role").then_some(SYSTEM);
    let review: SubjectAccessReview = serde_json::from_value(json!({"metadata": {}, "spec": {
        "user": format!("system:serviceaccount:{SYSTEM}:{ACCOUNT}"),
        "resourceAttributes": {"group": about.group, "resource": resource, "subresource": subresource,
            "verb": about.verb, "namespace": namespace, "name": about.names.as_ref().map(|n| &n[0])},
    }}))?;
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    until(&format!("{about:?} to be granted: {expected}"), SOON, async || {
        let status = reviews.create(&PostParams::default(), &review).await?.status;
        let allowed = status.context("no status")?.allowed;
        ensure!(
            allowed == expected,
            "allowed: {allowed}; does another rule grant it too?"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "needs the control plane binaries: tests/controlplane/build"]
async fn without_any_verb_of_its_role_something_fails() {
    let mut plane = Box::pin(Plane::start_with(&taint_rules::FLAGS))
        .await
        .expect("a control plane");
    if let Err(e) = Box::pin(each_verb(&plane)).await {
        plane.report();
        panic!("{e:#}");
    }
}

async fn each_verb(plane: &Plane) -> Result<()> {
    let client = plane.client();
    for file in ["namespace.yaml", "rbac.yaml", "certs.yaml", "webhook.yaml"] {
        for object in manifest(file)? {
            apply(&client, &object, SYSTEM).await?;
        }
    }
    let world = script::World::new(plane).await?;
    let roles = roles()?;
    for (role, atoms) in &roles {
        grant(&client, role, atoms, &atoms[0], true).await?;
    }
    let failed = world.play().await;
    ensure!(failed.is_empty(), "with the whole role: {failed:#?}");
    let mut needless = vec![];
    for (role, atoms) in &roles {
        for without in atoms {
            let rest: Vec<Atom> = atoms.iter().filter(|a| *a != without).cloned().collect();
            ensure!(rest.len() + 1 == atoms.len(), "{without:?} stands in the role twice");
            grant(&client, role, &rest, without, false).await?;
            let failed = world.play().await;
            if failed.is_empty() {
                needless.push(without);
            }
            grant(&client, role, atoms, without, true).await?;
        }
    }
    ensure!(
        needless.is_empty(),
        "nothing fails without these (needless, or `rbac/script.rs` lacks what they are for): {needless:#?}"
    );
    Ok(())
}
