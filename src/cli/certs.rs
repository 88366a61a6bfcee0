//! `wattlane certs`: a CA, the serving pair and the client pair as files, and the CA put into the webhook manifest.
//! Making certificates is `certs`'s business; this file owns names, permissions and what is overwritten when.

mod bundle;
mod secret;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde_json::json;

use super::{Output, named};
use crate::certs::{Authority, Pair};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder for ca.crt, ca.key, tls.crt, tls.key, client.crt and client.key; made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Names and IP addresses that clients reach the service by; localhost and 127.0.0.1 are always among them.
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = named::host,
        default_value = "wattlane.wattlane-system.svc,wattlane-extender.wattlane-system.svc"
    )]
    dns: Vec<String>,
    /// Days that the serving and the client certificate are valid.
    #[arg(long, default_value_t = 365, allow_negative_numbers = true)]
    days: u32,
    /// Common name of the client certificate.
    #[arg(long, value_parser = named::client, default_value = "kube-scheduler")]
    client_name: String,
    /// Replace certificates that are there. The CA that is there stays and signs the new ones.
    #[arg(long)]
    force: bool,
    /// With --force: a new CA as well, over the one that is there. Everybody who trusts the old one must be told, before
    /// wattlane has the new certificates.
    #[arg(long, requires = "force")]
    new_ca: bool,
    /// Write the CA into every caBundle of these manifests, in place.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    ca_bundle_into: Vec<PathBuf>,
    /// Of the Secret that `serve --tls-secret` keeps: ca.crt with all that is trusted, and a client pair for a kube-scheduler
    /// that cannot mount the Secret of --tls-client-secret, or with --client-name for kube-apiserver. Nothing is written to
    /// the cluster.
    #[arg(long, value_name = "[NAMESPACE/]NAME", conflicts_with_all = ["dns", "new_ca", "ca_bundle_into"])]
    from_secret: Option<String>,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) async fn run_any(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.from_secret {
        Some(secret) => secret::run(args, secret).await,
        None => run(args),
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let file = |name: &str| args.out.join(name);
    let leafs = ["tls.crt", "tls.key", "client.crt", "client.key"].map(file);
    nothing_there(args, &leafs)?;
    // Before anything is written: a manifest that cannot take the CA stops the command.
    let manifests = args
        .ca_bundle_into
        .iter()
        .map(|f| bundle::Manifest::read(f))
        .collect::<anyhow::Result<Vec<_>>>()?;
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;

    let (ca_cert, ca_key) = (file("ca.crt"), file("ca.key"));
    let replaced = args.new_ca && ca_cert.exists();
    let (authority, made) = match (ca_cert.exists(), ca_key.exists()) {
        _ if args.new_ca => (Authority::new()?, true),
        (false, false) => (Authority::new()?, true),
        (true, true) => {
            let read =
                |path: &Path| std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
            let pair = Pair {
                cert: read(&ca_cert)?,
                key: read(&ca_key)?,
            };
            (
                Authority::read(&pair).with_context(|| format!("the CA in {}", args.out.display()))?,
                false,
            )
        }
        _ => bail!(
            "{} holds half a CA: ca.crt and ca.key belong together (--force --new-ca makes a new one)",
            args.out.display()
        ),
    };
    let mut names = named::given(&args.dns);
    for local in ["localhost", "127.0.0.1"] {
        if !names.iter().any(|n| n == local) {
            names.push(local.to_owned());
        }
    }
    let serving = authority.serving(&names, args.days)?;
    let client = authority.client(&args.client_name, args.days)?;

    if made {
        write_pair(&ca_cert, &ca_key, authority.pair())?;
    }
    write_pair(&leafs[0], &leafs[1], &serving)?;
    write_pair(&leafs[2], &leafs[3], &client)?;
    for manifest in &manifests {
        manifest.write(&authority.pair().cert)?;
    }
    print(args, &names, made)?;
    if replaced {
        super::note(&format!("{}: {CA_IS_GONE}", ca_cert.display()));
    }
    Ok(ExitCode::SUCCESS)
}

const CA_IS_GONE: &str = "the CA that was there is overwritten. Who trusts only that one (caBundle, kube-scheduler's caFile, \
    --client-ca) refuses these certificates until it has the new ca.crt; calls fail meanwhile, unless both stand in each \
    of them first: certs/README.md, \"A new CA\"";

fn nothing_there(args: &Args, files: &[PathBuf]) -> anyhow::Result<()> {
    if let Some(there) = files.iter().find(|f| f.exists()).filter(|_| !args.force) {
        bail!(
            "{} is there already: --force replaces it (and keeps the CA)",
            there.display()
        );
    }
    Ok(())
}

fn print(args: &Args, names: &[String], made: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Json => {
            let files =
                ["ca.crt", "ca.key", "tls.crt", "tls.key", "client.crt", "client.key"].map(|f| args.out.join(f));
            let report = json!({"out": args.out, "files": files, "newCa": made, "names": names,
                "clientName": args.client_name, "days": args.days, "caBundleInto": args.ca_bundle_into});
            writeln!(out, "{report}")?;
        }
        Output::Table => {
            let ca = if made { "a new CA" } else { "the CA that was there" };
            writeln!(out, "{}: signed by {ca}, valid {} days", args.out.display(), args.days)?;
            writeln!(out, "  tls.crt     for {}", names.join(", "))?;
            writeln!(out, "  client.crt  for {}", args.client_name)?;
            for file in &args.ca_bundle_into {
                writeln!(out, "  caBundle    in {}", file.display())?;
            }
            writeln!(
                out,
                "ca.key signs for everyone who trusts ca.crt: keep it out of the cluster."
            )?;
        }
    }
    Ok(())
}

fn write_pair(cert: &Path, key: &Path, pair: &Pair) -> anyhow::Result<()> {
    write(key, &pair.key, 0o600)?;
    write(cert, &pair.cert, 0o644)
}

/// Whole or not at all, and never readable by others in between.
fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let fresh = path.with_extension("new");
    let attempt = || -> std::io::Result<()> {
        match std::fs::remove_file(&fresh) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)
    };
    attempt().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests;
