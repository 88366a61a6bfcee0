//! Regular expressions: RE2's syntax on an engine without backtracking.

use std::borrow::Cow;

use regex::{Regex, RegexBuilder};

use super::super::budget::{charge, charge_bytes};
use super::{Arg, Failed, Native, Out, Plain, native};

/// Bytes a compiled pattern may take. Counted repetitions multiply; RE2 has a limit for the same reason.
const MAX_COMPILED: usize = 256 * 1024;
const MAX_NESTING: u32 = 64;

pub(super) const NATIVES: &[Native] = &[
    ("matches", false, 2, native!("matches", matches)),
    ("matches", true, 2, native!("matches", matches)),
    (
        "find",
        true,
        2,
        native!("find", |args| {
            let [Arg::String(s), pattern] = args else {
                return Err(Failed::Overload);
            };
            let pattern = dynamic(s, pattern, "Illegal regex")?;
            Ok(Out::String(
                pattern.find(s).map_or("", |found| found.as_str()).to_owned(),
            ))
        }),
    ),
    ("findAll", true, 2, native!("findAll", find_all)),
    ("findAll", true, 3, native!("findAll", find_all)),
];

fn matches(args: &[Arg<'_>]) -> Plain {
    let [Arg::String(s), pattern] = args else {
        return Err(Failed::Overload);
    };
    Ok(Out::Bool(dynamic(s, pattern, "error parsing regexp")?.is_match(s)))
}

fn find_all(args: &[Arg<'_>]) -> Plain {
    let (s, pattern, limit) = match args {
        [Arg::String(s), pattern] => (s, pattern, -1),
        [Arg::String(s), pattern, Arg::Int(limit)] => (s, pattern, *limit),
        _ => return Err(Failed::Overload),
    };
    let pattern = dynamic(s, pattern, "Illegal regex")?;
    let mut found = vec![];
    for hit in pattern.find_iter(s).take(usize::try_from(limit).unwrap_or(usize::MAX)) {
        charge(1)?;
        charge_bytes(hit.len())?;
        found.push(hit.as_str().to_owned());
    }
    Ok(Out::Strings(found))
}

/// cel-go's cost of matching.
fn cost(text: u64, pattern: u64) -> u64 {
    (text + 1).div_ceil(10).saturating_mul(pattern.div_ceil(4))
}

/// The pattern: one of the expression, compiled with it, or a text that is known only now. Then compiling is
/// paid for too, at what it costs us and not RE2.
fn dynamic<'b>(text: &str, pattern: &Arg<'b>, what: &str) -> Result<Cow<'b, Regex>, Failed> {
    let pattern = match pattern {
        Arg::Pattern(compiled) => {
            charge(cost(text.len() as u64, compiled.as_str().len() as u64))?;
            return Ok(Cow::Borrowed(compiled));
        }
        Arg::String(pattern) => pattern,
        _ => return Err(Failed::Overload),
    };
    charge(cost(text.len() as u64, pattern.len() as u64))?;
    charge(2000 + 200 * pattern.len() as u64)?;
    compile(pattern).map(Cow::Owned).map_err(|e| {
        let why = e.to_string();
        let last = why
            .lines()
            .last()
            .unwrap_or("")
            .trim_start_matches("error: ")
            .to_owned();
        let shown: String = pattern.chars().take(64).collect();
        Failed::Message(format!("{what}: {last}: `{shown}`"))
    })
}

pub(in super::super) fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(&ascii_classes(pattern))
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED)
        .nest_limit(MAX_NESTING)
        .build()
}

/// RE2's `\d`, `\s`, `\w` and `\b` know ASCII only; the engine's know all of Unicode.
fn ascii_classes(pattern: &str) -> String {
    let mut rewritten = String::with_capacity(pattern.len());
    let mut in_class = false;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match (chars.next(), in_class) {
                (Some('d'), _) => rewritten.push_str("[0-9]"),
                (Some('D'), _) => rewritten.push_str("[^0-9]"),
                (Some('s'), _) => rewritten.push_str("[\\t\\n\\x0C\\r ]"),
                (Some('S'), _) => rewritten.push_str("[^\\t\\n\\x0C\\r ]"),
                (Some('w'), _) => rewritten.push_str("[0-9A-Za-z_]"),
                (Some('W'), _) => rewritten.push_str("[^0-9A-Za-z_]"),
                (Some('b'), false) => rewritten.push_str("(?-u:\\b)"),
                (Some(other), _) => rewritten.extend(['\\', other]),
                (None, _) => rewritten.push('\\'),
            },
            '[' => {
                in_class = true;
                rewritten.push('[');
            }
            ']' => {
                in_class = false;
                rewritten.push(']');
            }
            other => rewritten.push(other),
        }
    }
    rewritten
}
