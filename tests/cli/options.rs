//! What is wrong with an option is said with its name and its file, before anything is made or served.

use super::{SCENARIO, wattlane, write};

fn refused(args: &[&str]) -> String {
    let output = wattlane(args);
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    said
}

#[test]
fn nonsense_in_an_option_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("pki");
    let out = out.to_str().expect("UTF-8");
    for (args, words) in [
        (
            vec!["certs", "--out", out, "--dns", "a b"],
            vec!["--dns", "no DNS name"],
        ),
        (
            vec!["certs", "--out", out, "--dns", "a,10.0.0.256"],
            vec!["--dns", "10.0.0.256"],
        ),
        (
            vec!["certs", "--out", out, "--client-name", ""],
            vec!["--client-name", "no name"],
        ),
        (
            vec!["serve", "--listen", "localhost:18443"],
            vec!["--listen", "write IP:PORT"],
        ),
        (
            vec!["serve", "--admin-listen", "8081"],
            vec!["--admin-listen", "write IP:PORT"],
        ),
        (
            vec!["serve", "--tls-secret", "x", "--tls-name", "a b"],
            vec!["--tls-name", "no DNS name"],
        ),
        (
            vec!["serve", "--admission-client-name", ""],
            vec!["--admission-client-name", "no name"],
        ),
        (
            vec!["simulate", "--log-level", "debugg"],
            vec!["--log-level", "\"debugg\" is no level", "info"],
        ),
    ] {
        let said = refused(&args);
        assert!(words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
    }
    assert!(!folder.path().join("pki").exists());
}

#[test]
fn a_file_of_serve_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let pki = |name: &str| {
        let out = folder.path().join(name);
        let made = wattlane(&["certs", "--out", out.to_str().expect("UTF-8")]);
        assert!(made.status.success());
        move |file: &str| out.join(file).to_str().expect("UTF-8").to_owned()
    };
    let (a, b) = (pki("a"), pki("b"));
    let empty = write(folder.path(), "empty", "");
    let (cert, key, other) = (a("tls.crt"), a("tls.key"), b("tls.key"));
    let serve = |more: &[&str]| {
        let fixed = [
            "serve",
            "--cluster",
            SCENARIO,
            "--listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
        ];
        refused(&[&fixed, more].concat())
    };
    for (args, words) in [
        (
            vec!["--tls-cert", &cert, "--tls-key", &other],
            format!("--tls-cert {cert} and --tls-key {other} do not belong together"),
        ),
        (
            vec!["--tls-cert", &empty, "--tls-key", &key],
            format!("--tls-cert {empty}: no certificate in it"),
        ),
        (
            vec!["--tls-cert", &cert, "--tls-key", &empty],
            format!("--tls-key {empty}: no private key in it"),
        ),
        (
            vec!["--tls-cert", "/nowhere", "--tls-key", &key],
            "--tls-cert /nowhere: cannot read it: ".to_owned(),
        ),
        (
            vec!["--client-ca", &empty],
            format!("--client-ca {empty}: no certificate in it"),
        ),
    ] {
        let said = serve(&args);
        assert!(said.contains(&words), "{args:?}: {said}");
    }
}

#[test]
fn a_ca_that_is_overwritten_is_spoken_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("UTF-8");
    for (more, said) in [
        (&[][..], false),
        (&["--force"], false),
        (&["--force", "--new-ca"], true),
    ] {
        let output = wattlane(&[&["certs", "--out", out], more].concat());
        assert!(output.status.success());
        let words = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(
            words.contains("ca.crt: the CA that was there is overwritten"),
            said,
            "{more:?}: {words}"
        );
        assert_eq!(words.contains("caBundle"), said, "{words}");
    }
}
