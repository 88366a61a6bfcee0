//! Product names: equal whatever tool spelled them, and turned into class names.
//!
//! One card is `NVIDIA H100 80GB HBM3` to NVML, `NVIDIA-H100-80GB-HBM3` to GPU feature discovery (with `-SHARED` or
//! `-MIG-1g.10gb` behind it), and AMD's driver writes `AMD_Instinct_MI300X_OAM`. Names are compared whole, word by
//! word: `H20` is not `H200`.

use sha2::{Digest, Sha256};

/// Class names are DNS labels.
const MAX: usize = 63;

/// Words of the name, lower case, joined by blanks; without the vendor and without the suffixes of feature discovery.
pub fn normalised(product: &str) -> String {
    let lower = product.to_lowercase();
    let mut words: Vec<String> = lower
        .split([' ', '_', '-', '\t'])
        // Feature discovery drops every other character (parentheses, say), so both spellings lose them here.
        .map(|w| w.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '.').collect())
        .filter(|w: &String| !w.is_empty())
        .collect();
    if words.len() > 1 && matches!(words[0].as_str(), "nvidia" | "amd") {
        words.remove(0);
    }
    if words.len() > 1 && words.last().is_some_and(|w| w == "shared") {
        words.pop();
    }
    // `…-MIG-1g.10gb`, `…-MIG-1g.10gb.me`: a profile follows, so a product that merely contains the word stays whole.
    if let Some(at) = words.iter().rposition(|w| w == "mig")
        && at > 0
        && words.get(at + 1).is_some_and(|w| is_mig_profile(w))
    {
        words.truncate(at);
    }
    words.join(" ")
}

fn is_mig_profile(word: &str) -> bool {
    let Some((slices, memory)) = word.split_once("g.") else {
        return false;
    };
    !slices.is_empty() && slices.bytes().all(|b| b.is_ascii_digit()) && memory.starts_with(|c: char| c.is_ascii_digit())
}

/// The class a product gets without a policy: its name as a slug, with the watts behind it where they are known
/// (`rtx-pro-6000-blackwell-server-edition-600w`). None where nothing nameable is left of the product.
pub fn class_name(product: &str, watts: Option<u32>) -> Option<String> {
    let name = normalised(product);
    let mut slug = String::with_capacity(name.len() + 8);
    for c in name.chars() {
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.truncate(slug.trim_end_matches('-').len());
    if slug.is_empty() {
        return None;
    }
    let suffix = watts.map(|w| format!("-{w}w")).unwrap_or_default();
    if slug.len() + suffix.len() > MAX {
        // Cut names would make two products one class: a hash of the whole name keeps them apart.
        let hash = Sha256::digest(name.as_bytes());
        let hash = format!("-{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2]);
        slug.truncate(MAX - suffix.len() - hash.len());
        slug.truncate(slug.trim_end_matches('-').len());
        slug.push_str(&hash);
    }
    Some(slug + &suffix)
}

#[cfg(test)]
mod tests {
    use super::{class_name, normalised};
    use proptest::prelude::*;

    #[test]
    fn spellings_of_one_product_are_equal() {
        for (a, b) in [
            ("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3"),
            ("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3-SHARED"),
            ("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"),
            ("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me-SHARED"),
            ("NVIDIA H100 80GB HBM3", "h100 80gb hbm3"),
            ("AMD_Instinct_MI300X_OAM", "AMD Instinct MI300X OAM"),
            ("NVIDIA RTX (tm) 4000", "NVIDIA-RTX-tm-4000"),
        ] {
            assert_eq!(normalised(a), normalised(b));
        }
        for (a, b) in [
            ("H20", "H200"),
            ("A10", "A100"),
            ("A10", "A10G"),
            ("H200", "H200 NVL"),
            ("MIG", ""),
        ] {
            assert_ne!(normalised(a), normalised(b));
        }
    }

    #[test]
    fn class_names() {
        for (product, watts, want) in [
            (
                "NVIDIA RTX PRO 6000 Blackwell Server Edition",
                Some(600),
                Some("rtx-pro-6000-blackwell-server-edition-600w"),
            ),
            ("NVIDIA H100 80GB HBM3", Some(700), Some("h100-80gb-hbm3-700w")),
            ("AMD_Instinct_MI300X_OAM", Some(750), Some("instinct-mi300x-oam-750w")),
            ("NVIDIA GH200 480GB", None, Some("gh200-480gb")),
            ("LATEST-GPU-MODEL", None, Some("latest-gpu-model")),
            ("0x74a1", None, Some("0x74a1")),
            ("NVIDIA", None, Some("nvidia")),
            ("カード", None, None),
            (" - ", Some(3), None),
        ] {
            assert_eq!(class_name(product, watts).as_deref(), want, "{product}");
        }
    }

    #[test]
    fn long_names_stay_distinct() {
        let (a, b) = ("x".repeat(80) + " one", "x".repeat(80) + " two");
        assert_ne!(class_name(&a, Some(300)), class_name(&b, Some(300)));
    }

    proptest! {
        #[test]
        fn a_class_name_is_always_a_label(product in "\\PC{0,120}", watts in proptest::option::of(any::<u32>())) {
            if let Some(name) = class_name(&product, watts) {
                prop_assert!(super::super::names::dns_label(&name).is_ok(), "{}", name);
            }
        }

        #[test]
        fn normalising_twice_changes_nothing(product in "[A-Za-z0-9 ._-]{0,40}") {
            let once = normalised(&product);
            // The vendor is dropped once only: a card called "NVIDIA AMD x" does not exist.
            prop_assume!(!once.starts_with("nvidia ") && !once.starts_with("amd "));
            prop_assume!(!once.ends_with(" shared") && !once.contains(" mig "));
            prop_assert_eq!(normalised(&once), once);
        }
    }
}
