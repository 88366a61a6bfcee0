//! Talks to the oracle process (built by tests/oracle/build): a case in, the in-tree allocator's answer out.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::case::Case;

/// By `claim/request[/subrequest]`, then `driver/pool/device`: true, false, or the error's text.
pub(crate) type Matches = BTreeMap<String, BTreeMap<String, Value>>;

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Answer {
    pub(crate) fits: bool,
    pub(crate) error: Option<String>,
    pub(crate) results: Option<Vec<Value>>,
    #[serde(default)]
    pub(crate) matches: Matches,
}

pub(crate) struct Upstream {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Upstream {
    pub(crate) fn path() -> PathBuf {
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target"), PathBuf::from);
        target.join("oracle/oracle")
    }

    pub(crate) fn start() -> Self {
        let path = Self::path();
        let mut child = Command::new(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}: run tests/oracle/build first", path.display()));
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, input, output }
    }

    pub(crate) fn ask(&mut self, case: &Case) -> Answer {
        writeln!(self.input, "{}", case.line()).expect("the oracle reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the oracle answers");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("the oracle said {line:?}: {e}"))
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        // Ours alone, and it has nothing to save.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
