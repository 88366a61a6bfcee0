//! Where the policy comes from, and its reload: polled and compared by content, since a mounted ConfigMap is swapped
//! by a symlink that file events miss. A policy that is wrong is refused whole and the old one stays; a restart finds the
//! old one in the file where it was kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use arc_swap::ArcSwap;
use sha2::{Digest, Sha256};

use crate::metrics::{Metrics, PolicyLoad, Readiness};
use crate::policy::{self, Census, Policy, PolicyClassifier};
use crate::publish::{IndexHandle, Reader};
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
        /// Where the last policy that was good is kept for a restart.
        kept: Option<PathBuf>,
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
            kept: None,
        })
    }

    /// Keeps each policy that is good in that file, and takes it from there when it starts with a wrong one.
    #[must_use]
    pub fn keeping(mut self, file: Option<PathBuf>) -> Self {
        if let Self::File { kept, .. } = &mut self {
            *kept = file;
        }
        self
    }

    /// The policy to start with.
    pub(super) fn policy(&self, selectors: &Selectors, metrics: &Metrics) -> anyhow::Result<Policy> {
        let Self::File { path, text, kept } = self else {
            return Ok(Policy::default());
        };
        let wrong = match parse(text, selectors) {
            Ok(policy) => {
                kept.as_deref().inspect(|kept| keep(kept, text));
                in_force(metrics, text);
                metrics.policy_read(PolicyLoad::Taken);
                return Ok(policy);
            }
            Err(wrong) => wrong.context(format!("policy {}", path.display())),
        };
        let before = kept.as_deref().and_then(|kept| std::fs::read_to_string(kept).ok());
        let Some((policy, text)) = before.and_then(|text| Some((parse(&text, selectors).ok()?, text))) else {
            return Err(wrong);
        };
        tracing::error!(
            why = format!("{wrong:#}"),
            "the policy is wrong; the last one that was good is in force"
        );
        in_force(metrics, &text);
        metrics.policy_read(PolicyLoad::Refused);
        Ok(policy)
    }
}

fn parse(text: &str, selectors: &Selectors) -> anyhow::Result<Policy> {
    Policy::read(text, selectors).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        anyhow!("{}", lines.join("; "))
    })
}

/// Whole or not at all. Failing costs what it is for, and nothing else.
fn keep(file: &Path, text: &str) {
    let new = file.with_extension("new");
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, file));
    if let Err(error) = written {
        tracing::warn!(file = %file.display(), %error, "cannot keep the policy for a restart");
    }
}

fn in_force(metrics: &Metrics, text: &str) {
    let digest = Sha256::digest(text.as_bytes());
    // 48 bits: a number that Prometheus holds exactly.
    let hash = digest.iter().take(6).fold(0, |hash, byte| hash << 8 | i64::from(*byte));
    metrics.policy_in_force(hash, jiff::Timestamp::now().as_second());
}

/// What a reload needs and changes.
pub(super) struct Reload {
    pub(super) policy: Arc<ArcSwap<Policy>>,
    pub(super) selectors: Arc<Selectors>,
    pub(super) index: IndexHandle,
    pub(super) reader: Reader,
    pub(super) readiness: Arc<Readiness>,
    pub(super) metrics: Arc<Metrics>,
}

impl Reload {
    /// Looks at the file every few seconds until dropped; says what in the policy in force is doubtful, once it is known
    /// what there is.
    pub(super) async fn run(self, source: &PolicySource) -> anyhow::Result<()> {
        let PolicySource::File { path, text, kept } = source else {
            return std::future::pending().await;
        };
        let mut text = text.clone();
        let (mut doubted, mut unreadable) = (false, false);
        loop {
            if !doubted && self.readiness.listed().is_ok() {
                self.doubt().await;
                doubted = true;
            }
            tokio::time::sleep(EVERY).await;
            let new = match tokio::fs::read_to_string(path).await {
                Ok(new) => new,
                Err(error) => {
                    // Said once, not every ten seconds.
                    if !std::mem::replace(&mut unreadable, true) {
                        self.metrics.policy_read(PolicyLoad::Unreadable);
                        tracing::warn!(path = %path.display(), %error, "cannot read the policy; the old one stays in force");
                    }
                    continue;
                }
            };
            // Readable again is news, whatever it says.
            if !std::mem::take(&mut unreadable) && new == text {
                continue;
            }
            match parse(&new, &self.selectors) {
                Ok(policy) => {
                    kept.as_deref().inspect(|kept| keep(kept, &new));
                    self.take(policy, &new).await?;
                    tracing::info!(path = %path.display(), "new policy in force");
                    doubted = false;
                }
                Err(error) => {
                    self.metrics.policy_read(PolicyLoad::Refused);
                    tracing::error!(path = %path.display(), why = %error, "the new policy is wrong; the old one stays in force");
                }
            }
            text = new;
        }
    }

    async fn take(&self, policy: Policy, text: &str) -> anyhow::Result<()> {
        in_force(&self.metrics, text);
        self.metrics.policy_read(PolicyLoad::Taken);
        self.policy.store(Arc::new(policy));
        let classifier = PolicyClassifier::new(self.policy.load_full());
        self.index.set_classifier(Arc::new(classifier)).await?;
        Ok(())
    }

    /// What `wattlane check` would warn about.
    async fn doubt(&self) {
        let (policy, snapshot) = (self.policy.load_full(), self.reader.load());
        // Every device by every class: not on a thread that answers requests.
        let found = tokio::task::spawn_blocking(move || {
            let census = Census::of(&policy, Some(&snapshot));
            policy::doubts(&policy, &census, Some(&snapshot))
        });
        for doubt in found.await.unwrap_or_default() {
            tracing::warn!(at = doubt.path, why = doubt.message, "doubtful in the policy");
        }
    }
}
