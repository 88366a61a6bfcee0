//! The measurements of wattlane, so that anyone can repeat them. See loadtest/README.md.

mod admission;
mod allocate;
mod class;
mod client;
mod closed;
mod fixture;
mod mig;
mod power;
mod prepared;
mod quality;
mod scrape;
mod server;
mod stats;
mod topology;
mod verbs;

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
    /// What a filling cluster draws, and a hard budget
    Power(power::Args),
}

// One thread: the client has one core, the server another.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (report, table): (_, fn(&Value) -> String) = match &cli.scenario {
        Scenario::Verbs(args) => (verbs::run(args).await?, verbs::table),
        Scenario::Admission(args) => (admission::run(args).await?, admission::table),
        Scenario::Loop(args) => (Box::pin(closed::run(args)).await?, closed::table),
        Scenario::Allocate(args) => (allocate::run(args)?, allocate::table),
        Scenario::Topology(args) => (topology::run(args)?, topology::table),
        Scenario::Class(args) => (class::run(args)?, class::table),
        Scenario::Mig(args) => (mig::run(args)?, mig::table),
        Scenario::Power(args) => (power::run(args)?, power::table),
    };
    let text = match cli.output {
        Output::Table => table(&report),
        Output::Json => format!("{report}\n"),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
