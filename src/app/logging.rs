//! Logs: to stderr always, as text or JSON, at a level per part.

use std::io::IsTerminal;

use anyhow::{anyhow, bail};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

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
        let filter = filter(self.log_level.as_deref().unwrap_or(&default))?;
        let builder = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            // Colours are for terminals: in a file they are noise.
            .with_ansi(std::io::stderr().is_terminal());
        let installed = match self.log_format {
            LogFormat::Text => builder.try_init(),
            LogFormat::Json => builder.json().flatten_event(true).try_init(),
        };
        // A subscriber that is there already (a test's) is as good.
        let _ = installed;
        Ok(())
    }
}

/// A bare word is a part for the library, of which everything is logged, and nothing of all others: a misspelt level would
/// silence the log.
fn filter(text: &str) -> anyhow::Result<EnvFilter> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let mut bare = words.filter(|word| !word.contains(['=', '[', ':']));
    if let Some(wrong) = bare.find(|word| word.parse::<LevelFilter>().is_err()) {
        bail!("{wrong:?} is no level: {LEVELS}");
    }
    // The library's words name the levels once more, and not what is wrong.
    EnvFilter::try_new(text).map_err(|_| anyhow!("{text:?} cannot be read: {LEVELS}"))
}

const LEVELS: &str = "write off, error, warn, info, debug or trace, alone or by part (info,wattlane::binding=debug)";

#[cfg(test)]
mod tests {
    use super::filter;

    #[test]
    fn levels_and_parts() {
        for good in [
            "info",
            "WARN",
            "off",
            "",
            "info,wattlane::binding=debug",
            "wattlane::server=debug",
            "hyper=warn, debug",
            "wattlane::server",
            "wattlane[bind]=trace",
            "warn,kube_client=off",
        ] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for (bad, begins) in [
            (
                "nonsense",
                "\"nonsense\" is no level: write off, error, warn, info, debug or trace",
            ),
            ("info,debugg", "\"debugg\" is no level: "),
            ("foo=bar=baz", "\"foo=bar=baz\" cannot be read: write off"),
            ("wattlane=debugg", "\"wattlane=debugg\" cannot be read: "),
        ] {
            let error = format!("{:#}", filter(bad).expect_err(bad));
            assert!(error.starts_with(begins) && error.contains("by part"), "{error}");
        }
    }
}
