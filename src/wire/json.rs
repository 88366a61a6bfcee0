//! JSON helpers for answers that are written directly, without a tree in between, and for keys in any case.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A string that borrows from the input where it can. (serde's own `Cow` always copies inside a list.)
///
/// Where it borrows, its text stood in the input between quotes without an escape, so it can be written between
/// quotes as it is: that is what makes an answer with thousands of node names cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl<'de> Visitor<'de> for Words {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Words)
    }
}

/// How many bytes of memory a tree of `serde_json::Value` made of this text takes at most, about: a map of one entry
/// has a B-tree leaf of its own. What stands in strings is counted as if it did not, which errs on the safe side.
pub fn tree_bytes(text: &[u8]) -> usize {
    /// A leaf for eleven entries of a `String` and a `Value`.
    const MAP: usize = 11 * (24 + 32) + 16;
    const ENTRY: usize = 32 + 24;
    let each = text.iter().map(|byte| match byte {
        b'{' => MAP,
        b'[' | b',' => ENTRY,
        _ => 1,
    });
    each.sum()
}

/// Writes `text` as a JSON string, quotes included.
pub(super) fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut written = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0..=0x1f => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(&bytes[written..at]);
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
                written = at + 1;
                continue;
            }
            _ => continue,
        };
        out.extend_from_slice(&bytes[written..at]);
        out.extend_from_slice(escape);
        written = at + 1;
    }
    out.extend_from_slice(&bytes[written..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn written_strings_read_back_the_same(text in any::<String>()) {
            let mut out = vec![];
            write_string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).ok(), Some(text));
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        let mut out = vec![];
        write_string(&mut out, "a\"\\\n\u{1}\u{1f}é");
        assert_eq!(String::from_utf8(out).as_deref(), Ok(r#""a\"\\\n\u0001\u001fé""#));
    }
}
