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
/// How long a request at an unknown path waits for the look. The API server waits for five seconds, if it is our manifest.
const PATIENCE: Duration = Duration::from_secs(3);

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
        self.known.store(Arc::default());
    }

    /// These endings are good for so long, and then again every one: a configuration that nobody can look at may have changed.
    pub fn only<'a>(&self, endings: impl IntoIterator<Item = &'a str>, long: Duration) {
        let hashes = endings.into_iter().map(hash).collect();
        self.known.store(Arc::new(Good::These(hashes, Instant::now() + long)));
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

    /// Whether a request at this ending may go on.
    pub(super) async fn takes(&self, ending: &str) -> bool {
        if self.good(ending) {
            return true;
        }
        let mut looks = self.looks.subscribe();
        // One that is under way may have read the configuration as it was.
        let begun = looks.borrow_and_update().begun;
        self.wanted.notify_one();
        // Without one in time, by what is known.
        let _ = tokio::time::timeout(PATIENCE, looks.wait_for(|l| l.done > begun)).await;
        self.good(ending)
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
        self.0.looks.send_modify(|l| l.done = l.begun);
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
        assert!(paths.takes("x").await && !paths.closed());
        paths.only(["a", "b"], LONG);
        assert!(paths.takes("a").await && paths.takes("b").await && paths.closed());
        for other in ["", "x", "aa", "A", "a/", "ab"] {
            paths.only(["a", "b"], LONG);
            assert!(!paths.takes(other).await, "{other}");
        }
        tokio::time::advance(LONG + Duration::from_millis(1)).await;
        assert!(paths.takes("x").await && !paths.closed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_is_judged_by_a_look_that_began_after_he_came() {
        let paths = Arc::new(Paths::default());
        paths.only(["old"], LONG);
        let under_way = paths.look();
        let asks = tokio::spawn({
            let paths = paths.clone();
            async move { paths.takes("new").await }
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
}
