//! What Kubernetes accepts as names, label keys and label values. Source: k8s.io/apimachinery/pkg/util/validation.

fn lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn ends_alnum(bytes: &[u8]) -> bool {
    let alnum = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    alnum(bytes.first()) && alnum(bytes.last())
}

/// RFC 1123 label: what class names are made of, so that they fit every label and metric.
///
/// # Errors
/// How such a name looks.
pub fn dns_label(text: &str) -> Result<(), &'static str> {
    let bytes = text.as_bytes();
    let fine = bytes.len() <= 63 && ends_alnum(bytes) && bytes.iter().all(|b| lower_alnum(*b) || *b == b'-');
    fine.then_some(())
        .ok_or("use 1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit")
}

/// RFC 1123 subdomain: names of most objects.
///
/// # Errors
/// How such a name looks.
pub fn dns_subdomain(text: &str) -> Result<(), &'static str> {
    let label = |l: &str| ends_alnum(l.as_bytes()) && l.bytes().all(|b| lower_alnum(b) || b == b'-');
    let fine = text.len() <= 253 && text.split('.').all(label);
    fine.then_some(())
        .ok_or("use at most 253 of a-z, 0-9, - and ., every part beginning and ending with a letter or digit")
}

fn name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && ends_alnum(bytes)
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// `name` or `prefix/name`: keys of labels and annotations.
pub(super) fn qualified(text: &str) -> Result<(), &'static str> {
    let fine = match text.split_once('/') {
        Some((prefix, name)) => dns_subdomain(prefix).is_ok() && name_part(name),
        None => name_part(text),
    };
    fine.then_some(())
        .ok_or("use name or dns.prefix/name, the name with at most 63 of letters, digits, -, _ and .")
}

pub(super) fn label_value(text: &str) -> Result<(), &'static str> {
    (text.is_empty() || name_part(text))
        .then_some(())
        .ok_or("use at most 63 of letters, digits, -, _ and ., beginning and ending with a letter or digit")
}

/// What drivers call partitions: `3g.40gb`, `1g.10gb+me.all`, `cpx_nps4`.
pub(super) fn profile(text: &str) -> Result<(), &'static str> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-' | b'_' | b'=' | b',');
    ((1..=63).contains(&text.len()) && text.bytes().all(legal))
        .then_some(())
        .ok_or("use a profile as the driver spells it, like 3g.40gb, 1g.10gb+me or cpx_nps4, or whole")
}

/// Resources of HAMi beside the card count: they say how much of a card, not how many.
pub const HAMI_AMOUNTS: [&str; 4] = [
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
    "nvidia.com/priority",
];

/// A resource of somebody's own: `domain/name` outside `kubernetes.io`.
pub(super) fn extended_resource(text: &str) -> Result<(), &'static str> {
    if HAMI_AMOUNTS.contains(&text) {
        return Err("an amount of a card of HAMi's, not a number of devices: it cannot be claimed");
    }
    let domain = text.split_once('/').map(|(domain, _)| domain);
    let own = domain.is_some_and(|d| d != "kubernetes.io" && !d.ends_with(".kubernetes.io"));
    (own && qualified(text).is_ok())
        .then_some(())
        .ok_or("use the name of an extended resource, like nvidia.com/gpu")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_rules() {
        for (check, good, bad) in [
            (
                dns_label as fn(&str) -> Result<(), &'static str>,
                vec!["a", "server-600w", "9"],
                vec!["", "-a", "a-", "A", "a.b", "a_b", "é"],
            ),
            (
                dns_subdomain,
                vec!["gpu.nvidia.com", "a"],
                vec!["", ".", "a..b", "a.-b", "a/b"],
            ),
            (
                qualified,
                vec!["team", "a.b/c_D.e", "nvidia.com/gpu"],
                vec!["", "/a", "a/", "a/b/c", "A.b/c d", "-x"],
            ),
            (label_value, vec!["", "true", "a.b_c"], vec!["a b", "-a", "a/b"]),
            (
                extended_resource,
                vec!["nvidia.com/gpu", "amd.com/gpu"],
                vec![
                    "gpu",
                    "cpu",
                    "kubernetes.io/batch",
                    "x.kubernetes.io/y",
                    "nvidia.com/gpumem",
                    "",
                ],
            ),
        ] {
            for text in good {
                assert!(check(text).is_ok(), "{text}");
            }
            for text in bad {
                assert!(check(text).is_err(), "{text}");
            }
        }
        assert!(dns_label(&"a".repeat(64)).is_err());
    }
}
