//! End-to-end tests: the real etcd, kube-apiserver, kube-controller-manager and two kube-schedulers, the real
//! `wattlane serve`, and this repository's own manifests. No kubelet: a pod is done when it is bound.
//!
//!     tests/controlplane/build && cargo test --test e2e -- --ignored
//!
//! One test at a time, each with a control plane of its own (up in about five seconds): nodes are not namespaced.
//! A failure prints the ends of the logs; `WATTLANE_E2E_KEEP=DIR` keeps every control plane's folder with all of them.
//! What a test asserts it reads from the API server, never from wattlane.

mod audit;
mod cluster;
mod corpus;
mod manifests;
mod objects;
#[path = "../shared/plane/mod.rs"]
mod plane;
mod replicas;

use plane::{process, users, wait};

mod binding;
mod fabric;
mod faults;
mod findings;
mod gated;
mod guard;
mod odd_objects;
mod partitions;
mod pod_security;
mod probe;
mod rbac;
mod refusal;
mod rotation;
mod shares;
mod strangers;
mod taint_rules;
mod templates;
mod untouched;
mod user_claims;
