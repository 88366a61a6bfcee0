//! Kubernetes quantities and semantic versions (k8s.io/apiserver/pkg/cel/library: quantity.go, semverlib.go).

use std::cmp::Ordering;

use semver::Version;

use super::super::budget::charge_bytes;
use super::amounts::Amount;
use super::{Arg, Failed, Native, Out, Plain, native};
use crate::model::Quantity;

pub(super) const NATIVES: &[Native] = &[
    (
        "quantity",
        false,
        1,
        native!("quantity", |args| {
            let [Arg::String(s)] = args else {
                return Err(Failed::Overload);
            };
            charge_bytes(s.len())?;
            Amount::read(s).map(Out::Quantity).map_err(Failed::Message)
        }),
    ),
    (
        "isQuantity",
        false,
        1,
        native!("isQuantity", |args| {
            let [Arg::String(s)] = args else {
                return Err(Failed::Overload);
            };
            charge_bytes(s.len())?;
            Ok(Out::Bool(s.parse::<Quantity>().is_ok()))
        }),
    ),
    // A function, not a method: so it is in Kubernetes.
    (
        "sign",
        false,
        1,
        native!("sign", |args| {
            let [Arg::Quantity(q)] = args else {
                return Err(Failed::Overload);
            };
            Ok(Out::Int(q.exact.cmp(&Quantity::ZERO) as i64))
        }),
    ),
    (
        "isInteger",
        true,
        1,
        native!("isInteger", |args| {
            let [Arg::Quantity(q)] = args else {
                return Err(Failed::Overload);
            };
            Ok(Out::Bool(q.integer().is_some()))
        }),
    ),
    (
        "asInteger",
        true,
        1,
        native!("asInteger", |args| {
            let [Arg::Quantity(q)] = args else {
                return Err(Failed::Overload);
            };
            let refused = || Failed::Message("cannot convert value to integer".to_owned());
            q.integer().map(Out::Int).ok_or_else(refused)
        }),
    ),
    (
        "asApproximateFloat",
        true,
        1,
        native!("asApproximateFloat", |args| {
            let [Arg::Quantity(q)] = args else {
                return Err(Failed::Overload);
            };
            Ok(Out::Double(q.exact.as_f64()))
        }),
    ),
    (
        "add",
        true,
        2,
        native!("add", |args| match args {
            [Arg::Quantity(a), Arg::Quantity(b)] => Ok(Out::Quantity(a.plus(*b))),
            [Arg::Quantity(a), Arg::Int(b)] => Ok(Out::Quantity(a.plus(Amount::of_integer(*b)))),
            _ => Err(Failed::Overload),
        }),
    ),
    (
        "sub",
        true,
        2,
        native!("sub", |args| match args {
            [Arg::Quantity(a), Arg::Quantity(b)] => Ok(Out::Quantity(a.minus(*b))),
            [Arg::Quantity(a), Arg::Int(b)] => Ok(Out::Quantity(a.minus(Amount::of_integer(*b)))),
            _ => Err(Failed::Overload),
        }),
    ),
    (
        "isGreaterThan",
        true,
        2,
        native!("isGreaterThan", |a| Ok(Out::Bool(compare(a)?.is_gt()))),
    ),
    (
        "isLessThan",
        true,
        2,
        native!("isLessThan", |a| Ok(Out::Bool(compare(a)?.is_lt()))),
    ),
    (
        "compareTo",
        true,
        2,
        native!("compareTo", |a| Ok(Out::Int(compare(a)? as i64))),
    ),
    (
        "semver",
        false,
        1,
        native!("semver", |a| version(a)?.map(Out::Semver).map_err(Failed::Message)),
    ),
    (
        "semver",
        false,
        2,
        native!("semver", |a| version(a)?.map(Out::Semver).map_err(Failed::Message)),
    ),
    (
        "isSemver",
        false,
        1,
        native!("isSemver", |a| Ok(Out::Bool(version(a)?.is_ok()))),
    ),
    (
        "isSemver",
        false,
        2,
        native!("isSemver", |a| Ok(Out::Bool(version(a)?.is_ok()))),
    ),
    ("major", true, 1, native!("major", |a| part(a, |v| v.major))),
    ("minor", true, 1, native!("minor", |a| part(a, |v| v.minor))),
    ("patch", true, 1, native!("patch", |a| part(a, |v| v.patch))),
];

fn compare(args: &[Arg<'_>]) -> Result<Ordering, Failed> {
    match args {
        [Arg::Quantity(a), Arg::Quantity(b)] => Ok(a.exact.cmp(&b.exact)),
        [Arg::Semver(a), Arg::Semver(b)] => Ok(a.cmp_precedence(b)),
        _ => Err(Failed::Overload),
    }
}

fn part(args: &[Arg<'_>], of: fn(&Version) -> u64) -> Plain {
    match args {
        // Beyond 2^63 Go wraps around; a version like that does not exist.
        [Arg::Semver(v)] => Ok(Out::Int(i64::try_from(of(v)).unwrap_or(i64::MAX))),
        _ => Err(Failed::Overload),
    }
}

/// The version in the text; the inner error says why there is none.
fn version(args: &[Arg<'_>]) -> Result<Result<Version, String>, Failed> {
    let (text, normalize) = match args {
        [Arg::String(s)] => (s, false),
        [Arg::String(s), Arg::Bool(normalize)] => (s, *normalize),
        _ => return Err(Failed::Overload),
    };
    charge_bytes(text.len())?;
    let read = |text: &str| {
        Version::parse(text).map_err(|e| {
            if text
                .split(['-', '+'])
                .next()
                .is_some_and(|core| core.matches('.').count() < 2)
            {
                "No Major.Minor.Patch elements found".to_owned()
            } else {
                format!("{text:?} is not a semantic version: {e}")
            }
        })
    };
    Ok(if normalize {
        normalized(text).and_then(|t| read(&t))
    } else {
        read(text)
    })
}

/// Without `v`, with all three numbers, without leading zeros.
fn normalized(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
    for part in &mut parts {
        if part.len() > 1 {
            let trimmed = part.trim_start_matches('0');
            *part = if trimmed.starts_with(|c: char| c.is_ascii_digit()) {
                trimmed.to_owned()
            } else {
                format!("0{trimmed}")
            };
        }
    }
    if parts.len() < 3 {
        if parts.last().is_some_and(|p| p.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}
