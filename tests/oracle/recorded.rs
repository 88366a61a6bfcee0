//! Cases on file. Each holds the case, what upstream said to it, what was decided and why; they run without Go.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::case::Case;
use super::check::violations;
use super::ours;
use super::upstream::{Answer, Upstream};

#[derive(Deserialize, Serialize)]
struct Recorded {
    /// Why this case is kept.
    about: String,
    /// Whether wattlane gives the pod devices.
    fits: bool,
    /// wattlane does not do so yet: what is wrong. The case must fail until this is taken away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    open: Option<String>,
    case: Value,
    upstream: Answer,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/cases")
}

fn all() -> Vec<(PathBuf, Recorded)> {
    let mut paths: Vec<_> = std::fs::read_dir(folder())
        .expect("tests/oracle/cases is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("readable");
        let recorded = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        (path, recorded)
    };
    paths.into_iter().map(read).collect()
}

/// Writes a case for cases/, with what the reference says to it.
pub(crate) fn candidate(name: &str, fits: bool, case: &Case, upstream: &Answer) {
    let folder = Upstream::path().with_file_name("candidates");
    write(&folder.join(format!("{name}.json")), name, fits, case, upstream);
}

fn write(path: &Path, about: &str, fits: bool, case: &Case, upstream: &Answer) {
    std::fs::create_dir_all(path.parent().expect("in a folder")).expect("target is writable");
    let recorded = Recorded {
        about: about.to_owned(),
        fits,
        open: None,
        case: case.doc.clone(),
        upstream: upstream.clone(),
    };
    let text = serde_json::to_string_pretty(&recorded).expect("plain data");
    std::fs::write(path, text + "\n").expect("target is writable");
}

/// Writes a new disagreement where a person can look at it, and move it to cases/ once it is decided.
pub(crate) fn disagreement(seed: u64, what: &str, case: &Case, upstream: &Answer) {
    let folder = Upstream::path().with_file_name("disagreements");
    let path = folder.join(format!("seed-{seed}.json"));
    write(&path, what, upstream.fits, case, upstream);
    eprintln!("seed {seed}: {what}\n    {}", path.display());
}

/// The checker can say no: what upstream gave, spoilt in one place, is not valid.
#[test]
fn the_checker_refuses_spoilt_answers() {
    let spoil: [fn(&mut Value); 5] = [
        |a| a["devices"]["results"].as_array_mut().expect("results").clear(),
        |a| a["devices"]["results"][0]["device"] = "elsewhere".into(),
        |a| a["devices"]["results"][0]["request"] = "other".into(),
        |a| {
            let results = a["devices"]["results"].as_array_mut().expect("results");
            let again = results[0].clone();
            results.push(again);
        },
        |a| {
            a["nodeSelector"] =
                serde_json::json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]})
        },
    ];
    let mut tried = 0;
    for (path, recorded) in all() {
        let case = Case { doc: recorded.case };
        let Some(results) = recorded.upstream.results else {
            continue;
        };
        if !violations(&case, &recorded.upstream.matches, &results).is_empty() {
            continue; // one of upstream's own mistakes
        }
        for (n, spoil) in spoil.iter().enumerate() {
            let mut spoilt = results.clone();
            spoil(&mut spoilt[0]);
            let broken = violations(&case, &recorded.upstream.matches, &spoilt);
            assert!(!broken.is_empty(), "{}: change {n} was not noticed", path.display());
            tried += 1;
        }
    }
    assert!(tried > 0, "no valid answer on file");
}

#[test]
fn recorded_cases_have_the_answer_that_was_decided() {
    let mut wrong = vec![];
    let cases = all();
    assert!(!cases.is_empty(), "no cases on file");
    for (path, recorded) in cases {
        let case = Case { doc: recorded.case };
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let found = match (recorded.fits, ours::answer(&case)) {
            (true, Ok(allocations)) => violations(&case, &recorded.upstream.matches, &allocations),
            (false, Err(_)) => vec![],
            (true, Err(reason)) => vec![format!("refused: {reason}")],
            (false, Ok(_)) => vec!["must be refused".to_owned()],
        };
        match recorded.open {
            None => wrong.extend(found.iter().map(|v| format!("{name}: {v}"))),
            Some(open) if found.is_empty() => wrong.push(format!("{name}: right by now, take `open` away: {open}")),
            Some(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
