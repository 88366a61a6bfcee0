//! Puts a CA into the `caBundle:` lines of a manifest and leaves every other byte as it is: comments and order of a
//! hand-written file survive, which a YAML reader and writer would not let them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use base64::Engine as _;

pub(super) struct Manifest {
    path: PathBuf,
    text: String,
}

impl Manifest {
    /// # Errors
    /// No `caBundle:` line with its value on the line, or a `clientConfig:` without one: which file, and what to do.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let bundles = text.lines().filter(|l| key_of(l) == Some("caBundle")).count();
        let configs = text.lines().filter(|l| key_of(l) == Some("clientConfig")).count();
        if bundles == 0 || bundles < configs {
            bail!(
                "{}: {configs} clientConfig with {bundles} caBundle: write `caBundle: \"\"` as a line of its own into each",
                path.display()
            );
        }
        if text
            .lines()
            .any(|l| key_of(l) == Some("caBundle") && l.trim_end().ends_with(['|', '>']))
        {
            bail!(
                "{}: a caBundle goes over several lines: write it on one line",
                path.display()
            );
        }
        Ok(Self {
            path: path.to_owned(),
            text,
        })
    }

    pub(super) fn write(&self, ca_pem: &str) -> anyhow::Result<()> {
        std::fs::write(&self.path, self.with(ca_pem)).with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn with(&self, ca_pem: &str) -> String {
        let bundle = base64::engine::general_purpose::STANDARD.encode(ca_pem);
        let mut out = String::with_capacity(self.text.len() + bundle.len());
        for line in self.text.split_inclusive('\n') {
            match line.find("caBundle:").filter(|_| key_of(line) == Some("caBundle")) {
                Some(at) => {
                    out += &line[..at];
                    out += "caBundle: ";
                    out += &bundle;
                    out += if line.ends_with('\n') { "\n" } else { "" };
                }
                None => out += line,
            }
        }
        out
    }
}

/// The key of a line in block style, `- ` in front of it or not.
fn key_of(line: &str) -> Option<&str> {
    let line = line.trim_start().trim_start_matches("- ").trim_start();
    line.split_once(':').map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::Manifest;

    #[test]
    fn only_the_ca_bundle_changes() {
        let text = "# caBundle: stays\nwebhooks:\n- clientConfig:\n    caBundle: \"\"   # put in\n    url: x\n- clientConfig:\n    caBundle: b2xk";
        let manifest = Manifest {
            path: "m".into(),
            text: text.into(),
        };
        assert_eq!(
            manifest.with("CA"),
            "# caBundle: stays\nwebhooks:\n- clientConfig:\n    caBundle: Q0E=\n    url: x\n- clientConfig:\n    caBundle: Q0E="
        );
    }

    #[test]
    fn a_manifest_without_a_place_for_it_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("m.yaml");
        for (text, word) in [
            ("kind: Pod\n", "0 caBundle"),
            ("clientConfig:\n  url: x\n", "1 clientConfig"),
            ("caBundle: |\n  x\n", "several lines"),
        ] {
            std::fs::write(&path, text).expect("writes");
            let error = Manifest::read(&path).err().expect(word).to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
