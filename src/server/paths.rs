//! Where admission is asked, and who may: with `--tls-secret` the path ends in a token that the keeper puts into the
//! webhook configuration, so that only whoever may read that can ask. This file holds what is good now, and asks for a
//! look at the configuration before it turns somebody away: it may have been changed since the last one.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The path of admission, without its token.
pub const ADMISSION: &str = "/admission/mutate";
/// How long a request at an unknown path waits for the look, at most.
const PATIENCE: Duration = Duration::from_secs(3);
/// A look that takes as long hangs. Well below the patience: one that is asked for begins up to a second later.
const HANGS: Duration = Duration::from_millis(1500);

/// What follows [`ADMISSION`] in a path, empty where nothing does; None: not a path of admission. `/` is one, since the API
/// server asks there where the configuration has no path.
pub fn ending(path: &str) -> Option<&str> {
    match path {
        "" | "/" | ADMISSION => Some(""),
        _ => path.strip_prefix(ADMISSION)?.strip_prefix('/'),
    }
}

type Hash = [u8; 32];

/// Hashes, so that how long a comparison takes says nothing of what is compared.
#[derive(Default)]
enum Good {
    /// Whatever stands there: nobody keeps the configuration, or not for long enough.
    #[default]
    Any,
    /// These, until what is known is too old.
    These(Vec<Hash>, Instant),
}

#[derive(Clone, Copy, Default)]
struct Looks {
    begun: u64,
    done: u64,
    /// Since when there is one.
    under_way: Option<Instant>,
    /// The one under way, or else the last one, has read the configuration.
    told: bool,
    /// The last one that ended had not.
    failed: bool,
}

impl Looks {
    fn hangs(&self) -> bool {
        self.under_way.is_some_and(|since| since.elapsed() >= HANGS)
    }

    /// Whether nothing is heard of the configuration any more, so that it may say anything by now.
    fn blind(&self) -> bool {
        self.failed || self.hangs()
    }
}

#[derive(Default)]
pub struct Paths {
    known: ArcSwap<Good>,
    looks: watch::Sender<Looks>,
    wanted: Notify,
}

impl Paths {
    /// Every ending is good.
    pub fn any(&self) {
        self.know(Good::Any);
    }

    fn know(&self, good: Good) {
        self.known.store(Arc::new(good));
        self.looks.send_modify(|l| l.told = true);
    }

    /// These endings are good for so long, and then again every one: a configuration that nobody can look at may have changed.
    pub fn only<'a>(&self, endings: impl IntoIterator<Item = &'a str>, long: Duration) {
        let hashes = endings.into_iter().map(hash).collect();
        self.know(Good::These(hashes, Instant::now() + long));
    }

    /// A look at the configuration, from now until it is dropped. It has failed unless `any` or `only` says by then what was
    /// seen.
    pub fn look(&self) -> impl Drop + '_ {
        self.looks.send_modify(|l| {
            l.begun += 1;
            l.under_way = Some(Instant::now());
            l.told = false;
        });
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

    /// Whether a request at this ending may go on; its caller leaves at `by`. While looks fail or hang, it may: another
    /// replica may have changed the configuration, and what was known before is no reason to shut an API server out.
    /// Whoever gets in by that could not make the API server fail, and what admission makes needs it, too.
    pub(super) async fn takes(&self, ending: &str, by: Instant) -> bool {
        if self.good(ending) {
            return true;
        }
        let mut looks = self.looks.subscribe();
        // One that is under way may have read the configuration as it was.
        let begun = {
            let looks = looks.borrow_and_update();
            if looks.hangs() {
                return true;
            }
            looks.begun
        };
        self.wanted.notify_one();
        // A third is left for the answer. With little time in all the wait proves nothing: what counts is how looks go.
        let wait = PATIENCE.min(by.saturating_duration_since(Instant::now()) * 2 / 3);
        let _ = tokio::time::timeout(wait, looks.wait_for(|l| l.done > begun)).await;
        self.good(ending) || self.looks.borrow().blind()
    }

    /// Whether a request at this ending goes on without a look.
    pub fn good(&self, ending: &str) -> bool {
        match &**self.known.load() {
            Good::Any => true,
            Good::These(_, until) if *until < Instant::now() => true,
            Good::These(good, _) => {
                let given = hash(ending);
                good.iter().fold(false, |found, good| found | same(good, &given))
            }
        }
    }
}

