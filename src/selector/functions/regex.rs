//! Regular expressions: RE2's syntax (`re2`) on an engine without backtracking.

use std::borrow::Cow;

use regex::{Regex, RegexBuilder};

use super::super::budget::{charge, charge_bytes};
use super::re2;
use super::{Arg, Failed, Native, Out, Plain, native};

/// Bytes a compiled pattern may take. Counted repetitions multiply; RE2 has a limit for the same reason.
const MAX_COMPILED: usize = 256 * 1024;
/// Enough for what the translation may nest.
const MAX_NESTING: u32 = 250;
/// Bytes of text times pieces of pattern for one step.
const BYTES_TIMES_SIZE: u64 = 50;

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
                pattern.regex.find(s).map_or("", |found| found.as_str()).to_owned(),
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
    Ok(Out::Bool(
        dynamic(s, pattern, "error parsing regexp")?.regex.is_match(s),
    ))
}

fn find_all(args: &[Arg<'_>]) -> Plain {
    let (s, pattern, limit) = match args {
        [Arg::String(s), pattern] => (s, pattern, -1),
        [Arg::String(s), pattern, Arg::Int(limit)] => (s, pattern, *limit),
        _ => return Err(Failed::Overload),
    };
    let pattern = dynamic(s, pattern, "Illegal regex")?;
    let mut found = vec![];
    for hit in pattern
        .regex
        .find_iter(s)
        .take(usize::try_from(limit).unwrap_or(usize::MAX))
    {
        charge(1)?;
        charge_bytes(hit.len())?;
        found.push(hit.as_str().to_owned());
    }
    Ok(Out::Strings(found))
}

impl Pattern {
    /// cel-go's cost of matching; and more where a short pattern stands for a long one: an engine without
    /// backtracking still follows all of it at each byte.
    fn cost(&self, text: usize) -> u64 {
        let text = text as u64 + 1;
        let written = text.div_ceil(10).saturating_mul((self.written as u64).div_ceil(4));
        written.max(text.saturating_mul(self.size) / BYTES_TIMES_SIZE)
    }
}

/// The pattern: one of the expression, compiled with it, or a text that is known only now. Then compiling is
/// paid for too, at what it costs us and not RE2.
fn dynamic<'b>(text: &str, pattern: &'b Arg<'b>, what: &str) -> Result<Cow<'b, Pattern>, Failed> {
    let pattern = match pattern {
        Arg::Pattern(compiled) => Cow::Borrowed(*compiled),
        Arg::String(pattern) => {
            charge(2000 + 200 * pattern.len() as u64)?;
            Cow::Owned(compile(pattern).map_err(|why| {
                let shown: String = pattern.chars().take(64).collect();
                Failed::Message(format!("{what}: {why}: `{shown}`"))
            })?)
        }
        _ => return Err(Failed::Overload),
    };
    charge(pattern.cost(text.len()))?;
    Ok(pattern)
}

/// A pattern, compiled, and what following it costs.
#[derive(Clone, Debug)]
pub(in super::super) struct Pattern {
    regex: Regex,
    written: usize,
    size: u64,
}

/// The error has Go's words where Go has any.
pub(in super::super) fn compile(pattern: &str) -> Result<Pattern, String> {
    let translated = re2::translate(pattern)?;
    let built = RegexBuilder::new(&translated.pattern)
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED)
        .nest_limit(MAX_NESTING)
        .build();
    let regex = built.map_err(|e| match e {
        regex::Error::CompiledTooBig(_) => "expression too large".to_owned(),
        // Of what RE2 knows only names of scripts may be unknown to the engine.
        _ => "invalid character class range".to_owned(),
    })?;
    Ok(Pattern {
        regex,
        written: pattern.len(),
        size: translated.size,
    })
}

#[cfg(test)]
mod tests {
    use super::compile;

    /// Pattern, text, and what Go's `regexp` finds in it first.
    const FOUND: &[(&str, &str, Option<&str>)] = &[
        ("[[a]]", "a", None),
        ("[[a]]", "[]", Some("[]")),
        ("[[]", "[", Some("[")),
        ("[^[]", "[a", Some("a")),
        ("[]a]", "]", Some("]")),
        ("\\<a\\>", "a", None),
        ("\\<a\\>", "<a>", Some("<a>")),
        ("[a&&b]", "&", Some("&")),
        ("[a~~b]", "a", Some("a")),
        ("{", "{", Some("{")),
        ("a{,2}", "a{,2}", Some("a{,2}")),
        ("a{02}", "aa", None),
        ("\\Qa.\\E+", "a...", Some("a...")),
        ("\\Q\\", "\\", Some("\\")),
        ("[[:alpha:]]+", "1ab2", Some("ab")),
        ("[[:^alpha:]]+", "ab12", Some("12")),
        ("[\\d-z]+", "a1-z", Some("1-z")),
        ("\\pL+", "1äb", Some("äb")),
        ("\\p{^Greek}", "Ω1", Some("1")),
        ("[^\\PL]", "1a", Some("a")),
        ("(?i)k", "\u{212a}", Some("\u{212a}")),
        ("(?i)[^k]", "Kk\u{212a}", None),
        ("a(?i)b", "aB", Some("aB")),
        ("(?i:a)b", "AB", None),
        ("(?P<n>a)(?<m>b)", "ab", Some("ab")),
        ("a*?", "aa", Some("")),
        ("(?U)a+", "aa", Some("a")),
        ("(?U)a+?", "aa", Some("aa")),
        ("a$", "a\n", None),
        ("(?m)^b$", "a\nb\nc", Some("b")),
        ("a.b", "a\nb", None),
        ("(?s)a.b", "a\nb", Some("a\nb")),
        ("a\\z", "a", Some("a")),
        ("\\w+", "äb", Some("b")),
        ("\\bb", "äb", Some("b")),
        ("\\B.", "äb", Some("ä")),
        ("\\x41\\101\\x{42}", "AAB", Some("AAB")),
        ("[\\x{d800}]", "a", None),
        ("a*(?i)*", "aa", Some("aa")),
        ("a|", "b", Some("")),
        ("# a", "a# a", Some("# a")),
    ];

    const REFUSED: &[&str] = &[
        "a++",
        "a**",
        "a{2}{3}",
        "a{1001}",
        "(a{10}){101}",
        "a{2,1}",
        "(?x) a",
        "[a--b]",
        "\\u0061",
        "\\Z",
        "\\C",
        "\\E",
        "\\1",
        "\\x4",
        "\\x{110000}",
        "[a-\\d]",
        "[z-a]",
        "[a",
        "[[:foo:]]",
        "\\p{Foo}",
        "(?=a)",
        "(?P=n)",
        "(?P<é>a)",
        "(",
        ")",
        "*",
        "(*)",
        "a|*",
        "\\",
        "(?i",
        "(?i-)",
        "\\é",
    ];

    #[test]
    fn finds_what_go_finds() {
        for (pattern, text, expected) in FOUND {
            let compiled = compile(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            let found = compiled.regex.find(text).map(|m| m.as_str());
            assert_eq!(found, *expected, "{pattern} in {text:?}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for pattern in REFUSED {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }

    /// Ten characters may stand for a thousand: following them costs by that.
    #[test]
    fn repetitions_cost() {
        let cost = |pattern: &str| compile(pattern).map(|p| p.cost(10_000));
        let (Ok(plain), Ok(long)) = (cost("(a){0}"), cost("(a{30}){30}")) else {
            panic!("both compile");
        };
        assert!(long > 50 * plain, "{plain} {long}");
    }
}
