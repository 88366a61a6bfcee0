//! JSON as the API server serves it, which is more than serde_json takes. Opaque parts of an object (a config's
//! `parameters`, a driver's `data`) are stored as the bytes somebody sent: nested as deep as anybody likes, with half a
//! surrogate pair in a string, with bytes that are not UTF-8, with numbers beyond a double. Whoever fails on those loses
//! the event or the list around them.
//!
//! What cannot be kept becomes U+FFFD, as Go reads such strings. `convert` refuses to pass parameters on that have it
//! in them. No recursion: a stack is not ours to size.

use bytes::Bytes;
use serde::de::DeserializeOwned;

/// Values below this many arrays and objects become [`LOST`]. serde_json recurses 127 deep; nothing that is read is
/// a fifth as deep as this.
const DEEPEST: usize = 100;
/// A value that could not be kept.
const LOST: &str = "\"\u{fffd}\"";

/// Reads what the API server answered.
///
/// # Errors
/// It is no JSON, or not of that shape.
pub(super) fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(bytes).or_else(|_| serde_json::from_str(&mend(&String::from_utf8_lossy(bytes))))
}

/// Reads one value of a text that is JSON by its syntax.
///
/// # Errors
/// It is not of that shape.
pub(super) fn from_str<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    // Nearly always the first is enough.
    serde_json::from_str(text).or_else(|_| serde_json::from_str(&mend(text)))
}

/// The text without what serde_json does not take. Of a text that is no JSON something is made that is none either.
fn mend(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut depth = 0_usize;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (token, after) = rest.split_at(match first {
            '"' => string_end(rest),
            '-' | '0'..='9' => rest.find(|c| !is_of_number(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        });
        rest = after;
        match first {
            '{' | '[' => {
                if depth == DEEPEST {
                    out.push_str(LOST);
                }
                depth += 1;
                out.push_str(if depth <= DEEPEST { token } else { "" });
            }
            '}' | ']' => {
                out.push_str(if depth <= DEEPEST { token } else { "" });
                depth = depth.saturating_sub(1);
            }
            _ if depth > DEEPEST => {}
            '"' => push_string(&mut out, token),
            '-' | '0'..='9' if !token.parse::<f64>().is_ok_and(f64::is_finite) => out.push_str(LOST),
            _ => out.push_str(token),
        }
    }
    out
}

fn is_of_number(c: char) -> bool {
    matches!(c, '-' | '+' | '.' | 'e' | 'E' | '0'..='9')
}

/// Where the string that the text begins with ends, its closing quote included.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// A string with its quotes; halves of surrogate pairs are replaced.
fn push_string(out: &mut String, token: &str) {
    let mut rest = token;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let len = match unit(escape) {
            Some(0xd800..=0xdbff) if matches!(escape.get(6..).and_then(unit), Some(0xdc00..=0xdfff)) => 12,
            Some(0xd800..=0xdfff) => {
                out.push('\u{fffd}');
                rest = escape.get(6..).unwrap_or("");
                continue;
            }
            Some(_) => 6,
            None => 1 + escape.chars().nth(1).map_or(0, char::len_utf8),
        };
        let (kept, after) = escape.split_at(len);
        out.push_str(kept);
        rest = after;
    }
    out.push_str(rest);
}

/// The UTF-16 code unit of an escape that the text begins with.
fn unit(text: &str) -> Option<u16> {
    let hex = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(hex, 16).ok()
}

/// Makes UTF-8 of a stream of bytes, piece by piece; what is none becomes U+FFFD.
#[derive(Debug, Default)]
pub(super) struct Utf8 {
    /// The beginning of a character whose rest has not come yet: three bytes at most.
    begun: Vec<u8>,
}

impl Utf8 {
    pub(super) fn take(&mut self, data: Bytes) -> Bytes {
        if self.begun.is_empty() && std::str::from_utf8(&data).is_ok() {
            return data;
        }
        let mut bytes = std::mem::take(&mut self.begun);
        bytes.extend_from_slice(&data);
        let mut rest = &bytes[..];
        let mut out = Vec::with_capacity(bytes.len());
        loop {
            let Err(error) = std::str::from_utf8(rest) else {
                out.extend_from_slice(rest);
                return out.into();
            };
            let (good, bad) = rest.split_at(error.valid_up_to());
            out.extend_from_slice(good);
            let Some(len) = error.error_len() else {
                self.begun = bad.to_vec();
                return out.into();
            };
            out.extend_from_slice("\u{fffd}".as_bytes());
            rest = &bad[len..];
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn deep(levels: usize) -> String {
        format!("{}1{}", r#"{"a":["#.repeat(levels / 2), "]}".repeat(levels / 2))
    }

    #[test]
    fn what_go_serves_is_read_and_what_cannot_be_kept_is_marked() {
        let cases = [
            (r#"{"a":"\ud800"}"#, json!({"a": "\u{fffd}"})),
            (
                r#"["\udc00x\ud83d\ude00\ud800A\\ud800"]"#,
                json!(["\u{fffd}x😀\u{fffd}A\\ud800"]),
            ),
            (
                r#"{"\ud800":"\"\\","n":[1e999,-1e999,1.5,-0]}"#,
                json!({"\u{fffd}": "\"\\", "n": ["\u{fffd}", "\u{fffd}", 1.5, -0.0]}),
            ),
        ];
        for (text, expected) in cases {
            assert!(serde_json::from_str::<Value>(text).is_err(), "{text} needs no mending");
            assert_eq!(from_str::<Value>(text).ok(), Some(expected), "{text}");
        }
        let bytes = [b"{\"a\":\"".as_slice(), &[0xff, 0xc3], b"\"}"].concat();
        assert_eq!(from_slice::<Value>(&bytes).ok(), Some(json!({"a": "\u{fffd}\u{fffd}"})));
    }

    #[test]
    fn what_is_too_deep_is_cut_off_and_nothing_beside_it() {
        for levels in [128, 200, 2_000_000] {
            let text = format!(r#"{{"before":1,"deep":{},"after":{{"b":[2]}}}}"#, deep(levels));
            let read: Value = from_str(&text).expect("it is JSON");
            assert_eq!((&read["before"], &read["after"]), (&json!(1), &json!({"b": [2]})));
            assert!(read["deep"].to_string().contains('\u{fffd}'));
        }
        assert_eq!(mend(&deep(DEEPEST)), deep(DEEPEST));
    }

    proptest! {
        /// Text that serde_json takes is not changed; any text ends.
        #[test]
        fn mending_changes_nothing_that_is_well(text in r#"[\\"ud8c0-9a\[\]{}:, \u{e9}-]{0,60}"#, n in any::<f64>(), s in ".*") {
            let mended = mend(&text);
            if serde_json::from_str::<Value>(&text).is_ok() {
                prop_assert_eq!(mended, text);
            }
            let well = json!({"s": s, "n": n, "list": [s, {"s": s}]}).to_string();
            prop_assert_eq!(mend(&well), well);
        }

        /// In whatever pieces it comes, it is what the whole would be.
        #[test]
        fn a_stream_is_made_utf8_as_its_whole_would_be(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xe2), Just(0x82), Just(0xac)], 0..40), cut in 1_usize..5) {
            let mut utf8 = Utf8::default();
            let mut out = vec![];
            for piece in bytes.chunks(cut) {
                out.extend_from_slice(&utf8.take(Bytes::copy_from_slice(piece)));
            }
            let rest = String::from_utf8_lossy(&utf8.begun).into_owned();
            out.extend_from_slice(rest.as_bytes());
            prop_assert_eq!(String::from_utf8(out).ok(), Some(String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
}
