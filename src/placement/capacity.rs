//! Consumable capacity: what a request takes of a device's capacities, after the device's request policy. A request
//! names a capacity as the slice spells it, with or without the driver's domain; the other spelling is another capacity.
//!
//! Rules: k8s.io/dynamic-resource-allocation, structured, consumable_capacity.go.

use crate::model::{Capacity, Device, QualifiedName, Quantity, RequestPolicy};

const UNIT: i128 = 1_000_000_000;

/// What `asked` takes of each capacity of the device, in the device's order. None: the device cannot serve it at all,
/// because it lacks a capacity that is asked for, its policy has no such value, or it is too small.
pub(super) fn consumption(device: &Device, asked: &Asked) -> Option<Box<[Quantity]>> {
    has_all(device, asked).then(|| taken(device, asked).collect())?
}

/// Whether there is a consumption, for a device that is given whole.
pub(super) fn serves(device: &Device, asked: &Asked) -> bool {
    has_all(device, asked) && taken(device, asked).all(|takes| takes.is_some())
}

type Asked = [(QualifiedName, Quantity)];

fn means(asked: &QualifiedName, (has, capacity): &(QualifiedName, Capacity)) -> bool {
    let domain = if capacity.domain_written { &*has.domain } else { "" };
    asked.name == has.name && *asked.domain == *domain
}

fn has_all(device: &Device, asked: &Asked) -> bool {
    let has = |name| device.capacity.iter().any(|has| means(name, has));
    asked.iter().all(|(name, _)| has(name))
}

fn taken(device: &Device, asked: &Asked) -> impl Iterator<Item = Option<Quantity>> {
    device.capacity.iter().map(|has| {
        let capacity = &has.1;
        let want = asked.iter().find(|(q, _)| means(q, has)).map(|(_, v)| *v);
        if want.is_none() && capacity.policy.is_none() {
            return Some(capacity.value); // nearly all
        }
        let takes = rounded(want, capacity);
        let legal = capacity.policy.as_ref().is_none_or(|p| allowed(takes, p));
        (legal && takes <= capacity.value).then_some(takes)
    })
}

/// The value that is really taken: the default where nothing is asked, else rounded up to what the policy sells.
fn rounded(want: Option<Quantity>, capacity: &Capacity) -> Quantity {
    let policy = capacity.policy.as_ref();
    let Some(want) = want else {
        return policy.and_then(|p| p.default).unwrap_or(capacity.value);
    };
    let Some(policy) = policy else { return want };
    if let Some((min, _, step)) = policy.valid_range {
        if want < min {
            return min;
        }
        let Some(step) = whole(step) else { return want };
        let from = ceil(min);
        let steps = (ceil(want) - from + step - 1) / step;
        return min.with_nanos((from + steps * step).saturating_mul(UNIT));
    }
    // Ascending; one that is larger than all of them stays, and `allowed` refuses it.
    policy.valid_values.iter().copied().find(|v| want <= *v).unwrap_or(want)
}

fn allowed(takes: Quantity, policy: &RequestPolicy) -> bool {
    if policy.default == Some(takes) {
        return true;
    }
    if let Some((min, max, step)) = policy.valid_range {
        return max.is_none_or(|m| takes <= m) && whole(step).is_none_or(|s| (ceil(takes) - ceil(min)) % s == 0);
    }
    policy.valid_values.is_empty() || policy.valid_values.contains(&takes)
}

/// Steps are counted in whole units, rounded up, as upstream does; a step of zero is no step.
fn whole(step: Option<Quantity>) -> Option<i128> {
    step.map(ceil).filter(|s| *s > 0)
}

fn ceil(q: Quantity) -> i128 {
    let n = q.nanos();
    n.div_euclid(UNIT) + i128::from(n.rem_euclid(UNIT) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        text.parse().expect("test quantity")
    }

    fn device(capacities: &[(&str, &str, Option<RequestPolicy>)]) -> Device {
        Device {
            name: "d".into(),
            capacity: capacities
                .iter()
                .map(|(n, v, p)| {
                    let capacity = Capacity {
                        value: q(v),
                        domain_written: n.contains('/'),
                        policy: p.clone(),
                    };
                    (QualifiedName::parse(n, &"drv".into()), capacity)
                })
                .collect(),
            allow_multiple: true,
            ..Device::default()
        }
    }

    fn takes(device: &Device, asked: &[(&str, &str)]) -> Option<Vec<String>> {
        let asked: Vec<_> = asked
            .iter()
            .map(|(n, v)| (QualifiedName::parse(n, &"".into()), q(v)))
            .collect();
        Some(consumption(device, &asked)?.iter().map(|q| q.to_string()).collect())
    }

    #[test]
    fn nothing_asked_takes_the_default_or_all() {
        let policy = RequestPolicy {
            default: Some(q("1Gi")),
            ..RequestPolicy::default()
        };
        let d = device(&[("memory", "80Gi", Some(policy)), ("cores", "100", None)]);
        assert_eq!(takes(&d, &[]), Some(vec!["1Gi".into(), "100".into()]));
        assert_eq!(takes(&d, &[("memory", "3Gi")]), Some(vec!["3Gi".into(), "100".into()]));
        assert_eq!(takes(&d, &[("memory", "81Gi")]), None);
        assert_eq!(takes(&d, &[("bandwidth", "1")]), None);
        assert_eq!(takes(&d, &[("other/memory", "1")]), None);
    }

    #[test]
    fn names_are_compared_as_text() {
        let (short, full) = (
            device(&[("memory", "80Gi", None)]),
            device(&[("drv/memory", "80Gi", None)]),
        );
        let four = Some(vec!["4Gi".to_owned()]);
        assert_eq!(takes(&short, &[("memory", "4Gi")]), four);
        assert_eq!(takes(&full, &[("drv/memory", "4Gi")]), four);
        assert_eq!(takes(&short, &[("drv/memory", "4Gi")]), None);
        assert_eq!(takes(&full, &[("memory", "4Gi")]), None);
        assert_eq!(takes(&full, &[]), Some(vec!["80Gi".to_owned()]));
    }

    #[test]
    fn ranges_round_up_to_steps_and_end_at_the_maximum() {
        let policy = RequestPolicy {
            valid_range: Some((q("2"), Some(q("9")), Some(q("3")))),
            ..RequestPolicy::default()
        };
        let d = device(&[("slots", "20", Some(policy))]);
        for (asked, got) in [
            ("1", Some("2")),
            ("2", Some("2")),
            ("3", Some("5")),
            ("2500m", Some("5")),
            ("8", Some("8")),
        ] {
            assert_eq!(
                takes(&d, &[("slots", asked)]),
                got.map(|g| vec![g.to_owned()]),
                "{asked}"
            );
        }
        assert_eq!(takes(&d, &[("slots", "9")]), None, "11 is above the maximum");
    }

    #[test]
    fn valid_values_round_up_and_larger_ones_are_refused() {
        let policy = RequestPolicy {
            valid_values: [q("1"), q("4")].into(),
            ..RequestPolicy::default()
        };
        let d = device(&[("slots", "20", Some(policy))]);
        assert_eq!(takes(&d, &[("slots", "2")]), Some(vec!["4".into()]));
        assert_eq!(takes(&d, &[("slots", "5")]), None);
    }
}
