//! What the vendors' tools print, as a report. Several outputs of one machine are read together: the link matrix of one
//! command, the names and limits of another. Which tool wrote a text is seen from the text.
//!
//! Output is of all ages and has passed through terminals, logs and people, so nothing is taken for granted: what cannot
//! be read, or contradicts itself, is `Unknown` with a word about it, never a guess and never "no link".

mod amd;
mod clean;
mod gathered;
mod matrix;
mod query;
mod rocm;

use gathered::Gathered;
pub use gathered::Reading;

/// Longest text looked at, in bytes. A matrix of 72 cards and 20 NICs is about 60 KiB.
pub const MAX_BYTES: usize = 1 << 20;

/// Reads outputs of one machine: `nvidia-smi topo -m`, `nvidia-smi --query-gpu=… --format=csv`, the JSON of `amd-smi`
/// (`topology`, `list`, `static`) and `rocm-smi`, the text of `rocm-smi --showtopo`. Cards are put together by the number
/// the tool gives them.
///
/// # Errors
/// In words, naming the text by its position: too long, or nothing in it that such a tool prints. "No devices" is an
/// answer, not an error.
pub fn read(texts: &[&str]) -> Result<Reading, String> {
    let mut gathered = Gathered::default();
    for (i, text) in texts.iter().enumerate() {
        read_one(text, &mut gathered).map_err(|e| match texts.len() {
            1 => e,
            _ => format!("output {}: {e}", i + 1),
        })?;
    }
    gathered.finish()
}

fn read_one(text: &str, into: &mut Gathered) -> Result<(), String> {
    if text.len() > MAX_BYTES {
        return Err(format!("{} bytes long, at most {MAX_BYTES} are read", text.len()));
    }
    let text = clean::clean(text);
    if let Some(json) = clean::json(&text) {
        return if rocm::is_rocm(&json) {
            rocm::read_json(&json, into)
        } else {
            amd::read(&json, into)
        };
    }
    if rocm::is_rocm_text(&text) {
        return rocm::read_text(&text, into);
    }
    if matrix::read(&text, into) || query::read(&text, into) || text.contains("No devices were found") {
        return Ok(());
    }
    Err(
        "no link matrix and no list of cards in it: wanted is what `nvidia-smi topo -m`, `nvidia-smi --query-gpu=… \
         --format=csv`, or amd-smi or rocm-smi with --json print"
            .into(),
    )
}

#[cfg(test)]
mod tests;
