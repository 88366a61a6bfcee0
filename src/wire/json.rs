//! JSON helpers for answers that are written directly, without a tree in between.

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
