//! CAs that wattlane did not make, or that no client would take, at every place of the Secret where one can stand. Nobody who
//! trusts what was published may notice, nothing of them stays, and certificates go on being renewed.

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use wattlane::certs::{Authority, DAY, Facts, Pair, trust};

use crate::world::{LEAF, World, names};

const ODDITIES: [&str; 10] = [
    "name constraints",
    "unknown critical extension",
    "not valid yet",
    "expired",
    "may not sign",
    "for serving only",
    "no CA at all",
    "intermediate",
    "longer chains",
    "another name",
];

/// A CA as wattlane makes them, but for one thing.
fn odd(which: &str, now: i64) -> Pair {
    let key = KeyPair::generate().expect("a key");
    let id: String = key
        .public_key_raw()
        .iter()
        .rev()
        .take(4)
        .map(|b| format!("{b:02x}"))
        .collect();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let name = if which == "another name" {
        "Example Corp CA"
    } else {
        "wattlane CA"
    };
    params
        .distinguished_name
        .push(DnType::CommonName, format!("{name} {id}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let (mut from, mut until) = (now - 3600, now + 300 * DAY);
    match which {
        "name constraints" => {
            params.name_constraints = Some(NameConstraints {
                permitted_subtrees: vec![GeneralSubtree::DnsName("example.com".into())],
                excluded_subtrees: vec![],
            });
        }
        "unknown critical extension" => {
            let mut extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
            extension.set_criticality(true);
            params.custom_extensions = vec![extension];
        }
        "not valid yet" => from = now + 30 * DAY,
        "expired" => (from, until) = (now - 30 * DAY, now - DAY),
        "may not sign" => params.key_usages = vec![KeyUsagePurpose::DigitalSignature],
        "for serving only" => params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
        "no CA at all" => params.is_ca = IsCa::ExplicitNoCa,
        "longer chains" => params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
        "intermediate" | "another name" => {}
        other => panic!("{other}"),
    }
    let date = |at: i64| rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(at.unsigned_abs());
    (params.not_before, params.not_after) = (date(from), date(until));
    let cert = if which == "intermediate" {
        let root = KeyPair::generate().expect("a key");
        let mut above = CertificateParams::default();
        above.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.signed_by(&key, &Issuer::new(above, root))
    } else {
        params.self_signed(&key)
    };
    Pair {
        cert: cert.expect("signs").pem(),
        key: key.serialize_pem(),
    }
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM")
}

/// Two looks of each replica, and what must hold after every one; `before`: the bundle that a scheduler read in time.
async fn heals(world: &mut World, before: &[CertificateDer<'static>], what: &str) {
    let client = world.store.text("client", "tls.crt");
    for at in [0, 1, 0, 1] {
        assert_eq!(world.replicas[at].look().await, [""; 0], "{what}");
        assert_eq!(world.apiserver_is_well(), Ok(()), "{what}");
        assert_eq!(world.may_call(&client), Ok(()), "{what}");
        let served = world.replicas[at].in_use().expect("serves").cert.clone();
        let known = trust::serves(before, served.as_bytes(), &names(), world.now());
        assert!(known.is_ok(), "{what}: {known:?}");
    }
}

fn nowhere(world: &World, odd: &str, what: &str) {
    let text = |secret, key| world.store.text(secret, key);
    let bundles = [
        trust::authorities(text("certs", "ca.crt").as_bytes()),
        world.store.bundle(0),
        world.store.bundle(1),
    ];
    for bundle in bundles {
        assert!(!bundle.contains(&der(odd)) && !bundle.is_empty(), "{what}");
    }
    assert!(
        !text("certs", "ca.crt").contains(odd) && !text("client", "ca.crt").contains(odd),
        "{what}"
    );
}

#[tokio::test]
async fn an_odd_ca_is_put_aside_wherever_it_stands() {
    for which in ODDITIES {
        for place in ["signing-ca", "next-ca", "ca.crt"] {
            let what = format!("{which} as {place}");
            let mut world = World::new();
            world.settle().await;
            let before = world.store.bundle(0);
            let odd = odd(which, world.now());
            // In front, where it is met first.
            let bundle = odd.cert.clone() + &world.store.text("certs", "ca.crt");
            world.store.meddle("certs", "ca.crt", Some(bundle.as_bytes()));
            if place != "ca.crt" {
                world
                    .store
                    .meddle("certs", &format!("{place}.crt"), Some(odd.cert.as_bytes()));
                world
                    .store
                    .meddle("certs", &format!("{place}.key"), Some(odd.key.as_bytes()));
            }
            heals(&mut world, &before, &what).await;
            nowhere(&world, &odd.cert, &what);
            // One that has only expired is ours as far as anybody can tell.
            let done = match which {
                "expired" => world.count("tidy", "done") + world.count("announce", "healed"),
                _ => ["announce", "tidy"].map(|a| world.count(a, "healed")).iter().sum(),
            };
            assert!(done >= 1.0, "{what}");
            let writes = world.store.state().writes;
            world.settle().await;
            assert_eq!(world.store.state().writes, writes, "{what}: never at rest");
            // Renewal goes on, if need be by a new CA that everybody got to know in time.
            let first = world.store.text("certs", "tls.crt");
            for _ in 0..8 {
                world.pass(LEAF / 6);
                world.look().await;
                assert_eq!(world.apiserver_is_well(), Ok(()), "{what}");
            }
            assert_ne!(world.store.text("certs", "tls.crt"), first, "{what}");
        }
    }
}

/// As an older wattlane, or a hand, may have left it: all that is served and published is of a CA of somebody else.
#[tokio::test]
async fn a_whole_set_of_somebody_else_is_replaced_with_overlap() {
    for which in ["another name", "longer chains"] {
        let mut world = World::new();
        let foreign = Authority::of(&odd(which, world.now())).expect("a CA");
        let (now, name) = (world.now(), names());
        let served = foreign.serving_at(&name, now, LEAF).expect("signs");
        let caller = foreign.client_at("kube-scheduler", now, LEAF).expect("signs");
        let of = foreign.pair();
        for (secret, key, value) in [
            ("certs", "signing-ca.crt", &of.cert),
            ("certs", "signing-ca.key", &of.key),
            ("certs", "ca.crt", &of.cert),
            ("certs", "tls.crt", &served.cert),
            ("certs", "tls.key", &served.key),
            ("client", "ca.crt", &of.cert),
            ("client", "tls.crt", &caller.cert),
            ("client", "tls.key", &caller.key),
        ] {
            world.store.meddle(secret, key, Some(value.as_bytes()));
        }
        let before = trust::authorities(of.cert.as_bytes());
        heals(&mut world, &before, which).await;
        assert_eq!(world.count("announce", "healed"), 1.0, "{which}");
        let mut switched = false;
        for _ in 0..40 {
            world.pass(LEAF / 30);
            let known = world.store.bundle(0);
            world.look().await;
            assert_eq!(world.apiserver_is_well(), Ok(()), "{which}");
            let now_served = world.store.text("certs", "tls.crt");
            let accepted = trust::serves(&known, now_served.as_bytes(), &names(), world.now());
            assert!(accepted.is_ok(), "{which}: {accepted:?}");
            if now_served != served.cert && !switched {
                switched = true;
                let waited = world.now() - now;
                assert!(waited >= LEAF * 3 / 4, "{which}: after {} days", waited / DAY);
            }
        }
        assert!(switched, "{which}");
        nowhere(&world, &of.cert, which);
    }
}

/// Dates of the future alone say nothing of who is wrong: with what is served valid now, they are odd; without, our clock is.
#[tokio::test]
async fn a_ca_of_the_future_beside_what_is_valid_is_odd_and_alone_is_our_clock() {
    let mut world = World::new();
    world.settle().await;
    let early = odd("not valid yet", world.now());
    for (key, value) in [
        ("signing-ca.crt", &early.cert),
        ("signing-ca.key", &early.key),
        ("ca.crt", &early.cert),
    ] {
        world.store.meddle("certs", key, Some(value.as_bytes()));
    }
    let full = world.store.state().secrets["certs"].clone();
    for key in ["tls.crt", "tls.key"] {
        world.store.meddle("certs", key, None);
    }
    let writes = world.store.state().writes;
    let faults = world.replicas[0].look().await;
    assert!(faults.iter().any(|f| f.contains("clock")), "{faults:?}");
    assert_eq!(world.store.state().writes, writes);

    let version = world.store.state().stamp();
    let mut full = full;
    full["metadata"]["resourceVersion"] = version;
    world.store.state().secrets.insert("certs".into(), full);
    world.settle().await;
    nowhere(&world, &early.cert, "beside a valid one");
    assert_eq!(world.apiserver_is_well(), Ok(()));
}

/// Verifiers let pass what the server does not: the keeper makes a proper one of it.
#[tokio::test]
async fn a_client_pair_that_names_nobody_for_sure_is_signed_again() {
    for several in [true, false] {
        let mut world = World::new();
        world.settle().await;
        let key = KeyPair::from_pem(&world.store.text("certs", "signing-ca.key")).expect("a key");
        let issuer = Issuer::from_ca_cert_pem(&world.store.text("certs", "signing-ca.crt"), key).expect("a CA");
        let mut params = CertificateParams::new(vec!["kube-scheduler".to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, "kube-scheduler");
        let now = std::time::Duration::from_secs(world.now().unsigned_abs());
        params.not_before = rcgen::date_time_ymd(1970, 1, 1) + now;
        params.not_after = params.not_before + std::time::Duration::from_secs(LEAF.unsigned_abs());
        if several {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            let names = params.distinguished_name;
            params.distinguished_name = rcgen::DistinguishedName::new();
            params
                .distinguished_name
                .push(DnType::CustomDnType(vec![2, 5, 4, 3]), "admin");
            for (kind, value) in names.iter() {
                params.distinguished_name.push(kind.clone(), value.clone());
            }
        }
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &issuer).expect("signs").pem();
        let facts = Facts::of_pem(cert.as_bytes()).expect("reads");
        assert_eq!((facts.common_names > 1, facts.for_clients), (several, several));
        world.store.meddle("client", "tls.crt", Some(cert.as_bytes()));
        world
            .store
            .meddle("client", "tls.key", Some(key.serialize_pem().as_bytes()));
        assert_eq!(world.may_call(&cert), Ok(()), "the verifier takes it");
        world.settle().await;
        assert_ne!(world.store.text("client", "tls.crt"), cert);
        assert_eq!(world.count("client", "healed"), 1.0);
    }
}
