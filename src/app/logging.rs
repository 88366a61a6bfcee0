//! Logs: to stderr always, as text or JSON, at a level per part.

use tracing_subscriber::EnvFilter;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, clap::Args)]
pub struct LogArgs {
    /// Level, or levels by part as in `info,wattlane::binding=debug`. Default: info for serve, warn otherwise.
    #[arg(long, global = true, env = "WATTLANE_LOG")]
    log_level: Option<String>,
    #[arg(long, global = true, value_enum, default_value_t)]
    log_format: LogFormat,
}

impl LogArgs {
    /// Installs the subscriber of the process.
    ///
    /// # Errors
    /// The level cannot be read.
    pub fn install(&self, default: &str) -> anyhow::Result<()> {
        // The client's own logs repeat every failed attempt; our watches report trouble once.
        let default = format!("{default},kube_client=off,kube_runtime=off");
        let filter = EnvFilter::try_new(self.log_level.as_deref().unwrap_or(&default))?;
        let builder = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr);
        let installed = match self.log_format {
            LogFormat::Text => builder.try_init(),
            LogFormat::Json => builder.json().flatten_event(true).try_init(),
        };
        // A subscriber that is there already (a test's) is as good.
        let _ = installed;
        Ok(())
    }
}
