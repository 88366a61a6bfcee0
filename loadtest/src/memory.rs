//! BENCH.md 3: resident memory with a whole cluster known, and the time from start to the first correct answer; from files,
//! where the cluster itself is in the process, and from an API server, where only the index is.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::apiserver::ApiServer;
use crate::chart::Chart;
use crate::client::Protocol;
use crate::fixture::Fit;
use crate::options;
use crate::population::{KINDS, Population};
use crate::server::{self, Cluster};
use crate::stats::spread;
use crate::table::{rows, table as lines};
use crate::verbs::{self, Case};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    population: Population,
    /// Starts from each; the median is reported, with the range.
    #[arg(long, default_value_t = 3, value_parser = options::runs())]
    runs: usize,
    /// Do not pin the server to core 1.
    #[arg(long)]
    no_pin: bool,
}

/// A file for each kind, as `kubectl get -o json` writes one; returns their bytes.
fn write(population: Population, folder: &Path) -> anyhow::Result<u64> {
    std::fs::create_dir_all(folder)?;
    let mut bytes = 0;
    for kind in KINDS.into_iter().filter(|kind| population.count(kind) > 0) {
        let path = folder.join(format!("{kind}.json"));
        let mut file = std::io::BufWriter::new(std::fs::File::create(&path)?);
        write!(file, r#"{{"apiVersion":"v1","items":["#)?;
        for i in 0..population.count(kind) {
            let mut object = population.object(kind, i);
            if let Some(meta) = object["metadata"].as_object_mut() {
                // kubectl leaves it out unless asked for it.
                meta.remove("managedFields");
            }
            write!(file, "{}{object}", if i == 0 { "" } else { "," })?;
        }
        write!(file, r#"],"kind":"List"}}"#)?;
        file.flush()?;
        bytes += std::fs::metadata(&path)?.len();
    }
    Ok(bytes)
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<Value> {
    let core = (!args.no_pin).then_some(1);
    let folder = tempfile::tempdir()?;
    let (pki, files, kubeconfig) = (
        folder.path().join("pki"),
        folder.path().join("cluster"),
        folder.path().join("kubeconfig"),
    );
    server::certificates(&pki).await?;
    let population = args.population;
    let bytes = write(population, &files)?;
    let api = ApiServer::start(population, 0)?;
    api.write_kubeconfig(&kubeconfig)?;
    let case = Case {
        verb: "filter",
        fit: Fit::All,
        connections: 1,
        protocol: Protocol::Http2,
    };
    let body = verbs::body(case.fit, population.nodes);
    let mut table = vec![];
    for (name, cluster) in [
        ("files", Cluster::Files(&files)),
        ("API server", Cluster::Kubeconfig(&kubeconfig)),
    ] {
        let (mut ready, mut answered, mut ran, mut resident, mut highest) = (vec![], vec![], vec![], vec![], vec![]);
        for _ in 0..args.runs {
            let server = server::start(cluster, &pki, core).await?;
            let mut connections = verbs::open(&server, &pki, case).await?;
            let connection = connections.first_mut().context("no connection")?;
            let answer = connection.post("/extender/filter", body.clone()).await?;
            answered.push(server.begun.elapsed().as_secs_f64());
            ran.push(server.cpu()?.as_secs_f64());
            verbs::check(case, population.nodes, &answer)?;
            ready.push(server.ready_after.as_secs_f64());
            // What a start leaves behind is given back; what requests take is there.
            for _ in 0..50 {
                connection.post("/extender/filter", body.clone()).await?;
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
            let (now, most) = server.resident()?;
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            resident.push(mib(now));
            highest.push(mib(most));
        }
        table.push(json!({"from": name, "readySeconds": spread(&ready),
            "firstAnswerSeconds": spread(&answered), "ranSeconds": spread(&ran), "residentMiB": spread(&resident),
            "highestMiB": spread(&highest)}));
    }
    Ok(
        json!({"scenario": "memory", "nodes": population.nodes, "gpus": population.nodes * crate::fixture::GPUS,
        "pods": population.pods, "claims": population.count("resourceclaims"), "fileBytes": bytes, "pinned": core.is_some(),
        "runs": args.runs, "rows": table}),
    )
}

pub(crate) const CHARTS: &[Chart] = &[
    Chart::spreads(
        "seconds: median and range of the starts",
        &["from"],
        "",
        &[
            ("ready", "readySeconds"),
            ("first answer", "firstAnswerSeconds"),
            ("ran", "ranSeconds"),
        ],
    ),
    Chart::spreads(
        "MiB: median and range of the starts",
        &["from"],
        "",
        &[("resident", "residentMiB"), ("highest", "highestMiB")],
    ),
];

pub(crate) fn table(report: &Value) -> String {
    let columns = [
        ("ready s", "readySeconds", 2),
        ("first answer s", "firstAnswerSeconds", 2),
        ("ran s", "ranSeconds", 2),
        ("resident MiB", "residentMiB", 1),
        ("highest MiB", "highestMiB", 1),
    ];
    format!(
        "{} nodes, {} GPUs, {} pods, {} claims, {} MiB of files; median (range) of {} starts\n{}",
        report["nodes"],
        report["gpus"],
        report["pods"],
        report["claims"],
        report["fileBytes"].as_u64().unwrap_or(0) >> 20,
        report["runs"],
        lines(rows(report), &[("from", "from")], &columns)
    )
}
