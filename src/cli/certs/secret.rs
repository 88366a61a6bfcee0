//! `wattlane certs --from-secret`: what a kube-scheduler outside the cluster's pods needs, out of the Secret that
//! `serve --tls-secret` keeps, with the rights of whoever runs it.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::json;

use super::{Args, Output, nothing_there, write, write_pair};
use crate::certs::keyring::Keyring;
use crate::cluster::kube::KubeCluster;
use crate::cluster::secrets::CertStore as _;
use crate::keeper::data;

pub(super) async fn run(args: &Args, secret: &str) -> anyhow::Result<ExitCode> {
    let [ca, cert, key] = ["ca.crt", "client.crt", "client.key"].map(|name| args.out.join(name));
    nothing_there(args, &[ca.clone(), cert.clone(), key.clone()])?;
    let cluster = KubeCluster::connect(None).await?;
    let name = super::super::secret_name(secret, cluster.namespace())?;
    let found = cluster.secret(&name).await?;
    let ring = Keyring::read(&data(&found), crate::certs::now()).0;
    let signer = ring.signer().with_context(|| {
        format!("Secret {name} holds no CA that can sign: is it the one of `serve --tls-secret`, and has it run?")
    })?;
    let client = signer.client(&args.client_name, args.days)?;
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    write(&ca, &ring.bundle(), 0o644)?;
    write_pair(&cert, &key, &client)?;
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Json => writeln!(
            out,
            "{}",
            json!({"out": args.out, "files": [ca, cert, key], "clientName": args.client_name, "days": args.days})
        )?,
        Output::Table => writeln!(
            out,
            "{}: ca.crt, and client.crt for {}, valid {} days; write them anew before that, and when \
             wattlane_tls_ca_switch_timestamp_seconds is not 0",
            args.out.display(),
            args.client_name,
            args.days
        )?,
    }
    Ok(ExitCode::SUCCESS)
}
