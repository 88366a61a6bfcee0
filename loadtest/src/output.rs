//! Where a report goes: a table or JSON on stdout, and beside it the picture and the samples that were asked for.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::Value;

use crate::chart::Chart;
use crate::{options, plot};

#[derive(Debug, clap::Args)]
pub(crate) struct Output {
    #[arg(long, global = true, default_value = "table")]
    output: Format,
    /// Draw the report into this folder, as SVG.
    #[arg(long, global = true, value_name = "FOLDER")]
    plot: Option<PathBuf>,
    /// Write every sample of every run here, as JSON.
    #[arg(long, global = true, value_name = "FILE")]
    raw: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Table,
    Json,
}

/// What a scenario has measured.
pub(crate) struct Measured {
    report: Value,
    /// None: the report has them all.
    samples: Option<Value>,
}

impl From<Value> for Measured {
    fn from(report: Value) -> Self {
        Self { report, samples: None }
    }
}

impl From<(Value, Value)> for Measured {
    fn from((report, samples): (Value, Value)) -> Self {
        let samples = Some(samples);
        Self { report, samples }
    }
}

impl Output {
    fn picture(&self, scenario: &str) -> Option<PathBuf> {
        Some(self.plot.as_ref()?.join(format!("{scenario}.svg")))
    }

    /// Before anything is measured: what was asked for can be written afterwards.
    pub(crate) fn ready(&self, scenario: &str) -> anyhow::Result<()> {
        if let Some(folder) = &self.plot {
            std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        }
        let files = [self.picture(scenario), self.raw.clone()];
        files.iter().flatten().try_for_each(|path| options::writable(path))
    }

    pub(crate) fn write(
        &self,
        scenario: &str,
        measured: &Measured,
        table: fn(&Value) -> String,
        charts: &[Chart],
    ) -> anyhow::Result<()> {
        let report = &measured.report;
        let text = match self.output {
            Format::Table => table(report),
            Format::Json => format!("{report}\n"),
        };
        // First: a disk that is full by now takes nothing of it away.
        std::io::stdout().write_all(text.as_bytes())?;
        if let Some(path) = self.picture(scenario) {
            let panels: Vec<_> = charts.iter().map(|chart| chart.panel(report)).collect();
            std::fs::write(&path, plot::svg(scenario, &panels)).with_context(|| path.display().to_string())?;
        }
        if let Some(path) = &self.raw {
            let samples = measured.samples.as_ref().unwrap_or(report);
            std::fs::write(path, serde_json::to_vec(samples)?).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_picture_and_the_samples_are_written_and_looked_after_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut output = Output {
            output: Format::Table,
            plot: Some(folder.path().join("new")),
            raw: Some(folder.path().join("raw.json")),
        };
        output.ready("s").expect("can be written");
        let chart = Chart::spreads("a title", &["name"], "", &[("", "n")]);
        let measured = json!({"rows": [{"name": "a line", "n": 1}]}).into();
        output
            .write("s", &measured, |_| String::new(), &[chart])
            .expect("written");
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
        let svg = read("new/s.svg");
        assert!(
            svg.contains("a title") && svg.contains("a line") && svg.contains("<circle"),
            "{svg}"
        );
        // The report, where there are no samples beside it.
        assert_eq!(read("raw.json"), measured.report.to_string());

        output.raw = Some(folder.path().join("no/such"));
        assert!(output.ready("s").is_err());
        (output.raw, output.plot) = (None, Some(folder.path().join("raw.json/below-a-file")));
        assert!(output.ready("s").is_err());
    }
}
