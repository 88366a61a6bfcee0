//! The label by which the Service for the extender finds the leader's pod. It is for reaching the leader, not for
//! being it: a pod that carries it wrongly refuses binds.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::standing::Leadership;
use super::task::LAST_CALL;
use crate::cluster::{Cluster, deadline};
use crate::model::NamespacedName;

/// For one try.
const LIMIT: Duration = Duration::from_secs(5);
/// How often the leader says it anew: a person, or a write of ours that was executed late, may have taken it off.
const ANEW: Duration = Duration::from_secs(10);

/// Keeps the label where the leadership is, until `stop`; then takes it off.
pub(super) async fn follow(
    cluster: Arc<dyn Cluster>,
    pod: NamespacedName,
    retry: Duration,
    leadership: Leadership,
    stop: CancellationToken,
) {
    let mut standing = leadership.standing.clone();
    // Not known: an earlier life of this pod's process may have left it.
    let mut carries = None;
    let mut anew = Instant::now();
    let mut said = false;
    loop {
        // By term: between two of ours another may have led, and taken our label off.
        let term = standing.borrow_and_update().leads();
        let settled = carries == Some(term);
        if !settled {
            let leads = term.is_some();
            let tried = deadline::within(Instant::now() + LIMIT, cluster.label_leader(&pod, leads));
            match stop.run_until_cancelled(tried).await {
                // What becomes of it is not known.
                None => {
                    carries = None;
                    break;
                }
                Some(Ok(())) => {
                    carries = Some(term);
                    anew = Instant::now() + ANEW;
                    said = false;
                    continue;
                }
                Some(Err(error)) => {
                    leadership.stats.label_failures.fetch_add(1, Ordering::Relaxed);
                    if !said {
                        tracing::warn!(%pod, leads, %error, "cannot set the leader's label: the Service of the extender may not find the leader");
                    }
                    said = true;
                    carries = None;
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => break,
            // A term that runs out shows here with the election's next step, which is due at that moment.
            changed = standing.changed(), if settled => if changed.is_err() { break },
            () = sleep_until(anew), if settled && term.is_some() => carries = None,
            () = sleep(retry), if !settled => {}
        }
    }
    if carries != Some(None)
        && let Err(error) = deadline::within(Instant::now() + LAST_CALL, cluster.label_leader(&pod, false)).await
    {
        tracing::warn!(%pod, %error, "the leader's label stays on this pod: it is of no harm");
    }
}
