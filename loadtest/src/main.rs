//! The measurements of wattlane, so that anyone can repeat them. See loadtest/README.md.

mod client;
mod fixture;
mod server;
mod stats;
mod verbs;

use std::io::Write as _;

use clap::Parser as _;

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
}

// One thread: the client has one core, the server another.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Scenario::Verbs(args) = &cli.scenario;
    let report = verbs::run(args).await?;
    let text = match cli.output {
        Output::Table => verbs::table(&report),
        Output::Json => format!("{report}\n"),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
