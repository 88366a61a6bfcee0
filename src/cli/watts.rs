//! A sum of watts as commands print it: what is not known is never 0.

use std::collections::BTreeSet;

use serde::Serialize;

/// The watts of some devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Watts {
    /// Of those that are known; null where none is.
    watts: Option<u32>,
    /// How many are not.
    #[serde(skip_serializing_if = "is_zero")]
    unknown_watts: u32,
    /// Where the known figures come from.
    #[serde(skip)]
    from: BTreeSet<&'static str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Watts {
    /// Of each device its watts and where they are from. No devices draw 0 W.
    pub(super) fn of(devices: impl Iterator<Item = (Option<u32>, &'static str)>) -> Self {
        let mut sum = Self {
            watts: Some(0),
            ..Self::default()
        };
        let mut known = 0;
        for (watts, from) in devices {
            match watts {
                Some(watts) => {
                    // At most 2,048 devices a pod, of at most 10 kW.
                    sum.watts = sum.watts.map(|w| w.saturating_add(watts));
                    sum.from.insert(from);
                    known += 1;
                }
                None => sum.unknown_watts += 1,
            }
        }
        if known == 0 && sum.unknown_watts > 0 {
            sum.watts = None;
        }
        sum
    }
}

/// `600 (table)`, `unknown`, `600 (measured) + 1 unknown`.
impl std::fmt::Display for Watts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.watts {
            None => return f.write_str("unknown"),
            Some(watts) => write!(f, "{watts}")?,
        }
        if !self.from.is_empty() {
            write!(f, " ({})", self.from.iter().copied().collect::<Vec<_>>().join(", "))?;
        }
        match self.unknown_watts {
            0 => Ok(()),
            n => write!(f, " + {n} unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Watts;

    #[test]
    fn what_is_not_known_is_never_0() {
        for (devices, text, json) in [
            (vec![], "0", r#"{"watts":0}"#),
            (
                vec![(Some(600), "table"), (Some(600), "table")],
                "1200 (table)",
                r#"{"watts":1200}"#,
            ),
            (vec![(None, "unknown")], "unknown", r#"{"watts":null,"unknownWatts":1}"#),
            (
                vec![(Some(500), "measured"), (None, "unknown"), (Some(72), "policy")],
                "572 (measured, policy) + 1 unknown",
                r#"{"watts":572,"unknownWatts":1}"#,
            ),
        ] {
            let watts = Watts::of(devices.into_iter());
            assert_eq!(watts.to_string(), text);
            assert_eq!(serde_json::to_string(&watts).expect("serializes"), json);
        }
    }
}
