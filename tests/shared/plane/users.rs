//! Who talks to the API server, and the files that say so: tokens, kubeconfigs, and the key of ServiceAccount tokens
//! that the API server insists on. It lives for one test, on loopback: none of these are secrets.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;

/// Whom the API server knows, each by a token.
#[derive(Clone, Copy)]
pub(crate) enum User {
    Admin,
    /// The ServiceAccounts of manifests/base: RBAC is tested because these have nothing but those roles.
    Wattlane,
    WattlaneScheduler,
    /// Kubernetes' own, with the roles that every cluster gives them.
    Scheduler,
    Controllers,
    /// Somebody with no role but what a test gives.
    Tenant,
}

impl User {
    const ALL: [User; 6] = [
        User::Admin,
        User::Wattlane,
        User::WattlaneScheduler,
        User::Scheduler,
        User::Controllers,
        User::Tenant,
    ];

    fn token(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Wattlane => "wattlane",
            Self::WattlaneScheduler => "wattlane-scheduler",
            Self::Scheduler => "kube-scheduler",
            Self::Controllers => "kube-controller-manager",
            Self::Tenant => "tenant",
        }
    }

    /// token, name, uid, groups
    fn csv(self) -> String {
        let token = self.token();
        match self {
            Self::Admin => format!("{token},admin,admin,\"system:masters\"\n"),
            Self::Tenant => format!("{token},{token},{token}\n"),
            Self::Scheduler | Self::Controllers => format!("{token},system:{token},{token}\n"),
            // The groups of any ServiceAccount: priority and fairness goes by them.
            _ => format!(
                "{token},system:serviceaccount:wattlane-system:{token},{token},\"system:serviceaccounts,system:serviceaccounts:wattlane-system\"\n"
            ),
        }
    }
}

pub(crate) fn kubeconfig(dir: &Path, user: User) -> PathBuf {
    dir.join(format!("{}.kubeconfig", user.token()))
}

/// Writes all of it for an API server on the port that has `dir/api` as its certificate folder.
pub(crate) fn write(dir: &Path, port: u16) -> Result<()> {
    let key = rcgen::KeyPair::generate()?;
    std::fs::write(dir.join("sa.key"), key.serialize_pem())?;
    std::fs::write(dir.join("sa.pub"), key.public_key_pem())?;
    std::fs::write(dir.join("tokens.csv"), User::ALL.map(User::csv).concat())?;
    for user in User::ALL {
        let server = format!("https://127.0.0.1:{port}");
        // Written by the API server at its first start: self-signed, hence its own authority.
        let authority = dir.join("api/apiserver.crt");
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": authority}}],
            "users": [{"name": "test", "user": {"token": user.token()}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        });
        // JSON is YAML.
        std::fs::write(kubeconfig(dir, user), serde_json::to_vec_pretty(&config)?)?;
    }
    Ok(())
}
