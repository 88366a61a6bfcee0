//! Quantities as apimachinery keeps them: `isInteger` and `asInteger` look at how an amount is held, which comes from
//! how it was spelled, and not at its value. `1.5Gi` and `1.0` are no integers to them.
//!
//! Source: k8s.io/apimachinery/pkg/api/resource (`ParseQuantity`, `int64Amount`).

use crate::model::Quantity;

/// An exact amount, and how Go would hold it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Amount {
    pub(super) exact: Quantity,
    held: Held,
}

#[derive(Clone, Copy, Debug)]
enum Held {
    /// Spelled as the API server writes quantities: a capacity of a device.
    Canonical,
    /// `value * 10^scale`.
    Short(i64, i32),
    /// In arbitrary precision, and never an integer again.
    Long,
}

/// Digits an `int64` is trusted with (`maxInt64Factors`).
const DIGITS: i32 = 18;

impl Amount {
    pub(in super::super) fn of_device(exact: Quantity) -> Self {
        let held = Held::Canonical;
        Self { exact, held }
    }

    pub(super) fn of_integer(n: i64) -> Self {
        Self {
            exact: Quantity::from_integer(n),
            held: Held::Short(n, 0),
        }
    }

    pub(super) fn read(text: &str) -> Result<Self, String> {
        let exact = text.parse::<Quantity>().map_err(|e| e.to_string())?;
        let held = short(text).map_or(Held::Long, |(value, scale)| Held::Short(value, scale));
        Ok(Self { exact, held })
    }

    pub(super) fn integer(self) -> Option<i64> {
        let (value, scale) = self.short()?;
        match scale {
            0 => Some(value),
            1.. => scaled(value, scale),
            _ => None,
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        let held = match (self.short(), other.short()) {
            (Some(a), Some(b)) => added(a, b).map_or(Held::Long, |(value, scale)| Held::Short(value, scale)),
            _ => Held::Long,
        };
        Self {
            exact: self.exact.plus(other.exact),
            held,
        }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        let negative = other
            .short()
            .and_then(|(value, scale)| Some((value.checked_neg()?, scale)));
        let held = match (self.short(), negative) {
            (Some(a), Some(b)) => added(a, b).map_or(Held::Long, |(value, scale)| Held::Short(value, scale)),
            _ => Held::Long,
        };
        Self {
            exact: self.exact.minus(other.exact),
            held,
        }
    }

    fn short(self) -> Option<(i64, i32)> {
        match self.held {
            Held::Canonical => short(&self.exact.to_string()),
            Held::Short(value, scale) => Some((value, scale)),
            Held::Long => None,
        }
    }
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.exact == other.exact
    }
}

fn scaled(value: i64, scale: i32) -> Option<i64> {
    value.checked_mul(10_i64.checked_pow(u32::try_from(scale).ok()?)?)
}

fn added(a: (i64, i32), b: (i64, i32)) -> Option<(i64, i32)> {
    match (a, b) {
        (a, (0, _)) => Some(a),
        ((0, _), b) => Some(b),
        ((a, at), (b, bt)) => {
            let scale = at.min(bt);
            let sum = scaled(a, at - scale)?.checked_add(scaled(b, bt - scale)?)?;
            Some((sum, scale))
        }
    }
}

/// The fast path of `ParseQuantity`. None: not taken. The text is known to be a quantity.
fn short(text: &str) -> Option<(i64, i32)> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    let digits = |n: usize| i32::try_from(n).ok();
    let (multiplier, exponent, precision) = match suffix.strip_suffix('i') {
        Some(prefix) => {
            if !fraction.is_empty() {
                return None;
            }
            let power = 10 * i32::try_from("KMGTPE".find(prefix)?).ok()? + 10;
            let precision = 15 - digits(whole.len())? - power * 3 / 10 - 1;
            (1_i64 << power, 0, precision)
        }
        None => {
            let exponent = match suffix {
                "n" => -9,
                "u" => -6,
                "m" => -3,
                "" => 0,
                "k" => 3,
                "M" => 6,
                "G" => 9,
                "T" => 12,
                "P" => 15,
                "E" => 18,
                other => other.strip_prefix(['e', 'E'])?.parse().ok()?,
            };
            (1, exponent, DIGITS - digits(whole.len() + fraction.len())?)
        }
    };
    let scale = exponent - digits(fraction.len())?;
    if precision < 0 || scale < -9 {
        return None;
    }
    let value: i64 = format!("{whole}{fraction}").parse().ok()?;
    let value = value.checked_mul(multiplier)?;
    Some((if negative { -value } else { value }, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(text: &str) -> Option<i64> {
        Amount::read(text).expect("a quantity").integer()
    }

    #[test]
    fn spelling_decides_what_is_an_integer() {
        for (text, expected) in [
            ("0", Some(0)),
            ("50k", Some(50_000)),
            ("-2E", Some(-2_000_000_000_000_000_000)),
            ("1536Mi", Some(1_610_612_736)),
            ("1.5Gi", None),
            ("1.0", None),
            ("1000m", None),
            ("1e3", Some(1000)),
            ("007", Some(7)),
            ("9999999999999999999G", None),
            // More digits than are trusted, though they would fit.
            ("1234567890123456789", None),
            ("1Ei", None),
        ] {
            assert_eq!(integer(text), expected, "{text}");
        }
        let sum = |a: &str, b: &str| {
            Amount::read(a)
                .expect("one")
                .plus(Amount::read(b).expect("two"))
                .integer()
        };
        assert_eq!(sum("1Gi", "0.5Gi"), None);
        assert_eq!(sum("1k", "1"), Some(1001));
        assert_eq!(sum("1", "1000m"), None);
        assert_eq!(
            Amount::of_device("1.5Gi".parse().expect("a quantity")).integer(),
            Some(1_610_612_736)
        );
    }
}
