//! Where the policy comes from, and its reload: polled and compared by content, since a mounted ConfigMap is swapped
//! by a symlink that file events miss. A policy that is wrong is refused whole and the old one stays.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use crate::policy::{Policy, PolicyClassifier};
use crate::publish::IndexHandle;
use crate::selector::Selectors;

const EVERY: Duration = Duration::from_secs(10);

/// The policy of a command.
#[derive(Clone, Debug)]
pub enum PolicySource {
    /// No file was given.
    Default,
    File {
        path: PathBuf,
        text: String,
    },
}

impl PolicySource {
    /// # Errors
    /// The file cannot be read.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read the policy {}", path.display()))?;
        Ok(Self::File {
            path: path.to_owned(),
            text,
        })
    }

    pub(super) fn policy(&self, selectors: &Selectors) -> anyhow::Result<Policy> {
        match self {
            Self::Default => Ok(Policy::default()),
            Self::File { path, text } => parse(text, selectors).with_context(|| format!("policy {}", path.display())),
        }
    }
}

fn parse(text: &str, selectors: &Selectors) -> anyhow::Result<Policy> {
    Policy::read(text, selectors).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        anyhow!("{}", lines.join("; "))
    })
}

/// Looks at the file every few seconds until stopped.
pub(super) async fn reload(
    source: PolicySource,
    selectors: Arc<Selectors>,
    policy: Arc<ArcSwap<Policy>>,
    index: IndexHandle,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let PolicySource::File { path, mut text } = source else {
        stop.cancelled().await;
        return Ok(());
    };
    let mut unreadable = false;
    while stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
        let new = match tokio::fs::read_to_string(&path).await {
            Ok(new) => new,
            Err(error) => {
                // Said once, not every ten seconds.
                if !std::mem::replace(&mut unreadable, true) {
                    tracing::warn!(path = %path.display(), %error, "cannot read the policy; the old one stays in force");
                }
                continue;
            }
        };
        unreadable = false;
        if new == text {
            continue;
        }
        match parse(&new, &selectors) {
            Ok(parsed) => {
                policy.store(Arc::new(parsed));
                index
                    .set_classifier(Arc::new(PolicyClassifier::new(policy.load_full())))
                    .await?;
                tracing::info!(path = %path.display(), "new policy in force");
            }
            Err(error) => {
                tracing::error!(path = %path.display(), why = %error, "the new policy is wrong; the old one stays in force");
            }
        }
        text = new;
    }
    Ok(())
}