struct Look<'a>(&'a Paths);

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.0.looks.send_modify(|l| {
            l.done = l.begun;
            l.under_way = None;
            l.failed = !l.told;
        });
    }
}

fn hash(ending: &str) -> Hash {
    Sha256::digest(ending).into()
}

/// Takes as long whatever they are.
fn same(a: &Hash, b: &Hash) -> bool {
    a.iter().zip(b).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn by() -> Instant {
        Instant::now() + Duration::from_millis(4500)
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
    async fn what_is_known_too_long_ago_turns_nobody_away() {
        let paths = Paths::default();
        assert!(paths.takes("x", by()).await && !paths.closed());
        paths.only(["a", "b"], LONG);
        assert!(paths.takes("a", by()).await && paths.takes("b", by()).await && paths.closed());
        for other in ["", "x", "aa", "A", "a/", "ab"] {
            paths.only(["a", "b"], LONG);
            assert!(!paths.takes(other, by()).await, "{other}");
        }
        tokio::time::advance(LONG + Duration::from_millis(1)).await;
        assert!(paths.takes("x", by()).await && !paths.closed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_is_judged_by_a_look_that_began_after_he_came() {
        let paths = Arc::new(Paths::default());
        paths.only(["old"], LONG);
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
        paths.only(["old", "new"], LONG);
        drop(look);
        assert!(asks.await.expect("no panic"));
    }

    /// Another replica has written a new token, and this one's API server does not answer, or says no.
    #[tokio::test(start_paused = true)]
    async fn looks_that_hang_or_fail_shut_nobody_out() {
        let paths = Arc::new(Paths::default());
        paths.only(["old"], LONG);
        // A keeper: a second between looks, and then one that hangs.
        let keeper = tokio::spawn({
            let paths = paths.clone();
            async move {
                paths.wanted().await;
                tokio::time::sleep(Duration::from_secs(1)).await;
                let _look = paths.look();
                std::future::pending::<()>().await;
            }
        });
        let began = Instant::now();
        assert!(paths.takes("new", by()).await);
        assert_eq!(began.elapsed(), PATIENCE);
        // From then on at once, however little time there is.
        let began = Instant::now();
        assert!(paths.takes("new", began + Duration::from_millis(1)).await);
        assert_eq!(began.elapsed(), Duration::ZERO);
        keeper.abort();
        assert!(keeper.await.is_err());
        // It ended without having seen anything, as one does that is refused.
        assert!(paths.takes("new", by()).await);
        // One that sees is believed again.
        let look = paths.look();
        paths.only(["old"], LONG);
        drop(look);
        assert!(!paths.takes("new", by()).await);
    }

    /// Who says that he will not wait does not get in by that; and the wait ends before its caller leaves.
    #[tokio::test(start_paused = true)]
    async fn a_short_deadline_is_no_key() {
        let paths = Paths::default();
        let look = paths.look();
        paths.only(["old"], LONG);
        drop(look);
        for millis in [0, 900, 1800, 2700] {
            let began = Instant::now();
            assert!(
                !paths.takes("x", began + Duration::from_millis(millis)).await,
                "{millis}"
            );
            assert_eq!(began.elapsed(), Duration::from_millis(millis) * 2 / 3, "{millis}");
        }
        // A look that has only just begun says nothing yet.
        let _look = paths.look();
        assert!(!paths.takes("x", Instant::now() + Duration::from_secs(1)).await);
    }
}
