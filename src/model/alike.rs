//! Which of the names there are is the one that somebody meant.

use std::cmp::Reverse;
use std::collections::BTreeSet;

/// From how near on (1: the same) a name may be a misspelling of another.
const MISSPELT: f64 = 0.5;

/// The share of letter pairs that two names have in common, in thousandths, capitals or not.
fn alike(a: &str, b: &str) -> usize {
    let pairs = |text: &str| -> BTreeSet<[u8; 2]> {
        let text = text.to_lowercase();
        text.as_bytes().windows(2).take(64).map(|w| [w[0], w[1]]).collect()
    };
    let (a, b) = (pairs(a), pairs(b));
    2000 * a.intersection(&b).count() / (a.len() + b.len()).max(1)
}

/// Most alike first, then by name. Good enough to put `h200-700w` before `l4-72w` for somebody who wrote `h200`.
pub fn closest<N: AsRef<str> + Ord + Clone>(mut names: Vec<N>, wanted: &str) -> Vec<N> {
    names.sort_by_cached_key(|name| (Reverse(alike(name.as_ref(), wanted)), name.clone()));
    names
}

/// The one that was probably meant, if one is near enough: by letters to add, drop, change or swap.
pub fn likeliest<'a>(names: impl IntoIterator<Item = &'a str>, wanted: &str) -> Option<&'a str> {
    let wanted: String = wanted.chars().take(128).flat_map(char::to_lowercase).collect();
    let near = |name: &str| strsim::normalized_damerau_levenshtein(&name.to_lowercase(), &wanted);
    let names = names.into_iter().map(|name| (near(name), name));
    let nearest = names.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(a.1)));
    nearest.filter(|(near, _)| *near >= MISSPELT).map(|(_, name)| name)
}

/// What an error says of it, behind its other words.
pub fn hint<'a>(names: impl IntoIterator<Item = &'a str>, wanted: &str) -> Option<String> {
    likeliest(names, wanted).map(|meant| format!("; did you mean {meant}?"))
}

#[cfg(test)]
mod tests {
    use super::{closest, likeliest};

    #[test]
    fn the_likeliest_comes_first() {
        let classes = || vec!["l4-72w", "h200-700w", "a10-150w", "h100-80gb-hbm3-700w"];
        assert_eq!(closest(classes(), "H200")[0], "h200-700w");
        assert_eq!(closest(classes(), "h100")[0], "h100-80gb-hbm3-700w");
        assert_eq!(closest(classes(), "")[0], "a10-150w");
    }

    #[test]
    fn only_what_is_near_was_meant() {
        let fields = ["name", "match", "maxGpusPerPod", "patch"];
        assert_eq!(likeliest(fields, "maxGPUPerPod"), Some("maxGpusPerPod"));
        assert_eq!(likeliest(fields, "macth"), Some("match"));
        assert_eq!(likeliest(fields, "names"), Some("name"));
        assert_eq!(likeliest(fields, "limits"), None);
        assert_eq!(likeliest([], "x"), None);
    }
}
