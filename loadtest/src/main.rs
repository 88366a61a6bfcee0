//! The measurements of wattlane, so that anyone can repeat them. See loadtest/README.md.

mod admission;
mod allocate;
mod apiserver;
mod churn;
mod class;
mod client;
mod closed;
mod fixture;
mod lives;
mod load;
mod memory;
mod mig;
mod openb;
mod plot;
mod population;
mod power;
mod prepared;
mod quality;
mod scrape;
mod server;
mod stats;
mod topology;
mod verbs;
mod watched;

use std::io::Write as _;

use clap::Parser as _;
use serde_json::Value;

#[derive(Debug, clap::Parser)]
#[command(about = "Measures wattlane: one subcommand a scenario")]
struct Cli {
    #[arg(long, global = true, default_value = "table")]
    output: Output,
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Json,
}

#[derive(Debug, clap::Subcommand)]
enum Scenario {
    /// filter and prioritize over TLS at several node counts
    Verbs(verbs::Args),
    /// AdmissionReviews over TLS, on kept connections and on new ones
    Admission(admission::Args),
    /// filter and prioritize while the cluster changes, and how long a change takes to be seen
    Churn(churn::Args),
    /// Resident memory with a large cluster known, and the time to the first answer
    Memory(memory::Args),
    #[command(hide = true)]
    Watched(watched::Args),
    /// Pods through the real control plane: the in-tree plugin and wattlane, in turns
    Loop(closed::Args),
    /// One decision on one node: wattlane and the in-tree allocator, in turns
    Allocate(allocate::Args),
    /// Links between the cards of a pod, and the groups that stay whole
    Topology(topology::Args),
    /// Pods of several cards on nodes with several wattages
    Class(class::Args),
    /// Partitions that come and go on A100 cards
    Mig(mig::Args),
    /// The inflation experiment on the openb trace: what is given out, and what it draws
    Openb(openb::Args),
    /// What a filling cluster draws, and a hard budget
    Power(power::Args),
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut runtime = match &cli.scenario {
        Scenario::Watched(_) => tokio::runtime::Builder::new_multi_thread(),
        // One thread: the client has one core, the server another.
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    runtime.enable_all().build()?.block_on(run(&cli))
}

async fn run(cli: &Cli) -> anyhow::Result<()> {
    let (report, table): (_, fn(&Value) -> String) = match &cli.scenario {
        Scenario::Verbs(args) => (verbs::run(args).await?, verbs::table),
        Scenario::Admission(args) => (admission::run(args).await?, admission::table),
        Scenario::Churn(args) => (churn::run(args).await?, churn::table),
        Scenario::Memory(args) => (memory::run(args).await?, memory::table),
        Scenario::Watched(args) => return watched::run(args).await,
        Scenario::Loop(args) => (Box::pin(closed::run(args)).await?, closed::table),
        Scenario::Allocate(args) => (allocate::run(args)?, allocate::table),
        Scenario::Topology(args) => (topology::run(args)?, topology::table),
        Scenario::Class(args) => (class::run(args)?, class::table),
        Scenario::Mig(args) => (mig::run(args)?, mig::table),
        Scenario::Openb(args) => (openb::run(args)?, openb::table),
        Scenario::Power(args) => (power::run(args)?, power::table),
    };
    let text = match cli.output {
        Output::Table => table(&report),
        Output::Json => format!("{report}\n"),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
