//! New certificate files are served to new connections; connections that are there, and a broken pair, change nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use wattlane::certs::{Authority, Facts, Pair};
use wattlane::server::{Limits, Material, Reloaded, Tls, TlsOptions};

use crate::support::{BOTH, Http, Peer, args, eventually, serving_pair, start_with};

const FILTER: &str = "/extender/filter";

fn write(dir: &Path, pair: &Pair) {
    std::fs::write(dir.join("tls.crt"), &pair.cert).expect("writes");
    std::fs::write(dir.join("tls.key"), &pair.key).expect("writes");
}

fn from_files(dir: &Path) -> TlsOptions {
    TlsOptions {
        cert: Material::File(dir.join("tls.crt")),
        key: Material::File(dir.join("tls.key")),
        client_ca: None,
        client_names: vec![],
        admission_names: vec![],
    }
}

/// The certificate that a new connection is shown.
async fn shown(peer: &Peer) -> CertificateDer<'static> {
    let stream = peer.tls(Http::One).await.expect("shakes hands");
    let (_, session) = stream.get_ref();
    session.peer_certificates().expect("a certificate")[0]
        .clone()
        .into_owned()
}

fn der(pair: &Pair) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pair.cert.as_bytes()).expect("PEM")
}

#[tokio::test]
async fn new_files_are_for_new_connections_and_old_ones_stay() {
    let dir = TempDir::new().expect("a folder");
    let authority = Authority::new().expect("a CA");
    let (first, second) = (serving_pair(&authority), serving_pair(&authority));
    write(dir.path(), &first);
    let tls = Arc::new(Tls::load(from_files(dir.path())).expect("loads"));
    let server = start_with(Limits::default(), authority, tls.clone()).await;
    let peer = server.peer();
    assert_eq!(shown(&peer).await, der(&first));
    let mut old = vec![];
    for http in BOTH {
        old.push(peer.connect(http).await.expect("connects"));
    }

    assert_eq!(tls.reload().expect("reads"), Reloaded::Unchanged);
    write(dir.path(), &second);
    assert_eq!(tls.reload().expect("reads"), Reloaded::Taken);
    assert_eq!(shown(&peer).await, der(&second));
    assert_eq!(tls.not_after(), Facts::of(&der(&second)).expect("reads").not_after);
    for conn in &mut old {
        assert_eq!(
            conn.post(FILTER, args("p", &["ok"])).await.expect("still there").status,
            200
        );
    }

    // Half written: the certificate is new, the key not yet.
    let third = serving_pair(&server.authority);
    std::fs::write(dir.path().join("tls.crt"), &third.cert).expect("writes");
    let error = format!("{:#}", tls.reload().expect_err("two halves"));
    assert!(error.contains("do not belong together"), "{error}");
    assert_eq!(shown(&peer).await, der(&second));
    write(dir.path(), &third);
    assert_eq!(tls.reload().expect("reads"), Reloaded::Taken);
    assert_eq!(shown(&peer).await, der(&third));
}

/// As the kubelet does it: a folder of a time, and two levels of symlinks to it.
#[tokio::test]
async fn a_projected_volume_that_is_swapped_is_seen() {
    let dir = TempDir::new().expect("a folder");
    let authority = Authority::new().expect("a CA");
    let (first, second) = (serving_pair(&authority), serving_pair(&authority));
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, dir.path().join(at)).expect("links");
    for (folder, pair) in [("..2026_1", &first), ("..2026_2", &second)] {
        std::fs::create_dir(dir.path().join(folder)).expect("makes");
        write(&dir.path().join(folder), pair);
    }
    link("..2026_1", "..data");
    for file in ["tls.crt", "tls.key"] {
        link(&format!("..data/{file}"), file);
    }
    let tls = Arc::new(Tls::load(from_files(dir.path())).expect("loads"));
    let server = start_with(Limits::default(), authority, tls.clone()).await;
    assert_eq!(shown(&server.peer()).await, der(&first));
    link("..2026_2", "..data_tmp");
    std::fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).expect("swaps");
    assert_eq!(tls.reload().expect("reads"), Reloaded::Taken);
    assert_eq!(shown(&server.peer()).await, der(&second));
}

