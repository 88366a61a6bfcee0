//! A time limit for everything a call does, however many requests that are: the caller stops waiting at the limit, and
//! whoever sends a request tells the other side not to execute it later than that.
//!
//! It travels with the task (as a task-local value), not in arguments: it is about when something is asked, not what.

use tokio::time::{Instant, timeout_at};

use super::WriteError;

tokio::task_local! {
    static UNTIL: Instant;
}

/// Ends the call at the limit. What it had sent by then may have been written, up to that moment.
///
/// # Errors
/// Those of the call; `Unknown` at the limit.
pub async fn within<T>(until: Instant, call: impl Future<Output = Result<T, WriteError>>) -> Result<T, WriteError> {
    match timeout_at(until, UNTIL.scope(until, call)).await {
        Ok(result) => result,
        Err(_) => Err(WriteError::Unknown(
            "no answer from the Kubernetes API before the time for the write ran out".to_owned(),
        )),
    }
}

/// The limit of the call that is running; None: it has none.
pub fn limit() -> Option<Instant> {
    UNTIL.try_with(|until| *until).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn the_call_knows_its_limit_and_ends_there() {
        let until = Instant::now() + Duration::from_secs(3);
        assert_eq!(within(until, async { Ok(limit()) }).await, Ok(Some(until)));
        assert_eq!(limit(), None);
        let ended = within(until, std::future::pending::<Result<(), _>>()).await;
        assert!(matches!(ended, Err(WriteError::Unknown(_))), "{ended:?}");
        assert_eq!(Instant::now(), until);
    }
}
