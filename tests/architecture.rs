//! The map of ARCHITECTURE.md as a test: dependencies between modules point down, and the functional core sees
//! no runtime, no Kubernetes client, no HTTP and no clock.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Modules a module may use, besides itself. Every module of src/ must have a row.
const MAY_USE: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("topology", &["model"]),
    ("partition", &["model"]),
    ("snapshot", &["model", "partition", "topology"]),
    ("selector", &["model"]),
    ("placement", &["model", "partition", "selector", "snapshot", "topology"]),
    ("policy", &["model", "selector", "placement", "snapshot", "topology"]),
    ("convert", &["model"]),
    ("index", &["model", "partition", "snapshot", "convert", "topology"]),
    ("audit", &["model", "snapshot", "policy"]),
    ("publish", &["model", "snapshot", "index", "convert"]),
    ("wire", &["model", "convert"]),
    ("cluster", &["model", "index", "publish", "convert"]),
    ("leader", &["model", "index", "publish", "cluster"]),
    (
        "binding",
        &[
            "model",
            "snapshot",
            "index",
            "publish",
            "selector",
            "placement",
            "cluster",
            "leader",
        ],
    ),
    (
        "admission",
        &[
            "model", "snapshot", "selector", "policy", "cluster", "publish", "convert", "wire",
        ],
    ),
    ("metrics", &["audit", "model", "index", "cluster"]),
    ("certs", &[]),
    ("keeper", &["certs", "cluster", "metrics", "model", "server"]),
    (
        "server",
        &[
            "model",
            "snapshot",
            "index",
            "publish",
            "selector",
            "placement",
            "cluster",
            "binding",
            "convert",
            "wire",
            "metrics",
            "certs",
            "policy",
            "admission",
        ],
    ),
    (
        "app",
        &[
            "audit",
            "model",
            "snapshot",
            "index",
            "publish",
            "selector",
            "placement",
            "cluster",
            "leader",
            "binding",
            "convert",
            "wire",
            "metrics",
            "certs",
            "policy",
            "admission",
            "server",
            "keeper",
        ],
    ),
    (
        "cli",
        &[
            "app",
            "audit",
            "keeper",
            "model",
            "topology",
            "snapshot",
            "index",
            "publish",
            "selector",
            "placement",
            "cluster",
            "leader",
            "convert",
            "wire",
            "certs",
            "policy",
            "admission",
            "server",
            "metrics",
            "binding",
        ],
    ),
];

/// The functional core, and what it must never name.
const CORE: &[&str] = &[
    "model",
    "topology",
    "partition",
    "snapshot",
    "selector",
    "placement",
    "policy",
    "index",
    "convert",
    "audit",
];
const FORBIDDEN_IN_CORE: &[&str] = &[
    "tokio",
    "kube",
    "hyper",
    "hyper_util",
    "rustls",
    "std::time::Instant",
    "std::time::SystemTime",
    "SystemTime",
    "std::net",
    "std::fs",
    "std::thread",
    // Reading a timestamp is fine; asking what time it is is not.
    "Timestamp::now",
    "Zoned::now",
];

fn rust_files(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("src is readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// Code of a file without comments and string literals' worth of prose: enough for reading paths.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("source is UTF-8");
    text.lines()
        .map(|l| l.split("//").next().unwrap_or(""))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Top-level modules named by `crate::x` and by `use crate::{x, y::z}`.
fn crate_modules(code: &str) -> Vec<String> {
    let mut found = vec![];
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0_usize;
            let mut word = String::new();
            let mut at_start = true;
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    _ => {}
                }
                if depth == 0 && at_start {
                    if c.is_alphanumeric() || c == '_' {
                        word.push(c);
                    } else if !word.is_empty() {
                        found.push(std::mem::take(&mut word));
                        at_start = false;
                    }
                }
                at_start |= depth == 0 && c == ',';
            }
            if !word.is_empty() {
                found.push(word);
            }
        } else {
            found.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    found
}

/// path relative to src -> top-level module
fn module_of(relative: &Path) -> String {
    let first = relative.iter().next().expect("not empty").to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

fn sources() -> Vec<(String, PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![];
    rust_files(&src, &mut files);
    files
        .into_iter()
        .map(|path| {
            let relative = path.strip_prefix(&src).expect("below src").to_owned();
            (module_of(&relative), relative, code(&path))
        })
        .filter(|(module, ..)| module != "lib" && module != "main")
        .collect()
}

#[test]
fn dependencies_point_down() {
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut wrong = vec![];
    for (module, path, code) in sources() {
        let Some(may) = allowed.get(module.as_str()) else {
            wrong.push(format!("{}: module `{module}` has no row in the map", path.display()));
            continue;
        };
        for used in crate_modules(&code) {
            let names_a_module = allowed.contains_key(used.as_str());
            if names_a_module && used != module && !may.contains(&used.as_str()) {
                wrong.push(format!("{}: `{module}` must not use `{used}`", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_core_sees_no_runtime_no_client_and_no_clock() {
    let mut wrong = vec![];
    for (module, path, code) in sources() {
        if !CORE.contains(&module.as_str()) {
            continue;
        }
        for word in FORBIDDEN_IN_CORE {
            let named = code.match_indices(word).any(|(at, _)| {
                let before = code[..at].chars().next_back();
                let after = code[at + word.len()..].chars().next();
                let boundary = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
                boundary(before) && boundary(after) && code[at + word.len()..].starts_with("::")
                    || boundary(before) && word.contains("::") && boundary(after)
            });
            if named {
                wrong.push(format!("{}: names `{word}`", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_reader_of_use_lines_reads_them() {
    let code = "use crate::{a::{x, y}, b, c::d};\nuse crate::e::f;\nlet z = crate::g();";
    assert_eq!(crate_modules(code), ["a", "b", "c", "e", "g"]);
}

/// Rust files that no `mod` declares are never compiled: a test in one passes for ever.
#[test]
fn every_source_file_is_declared() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![];
    rust_files(&src, &mut files);
    let all: String = files.iter().map(|f| code(f)).collect::<Vec<_>>().join("\n");
    let orphans: Vec<_> = files
        .iter()
        .filter(|f| {
            let stem = f.file_stem().expect("a file").to_string_lossy().into_owned();
            let name = match stem.as_str() {
                "main" | "lib" => return false,
                "mod" => f
                    .parent()
                    .and_then(Path::file_name)
                    .expect("a folder")
                    .to_string_lossy()
                    .into_owned(),
                _ => stem,
            };
            !all.contains(&format!("mod {name};")) && !all.contains(&format!("mod {name} "))
        })
        .collect();
    assert!(orphans.is_empty(), "no `mod` declares {orphans:?}");
}
