//! Product names: equal whatever tool spelled them.
//!
//! One card is `NVIDIA H100 80GB HBM3` to NVML, `NVIDIA-H100-80GB-HBM3` to GPU feature discovery (with `-SHARED` or
//! `-MIG-1g.10gb` behind it), and AMD's driver writes `AMD_Instinct_MI300X_OAM`. Names are compared whole, word by
//! word: `H20` is not `H200`.

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::normalised;

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

    proptest! {
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