#[tokio::test]
async fn a_client_ca_that_appears_in_place_of_another_is_taken() {
    let dir = TempDir::new().expect("a folder");
    let authority = Authority::new().expect("a CA");
    let (old, new) = (Authority::new().expect("a CA"), Authority::new().expect("a CA"));
    write(dir.path(), &serving_pair(&authority));
    let ca = dir.path().join("client-ca.crt");
    std::fs::write(&ca, &old.pair().cert).expect("writes");
    let options = TlsOptions {
        client_ca: Some(Material::File(ca.clone())),
        ..from_files(dir.path())
    };
    let tls = Arc::new(Tls::load(options).expect("loads"));
    let server = start_with(Limits::default(), authority, tls.clone()).await;
    let client = |authority: &Authority| Peer {
        client: Some(authority.client("kube-scheduler", 1).expect("signs")),
        ..server.peer()
    };
    let may = async |peer: &Peer| match peer.connect(Http::Two).await {
        Ok(mut conn) => conn
            .post(FILTER, args("p", &["ok"]))
            .await
            .is_ok_and(|a| a.status == 200),
        Err(_) => false,
    };
    assert_eq!((may(&client(&old)).await, may(&client(&new)).await), (true, false));
    // While clients change over both are trusted.
    std::fs::write(&ca, format!("{}{}", old.pair().cert, new.pair().cert)).expect("writes");
    assert_eq!(tls.reload().expect("reads"), Reloaded::Taken);
    assert_eq!((may(&client(&old)).await, may(&client(&new)).await), (true, true));
    std::fs::write(&ca, &new.pair().cert).expect("writes");
    assert_eq!(tls.reload().expect("reads"), Reloaded::Taken);
    assert_eq!((may(&client(&old)).await, may(&client(&new)).await), (false, true));
}

#[tokio::test]
async fn the_watch_counts_each_fault_once_and_says_when_the_certificate_ends() {
    let dir = TempDir::new().expect("a folder");
    let authority = Authority::new().expect("a CA");
    let first = serving_pair(&authority);
    write(dir.path(), &first);
    let tls = Arc::new(Tls::load(from_files(dir.path())).expect("loads"));
    let server = start_with(Limits::default(), authority, tls.clone()).await;
    let stop = CancellationToken::new();
    let every = Duration::from_millis(5);
    let watch = tls
        .clone()
        .watch(every, server.metrics.clone(), server.readiness.clone(), stop.clone());
    let watching = tokio::spawn(watch);
    let refused = || server.value(r#"wattlane_tls_reloads_total{outcome="refused"}"#);
    let taken = || server.value(r#"wattlane_tls_reloads_total{outcome="taken"}"#);
    let expiry = || server.value("wattlane_tls_certificate_expiry_timestamp_seconds") as i64;
    eventually("the expiry is known", || expiry() == tls.not_after()).await;

    // One fault after the other, with nothing good in between.
    std::fs::remove_file(dir.path().join("tls.key")).expect("removes");
    eventually("a missing file is counted", || refused() == 1.0).await;
    std::fs::write(dir.path().join("tls.key"), "nonsense").expect("writes");
    eventually("so is a broken one", || refused() >= 2.0).await;
    assert_eq!(shown(&server.peer()).await, der(&first));
    let faults = refused();
    let before = tls.not_after();
    let longer = server.authority.serving(&["localhost".into()], 60).expect("signs");
    // The key first: the pair is whole when the certificate is there.
    std::fs::write(dir.path().join("tls.key"), &longer.key).expect("writes");
    std::fs::write(dir.path().join("tls.crt"), &longer.cert).expect("writes");
    eventually("a good pair is taken", || taken() == 1.0).await;
    eventually("and its end known", || expiry() == tls.not_after() && expiry() > before).await;
    // Between the two writes a mixed pair may have been seen: one more fault at most, not one a look.
    assert!(refused() <= faults + 2.0);
    stop.cancel();
    watching.await.expect("ends");
}

#[test]
fn what_cannot_be_served_is_said_at_the_start() {
    let dir = TempDir::new().expect("a folder");
    let error = |options| format!("{:#}", Tls::load(options).err().expect("not usable"));
    assert!(error(from_files(dir.path())).contains("tls.crt"));
    let authority = Authority::new().expect("a CA");
    let pair = serving_pair(&authority);
    let text = |cert: &str, key: &str, ca: Option<&str>| TlsOptions {
        cert: Material::Text(cert.into()),
        key: Material::Text(key.into()),
        client_ca: ca.map(|c| Material::Text(c.into())),
        client_names: vec![],
        admission_names: vec![],
    };
    for (options, word) in [
        (text("", &pair.key, None), "no certificate"),
        (text(&pair.cert, "", None), "no private key"),
        (text(&pair.cert, &serving_pair(&authority).key, None), "belong together"),
        (text(&pair.cert, &pair.key, Some("")), "client CA"),
    ] {
        let error = error(options);
        assert!(error.contains(word), "{error}");
    }
}
