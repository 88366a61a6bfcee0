//! Class names of products that no policy names.

use sha2::{Digest, Sha256};

use crate::model::normalised;

/// Class names are DNS labels.
const MAX: usize = 63;

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
    use super::class_name;
    use proptest::prelude::*;

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
    }
}
