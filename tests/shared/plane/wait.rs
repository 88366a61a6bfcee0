//! Waiting for what a controller will do: look, and look again, until a deadline.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// For anything the control plane does within seconds when it is well. Long, because two busy cores are slow, and
/// shorter than the five minutes after which kube-scheduler retries every pod by itself.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// An error of `look` that no waiting will mend.
#[derive(Debug)]
pub(crate) struct Hopeless(pub(crate) String);

impl std::fmt::Display for Hopeless {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Hopeless {}

const PAUSE: Duration = Duration::from_millis(50);

/// Calls `look` until it returns `Ok`. An error means "not yet" and says how things are: at the deadline the last one
/// is the failure.
pub(crate) async fn until<T>(what: &str, limit: Duration, mut look: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        match look().await {
            Ok(found) => return Ok(found),
            Err(end) if end.is::<Hopeless>() => return Err(end.context(format!("{what} will not come"))),
            Err(state) if start.elapsed() > limit => {
                return Err(state).with_context(|| format!("waited {limit:?} in vain for {what}"));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
