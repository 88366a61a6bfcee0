//! Where admission is asked, and who may: with `--tls-secret` the path ends in a token that the keeper puts into the
//! webhook configuration, so that only whoever may read that can ask. This file holds what is good now, and asks for a
//! look at the configuration before it turns somebody away: it may have been changed since the last one.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::certs::Ending;

/// The path of admission, without its token.
pub const ADMISSION: &str = "/admission/mutate";
/// How long a request at an unknown path waits for the look, at most.
const PATIENCE: Duration = Duration::from_secs(3);

/// What follows [`ADMISSION`] in a path, empty where nothing does; None: not a path of admission. `/` is one, since the API
/// server asks there where the configuration has no path.
pub fn ending(path: &str) -> Option<&str> {
    match path {
        "" | "/" | ADMISSION => Some(""),
        _ => path.strip_prefix(ADMISSION)?.strip_prefix('/'),
    }
}

enum Good {
    /// Whatever stands there: nobody keeps the configuration.
    Any,
    These(Vec<Ending>),
}

#[derive(Clone, Copy, Default)]
struct Looks {
    begun: u64,
    done: u64,
}

pub struct Paths {
    known: ArcSwap<Good>,
    looks: watch::Sender<Looks>,
    wanted: Notify,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            known: ArcSwap::from_pointee(Good::Any),
            looks: watch::Sender::default(),
            wanted: Notify::default(),
        }
    }
}

impl Paths {
    /// Every ending is good.
    pub fn any(&self) {
        self.known.store(Arc::new(Good::Any));
    }

    /// These endings are good, until something else is said: that nobody can look is no reason to take others.
    pub fn only(&self, endings: impl IntoIterator<Item = Ending>) {
        self.known.store(Arc::new(Good::These(endings.into_iter().collect())));
    }

    /// A look at the configuration, from now until it is dropped.
    pub fn look(&self) -> impl Drop + '_ {
        self.looks.send_modify(|l| l.begun += 1);
        Look(self)
    }

    /// Returns when a look is worth more than the next one by the clock.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Who knows the way to the port and no more is turned away.
    pub fn closed(&self) -> bool {
        !self.good("")
    }

    /// Whether a request at this ending may go on; its caller leaves at `by`.
    pub(super) async fn takes(&self, ending: &str, by: Instant) -> bool {
        if self.good(ending) {
            return true;
        }
        let mut looks = self.looks.subscribe();
        // One that is under way may have read the configuration as it was.
        let begun = looks.borrow_and_update().begun;
        self.wanted.notify_one();
        // A third is left for the answer.
        let wait = PATIENCE.min(by.saturating_duration_since(Instant::now()) * 2 / 3);
        // Without one in time, by what is known: a token is announced for so long that no look of this moment is needed.
        let _ = tokio::time::timeout(wait, looks.wait_for(|l| l.done > begun)).await;
        self.good(ending)
    }

    /// Whether a request at this ending goes on without a look.
    pub fn good(&self, ending: &str) -> bool {
        match &**self.known.load() {
            Good::Any => true,
            Good::These(good) => {
                let given = Ending::of(ending);
                good.iter().fold(false, |found, good| found | (*good == given))
            }
        }
    }
}

struct Look<'a>(&'a Paths);

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.0.looks.send_modify(|l| l.done = l.begun);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by() -> Instant {
        Instant::now() + Duration::from_millis(4500)
    }

    fn endings(texts: &[&str]) -> Vec<Ending> {
        texts.iter().map(|t| Ending::of(t)).collect()
    }

    #[test]
    fn endings_are_read_from_paths_of_admission_only() {
        for (path, expected) in [
            ("/", Some("")),
            ("", Some("")),
            ("/admission/mutate", Some("")),
            ("/admission/mutate/", Some("")),
            ("/admission/mutate/a", Some("a")),
            ("/admission/mutate/a/b", Some("a/b")),
            ("/admission/mutated", None),
            ("/admission", None),
            ("/extender/filter", None),
            ("//admission/mutate/a", None),
        ] {
            assert_eq!(ending(path), expected, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_stays_known_and_nothing_is_added_by_time() {
        let paths = Paths::default();
        assert!(paths.takes("x", by()).await && !paths.closed());
        paths.only(endings(&["a", "b"]));
        for _ in 0..2 {
            assert!(paths.takes("a", by()).await && paths.takes("b", by()).await && paths.closed());
            for other in ["", "x", "aa", "A", "a/", "ab"] {
                assert!(!paths.takes(other, by()).await, "{other}");
            }
            tokio::time::advance(Duration::from_secs(365 * 86_400)).await;
        }
        // Before the first look of a keeper.
        paths.only([]);
        assert!(!paths.takes("", by()).await && paths.closed());
        paths.any();
        assert!(paths.takes("x", by()).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_is_judged_by_a_look_that_began_after_he_came() {
        let paths = Arc::new(Paths::default());
        paths.only(endings(&["old"]));
        let under_way = paths.look();
        let asks = tokio::spawn({
            let paths = paths.clone();
            async move { paths.takes("new", by()).await }
        });
        paths.wanted().await;
        // It had read the configuration before he came.
        drop(under_way);
        tokio::task::yield_now().await;
        assert!(!asks.is_finished());
        let look = paths.look();
        paths.only(endings(&["old", "new"]));
        drop(look);
        assert!(asks.await.expect("no panic"));
    }

    /// An API server that is away lets no stranger in, and who was good before does not wait for it.
    #[tokio::test(start_paused = true)]
    async fn looks_that_hang_or_fail_open_nothing_and_close_nothing() {
        let paths = Paths::default();
        paths.only(endings(&["token", "next"]));
        let hangs = paths.look();
        for (ending, taken, wait) in [
            ("token", true, Duration::ZERO),
            ("next", true, Duration::ZERO),
            ("", false, PATIENCE),
        ] {
            let began = Instant::now();
            assert_eq!(
                (paths.takes(ending, by()).await, began.elapsed()),
                (taken, wait),
                "{ending:?}"
            );
        }
        drop(hangs);
        assert!(!paths.takes("", by()).await && paths.takes("token", by()).await);
    }

    /// Who says that he will not wait does not get in by that; and the wait ends before its caller leaves.
    #[tokio::test(start_paused = true)]
    async fn a_short_deadline_is_no_key() {
        let paths = Paths::default();
        paths.only(endings(&["old"]));
        for millis in [0, 900, 1800, 2700] {
            let began = Instant::now();
            assert!(
                !paths.takes("x", began + Duration::from_millis(millis)).await,
                "{millis}"
            );
            assert_eq!(began.elapsed(), Duration::from_millis(millis) * 2 / 3, "{millis}");
        }
    }
}
