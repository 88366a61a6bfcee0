//! The Secret of the client of the extender routes, kube-scheduler: its pair, and the bundle it knows us by. Kept by
//! the same rules as the serving pair.

use super::Facts;
use super::keyring::{BUNDLE, Data, Keyring, LEAF, pair};
use super::rotation::{Cause, View, due};
use super::trust;

/// Common name and DNS name of the client certificate.
pub const NAME: &str = "kube-scheduler";

/// What the Secret should hold, if that is not what it holds. Without a CA that can sign, an unusable pair stays.
///
/// # Errors
/// Nothing can be signed.
pub fn advance(ring: &Keyring, found: &Data, view: &View<'_>) -> anyhow::Result<Option<(Data, Cause)>> {
    let bundle = ring.bundle();
    let usable = pair(found, LEAF.0, LEAF.1).ok().filter(|pair| {
        let named = Facts::of_pem(pair.cert.as_bytes())
            .is_ok_and(|f| f.names.iter().any(|n| n == NAME) && f.names_a_client().is_ok());
        named && trust::calls(&ring.trusted(), pair.cert.as_bytes(), view.now).is_ok()
    });
    let signer = ring.signer.as_ref();
    let renewed = signer.filter(|signer| {
        usable.as_ref().is_none_or(|pair| {
            let end = Facts::of_pem(pair.cert.as_bytes()).map_or(0, |f| f.not_after);
            due(pair, view.now, view.jitter) && view.end(signer.facts()) > end
        })
    });
    let mut wanted = found.clone();
    wanted.insert(BUNDLE.to_owned(), bundle.into_bytes());
    let mut cause = Cause::Due;
    if let Some(signer) = renewed {
        let made = signer.client_at(NAME, view.now, view.lifetimes.leaf())?;
        if usable.is_none() && found.contains_key(LEAF.0) {
            cause = Cause::Healed;
        }
        wanted.insert(LEAF.0.to_owned(), made.cert.into_bytes());
        wanted.insert(LEAF.1.to_owned(), made.key.into_bytes());
    }
    Ok((wanted != *found).then_some((wanted, cause)))
}
