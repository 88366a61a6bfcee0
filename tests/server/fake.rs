//! A service whose answers follow from the names in the request: what is tested is everything in front of it.

use std::sync::Arc;

use tokio::sync::Semaphore;
use wattlane::server::{BindFailure, Failure, Service};
use wattlane::wire::{AdmissionAnswer, AdmissionRequest, BindArgs, ExtenderArgs, Verdicts};

pub(crate) struct Fake {
    /// One permit for each request that was told to hold and is now inside.
    pub(crate) entered: Semaphore,
    /// One permit lets one of them go on.
    pub(crate) released: Semaphore,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            entered: Semaphore::new(0),
            released: Semaphore::new(0),
        }
    }
}

impl Fake {
    /// Returns when a request that holds is inside.
    pub(crate) async fn wait_entered(&self) {
        self.entered.acquire().await.expect("never closed").forget();
    }

    async fn obey(&self, word: &str) {
        if word.contains("please-panic") {
            panic!("asked to");
        }
        if word.contains("please-hold") {
            self.entered.add_permits(1);
            self.released.acquire().await.expect("never closed").forget();
        }
    }
}

impl Service for Fake {
    /// Names that begin with `ok` fit.
    async fn filter(&self, args: &ExtenderArgs<'_>) -> Result<Verdicts, Failure> {
        let pod = args.pod.get();
        self.obey(pod).await;
        if pod.contains("please-wait") {
            return Err(Failure::NotReady(
                "wattlane is starting: Node has not been listed yet".into(),
            ));
        }
        if pod.contains("please-err") {
            return Err(Failure::Error("it broke".into()));
        }
        let verdict = |name: &str| (!name.starts_with("ok")).then(|| Arc::from(format!("{name}: no \"free\" card")));
        Ok(args.names.iter().map(verdict).collect())
    }

    /// The position, from 10 down.
    async fn prioritize(&self, args: &ExtenderArgs<'_>) -> Result<Vec<u8>, Failure> {
        self.obey(args.pod.get()).await;
        Ok((0..args.names.len()).map(|i| 10_u8.saturating_sub(i as u8)).collect())
    }

    async fn bind(&self, args: &BindArgs) -> Result<(), BindFailure> {
        self.obey(&args.name).await;
        if args.node.starts_with("ok") {
            return Ok(());
        }
        Err(BindFailure {
            message: format!("{}/{} ({}) not on {}", args.namespace, args.name, args.uid, args.node),
            refusal: args.node == "refuse",
            elsewhere: args.node == "follower",
        })
    }

    async fn admit(&self, request: AdmissionRequest) -> AdmissionAnswer {
        self.obey(&request.name).await;
        if request.name == "deny" {
            return AdmissionAnswer::deny(422, "no such class");
        }
        let patch = serde_json::json!([{"op": "add", "path": "/spec/schedulerName", "value": "wattlane"}]);
        AdmissionAnswer {
            patch: Some(serde_json::from_value(patch).expect("a patch")),
            ..AdmissionAnswer::allow()
        }
    }
}
