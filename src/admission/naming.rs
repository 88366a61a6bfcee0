//! Names of what is made by its content: a readable part, and a hash that no other content has.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::model::NAME_HASH;

/// Hexadecimal, as long as `unhashed` takes off.
pub(super) fn hash(content: &str) -> String {
    let digest = Sha256::digest(content.as_bytes());
    let mut hash = String::with_capacity(NAME_HASH);
    for byte in digest.iter().take(NAME_HASH / 2) {
        let _infallible = write!(hash, "{byte:02x}");
    }
    hash
}

/// A text as it may stand in the middle of a name.
pub(super) fn label(text: &str) -> String {
    let legal = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_lowercase(),
        false => '-',
    };
    let label: String = text.chars().map(legal).take(40).collect();
    label.trim_matches('-').to_owned()
}
