//! Durations and timestamps. The values and their arithmetic are the crate's; reading them is ours, since Go reads other
//! texts than the crate does (`1hour` is none, `1µs` and `.5s` are).
//!
//! Sources: cel-go common/types (string.go, duration.go, timestamp.go), Go's time.ParseDuration and time.RFC3339.

use cel::common::types::{CelDuration, CelInt, CelTimestamp};
use cel::common::value::{CowVal, Val};
use chrono::{DateTime, FixedOffset, TimeDelta};

use super::super::budget::charge_bytes;
use super::{Arg, Args, Native, Returned, no_overload};
use crate::model::go_duration;

/// The first second of year 1 and the last of year 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

pub(super) const NATIVES: &[Native] = &[
    ("@duration", false, 1, to_duration),
    ("@timestamp", false, 1, to_timestamp),
    // The crate has this of everything but durations.
    ("int", false, 1, |args| match args.as_slice() {
        [d] => match d.as_ref().downcast_ref::<CelDuration>() {
            Some(d) => match d.inner().num_nanoseconds() {
                Some(n) => Ok(CowVal::owned(CelInt::from(n))),
                None => Err(cel::ExecutionError::function_error("int", "integer overflow")),
            },
            None => Err(no_overload("int", &args)),
        },
        _ => Err(no_overload("int", &args)),
    }),
];

fn to_duration<'b, 'v>(args: Args<'b, 'v>) -> Returned<'b, 'v> {
    let [given] = args.as_slice() else {
        return Err(no_overload("duration", &args));
    };
    if let Arg::String(text) = Arg::of(given.as_ref()) {
        charge_bytes(text.len())?;
        let refused = || conversion("string", "google.protobuf.Duration");
        let nanos = go_duration(text).ok_or_else(refused)?;
        return Ok(CowVal::owned(CelDuration::from(TimeDelta::nanoseconds(nanos))));
    }
    match given.as_ref().downcast_ref::<CelDuration>() {
        Some(d) => Ok(CowVal::owned(*d)),
        // Declared for integers too, and never successful.
        None => Err(conversion(given.get_type().name(), "google.protobuf.Duration")),
    }
}

fn to_timestamp<'b, 'v>(args: Args<'b, 'v>) -> Returned<'b, 'v> {
    let [given] = args.as_slice() else {
        return Err(no_overload("timestamp", &args));
    };
    let found = match Arg::of(given.as_ref()) {
        Arg::String(text) => {
            charge_bytes(text.len())?;
            timestamp(text)
        }
        Arg::Int(seconds) => at(seconds),
        _ => given.as_ref().downcast_ref::<CelTimestamp>().map(|t| *t.inner()),
    };
    let found = found.ok_or_else(|| conversion(given.get_type().name(), "google.protobuf.Timestamp"))?;
    Ok(CowVal::owned(CelTimestamp::from(found)))
}

fn conversion(from: &str, to: &str) -> cel::ExecutionError {
    cel::ExecutionError::function_error(to, format!("type conversion error from '{from}' to '{to}'"))
}

/// A timestamp as cel-go writes it: with the offset it came with, and no zeros at the end of a second.
pub(super) fn text(value: &dyn Val) -> Option<String> {
    let at = value.downcast_ref::<CelTimestamp>()?.inner();
    let nanos = format!("{:09}", at.timestamp_subsec_nanos());
    let fraction = match nanos.trim_end_matches('0') {
        "" => String::new(),
        digits => format!(".{digits}"),
    };
    let zone = match at.offset().local_minus_utc() {
        0 => "Z".to_owned(),
        _ => at.format("%:z").to_string(),
    };
    Some(format!("{}{fraction}{zone}", at.format("%Y-%m-%dT%H:%M:%S")))
}

/// As `time.Parse(time.RFC3339, …)` reads it, within the years that CEL knows.
pub(in super::super) fn timestamp(text: &str) -> Option<DateTime<FixedOffset>> {
    // chrono takes more: small letters, a space, a 60th second.
    let shape = text.bytes().enumerate().all(|(i, b)| match i {
        4 | 7 => b == b'-',
        10 => b == b'T',
        13 | 16 => b == b':',
        0..19 => b.is_ascii_digit(),
        _ => b.is_ascii_digit() || matches!(b, b'.' | b'Z' | b'+' | b'-' | b':'),
    });
    if !shape || text.get(17..19).is_none_or(|seconds| seconds > "59") {
        return None;
    }
    let read = DateTime::parse_from_rfc3339(text).ok()?;
    SECONDS.contains(&read.timestamp()).then_some(read)
}

/// That many seconds after 1970.
pub(in super::super) fn at(seconds: i64) -> Option<DateTime<FixedOffset>> {
    let inside = SECONDS.contains(&seconds).then_some(seconds)?;
    DateTime::from_timestamp(inside, 0).map(|t| t.fixed_offset())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_read_as_go_reads_them() {
        let seconds = |text| timestamp(text).map(|t| t.timestamp());
        for (text, expected) in [
            ("1970-01-01T00:00:01Z", Some(1)),
            ("1970-01-01T01:00:01.5+01:00", Some(1)),
            ("9999-12-31T23:59:59Z", Some(253_402_300_799)),
            ("9999-12-31T23:59:59-01:00", None),
            ("0000-12-31T23:59:59Z", None),
            ("1970-01-01t00:00:01Z", None),
            ("1970-01-01T00:00:01z", None),
            ("1970-01-01 00:00:01Z", None),
            ("1970-01-01T00:00:60Z", None),
            ("1970-02-30T00:00:00Z", None),
            ("1970-01-01T00:00:01", None),
            ("1970-01-01", None),
            ("", None),
            ("\u{b5}970-01-01T00:00:01Z", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
