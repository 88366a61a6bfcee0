//! The measurements of wattlane, so that anyone can repeat them. See loadtest/README.md.

mod abuse;
mod admission;
mod allocate;
mod apiserver;
mod bodies;
mod chart;
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
mod options;
mod output;
mod plot;
mod population;
mod power;
mod prepared;
mod quality;
mod scrape;
mod server;
mod stats;
mod table;
mod topology;
mod verbs;
mod watched;

use clap::{CommandFactory as _, FromArgMatches as _};
use serde_json::Value;

use chart::Chart;
use output::{Measured, Output};

#[derive(Debug, clap::Parser)]
#[command(about = "Measures wattlane: one subcommand a scenario")]
struct Cli {
    #[command(flatten)]
    output: Output,
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Debug, clap::Subcommand)]
enum Scenario {
    /// filter and prioritize over TLS at several node counts
    Verbs(verbs::Args),
    /// AdmissionReviews over TLS, on kept connections and on new ones
    Admission(admission::Args),
    /// filter and prioritize while the cluster changes, and how long a change takes to be seen
    Churn(churn::Args),
    /// The client of verbs beside others who send bodies that are large, cut off or slow
    Bodies(bodies::Args),
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
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut runtime = match &cli.scenario {
        Scenario::Watched(_) => tokio::runtime::Builder::new_multi_thread(),
        // One thread: the client has one core, the server another.
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let name = matches.subcommand_name().unwrap_or_default();
    runtime.enable_all().build()?.block_on(run(&cli, name))
}

async fn run(cli: &Cli, name: &str) -> anyhow::Result<()> {
    cli.output.ready(name)?;
    let (measured, table, charts): (Measured, fn(&Value) -> String, &[Chart]) = match &cli.scenario {
        Scenario::Verbs(args) => (verbs::run(args).await?.into(), verbs::table, verbs::CHARTS),
        Scenario::Admission(args) => (admission::run(args).await?.into(), admission::table, admission::CHARTS),
        Scenario::Churn(args) => (churn::run(args).await?.into(), churn::table, churn::CHARTS),
        Scenario::Bodies(args) => (bodies::run(args).await?.into(), bodies::table, bodies::CHARTS),
        Scenario::Memory(args) => (memory::run(args).await?.into(), memory::table, memory::CHARTS),
        Scenario::Watched(args) => return watched::run(args).await,
        Scenario::Loop(args) => (Box::pin(closed::run(args)).await?.into(), closed::table, closed::CHARTS),
        Scenario::Allocate(args) => (allocate::run(args)?.into(), allocate::table, allocate::CHARTS),
        Scenario::Topology(args) => (topology::run(args)?.into(), topology::table, topology::CHARTS),
        Scenario::Class(args) => (class::run(args)?.into(), class::table, class::CHARTS),
        Scenario::Mig(args) => (mig::run(args)?.into(), mig::table, mig::CHARTS),
        Scenario::Openb(args) => (openb::run(args)?.into(), openb::table, openb::CHARTS),
        Scenario::Power(args) => (power::run(args)?.into(), power::table, power::CHARTS),
    };
    cli.output.write(name, &measured, table, charts)
}
