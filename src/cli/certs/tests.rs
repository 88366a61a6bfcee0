use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use clap::Parser as _;

use super::{Args, run};
use crate::certs::Facts;

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn certs(out: &Path, more: &[&str]) -> anyhow::Result<()> {
    let out = out.to_str().expect("UTF-8");
    let cli = Cli::try_parse_from(["certs", "--out", out, "--output", "json"].iter().chain(more))?;
    run(&cli.args).map(|_| ())
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).expect(name)
}

#[test]
fn leafs_are_renewed_by_the_same_ca_and_nothing_is_overwritten_unasked() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("pki");
    certs(&out, &["--dns", "wattlane.example,10.0.0.7"]).expect("made");
    for key in ["ca.key", "tls.key", "client.key"] {
        let mode = std::fs::metadata(out.join(key)).expect(key).permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{key}");
    }
    let facts = Facts::of_pem(read(&out, "tls.crt").as_bytes()).expect("a certificate");
    assert!(facts.names.contains(&"wattlane.example".to_owned()) && facts.names.contains(&"localhost".to_owned()));

    let (ca, tls) = (read(&out, "ca.crt"), read(&out, "tls.crt"));
    let refused = certs(&out, &[]).expect_err("it is there already").to_string();
    assert!(refused.contains("--force"), "{refused}");
    assert_eq!(read(&out, "tls.crt"), tls);

    certs(&out, &["--force"]).expect("renewed");
    assert_eq!(read(&out, "ca.crt"), ca);
    assert_ne!(read(&out, "tls.crt"), tls);
    certs(&out, &["--force", "--new-ca"]).expect("all new");
    assert_ne!(read(&out, "ca.crt"), ca);
}

#[test]
fn half_a_ca_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("ca.crt"), "x").expect("writes");
    let error = certs(folder.path(), &[]).expect_err("half a CA").to_string();
    assert!(error.contains("belong together"), "{error}");
}
