//! Kubernetes quantities (`10Gi`, `1500m`, `2e3`), exact to a nano as apimachinery keeps them.
//!
//! Source of the rules: k8s.io/apimachinery/pkg/api/resource/quantity.go.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

const NANO: i128 = 1_000_000_000;
/// apimachinery caps binary amounts at 2^63 - 1 whole units.
const BINARY_MAX: i128 = (i64::MAX as i128) * NANO;
/// Decimal ones it does not cap; here they end at 10^24 units.
const LIMIT: i128 = NANO.pow(3) * 1_000_000;
/// Where sums of them end, so that a few more can be added without a look.
const SUM_LIMIT: i128 = i128::MAX >> 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

/// An exact amount. Equality, order and hash look at the amount, not at its spelling.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError(String);

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a quantity (like 2, 500m, 16Gi)", self.0)
    }
}

impl std::error::Error for QuantityError {}

impl Quantity {
    pub const ZERO: Self = Self {
        nanos: 0,
        format: Format::Decimal,
    };

    pub const fn from_integer(n: i64) -> Self {
        Self {
            nanos: n as i128 * NANO,
            format: Format::Decimal,
        }
    }

    /// The amount in billionths of a unit.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// So large that the true amount may be larger: nothing may be given out of it.
    pub fn is_capped(self) -> bool {
        self.nanos >= LIMIT
    }

    /// Same spelling family, other amount (saturating far above what can be read).
    pub fn with_nanos(self, nanos: i128) -> Self {
        Self {
            nanos: nanos.clamp(-SUM_LIMIT, SUM_LIMIT),
            format: self.format,
        }
    }

    /// The amount as an integer, if it is one.
    pub fn as_integer(self) -> Option<i64> {
        (self.nanos % NANO == 0)
            .then(|| i64::try_from(self.nanos / NANO).ok())
            .flatten()
    }

    /// The least that is taken for the size of a memory or a model, in bytes: of less the unit was forgotten.
    pub const LEAST_SIZE: i64 = 1 << 20;

    /// What such a size says, in bytes: a whole number.
    pub fn size(text: &str) -> Option<i64> {
        let bytes = text.parse::<Self>().ok()?.as_integer()?;
        (bytes >= Self::LEAST_SIZE).then_some(bytes)
    }

    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Nearest floating point value.
    pub fn as_f64(self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with_nanos(self.nanos.saturating_add(other.nanos))
    }

    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.with_nanos(self.nanos.saturating_sub(other.nanos))
    }

    fn read(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let (base2, exponent, format) = suffix_of(suffix)?;
        // digits * 10^(exponent - fraction.len()) * 1024^base2, in nanos, rounded away from zero.
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        let mut shift = exponent
            .checked_add(9)?
            .checked_sub(i32::try_from(fraction.len()).ok()?)?;
        let max = if base2 > 0 { BINARY_MAX } else { LIMIT };
        let saturated = |negative: bool| Self {
            nanos: if negative { -max } else { max },
            format,
        };
        if digits.is_empty() {
            return Some(Self { nanos: 0, format });
        }
        // 19 digits times 1024^6 fit, and 34 alone; what is dropped only matters for rounding up.
        let kept = &digits[..digits.len().min(if base2 > 0 { 19 } else { 34 })];
        let mut inexact = digits[kept.len()..].bytes().any(|b| b != b'0');
        shift = shift.checked_add(i32::try_from(digits.len() - kept.len()).ok()?)?;
        let mut value: i128 = kept.parse().ok()?;
        for _ in 0..base2 {
            match value.checked_mul(1024) {
                Some(v) => value = v,
                None => return Some(saturated(negative)),
            }
        }
        while shift > 0 {
            match value.checked_mul(10) {
                Some(v) if v <= max.saturating_mul(10) || shift == 1 => value = v,
                _ => return Some(saturated(negative)),
            }
            shift -= 1;
        }
        while shift < 0 && value != 0 {
            inexact |= value % 10 != 0;
            value /= 10;
            shift += 1;
        }
        value = (value + i128::from(inexact)).min(max);
        Some(Self {
            nanos: if negative { -value } else { value },
            format,
        })
    }
}

/// (power of 1024, power of ten, format)
fn suffix_of(suffix: &str) -> Option<(u32, i32, Format)> {
    use Format::{Binary, Decimal, Exponent};
    Some(match suffix {
        "" => (0, 0, Decimal),
        "n" => (0, -9, Decimal),
        "u" => (0, -6, Decimal),
        "m" => (0, -3, Decimal),
        "k" => (0, 3, Decimal),
        "M" => (0, 6, Decimal),
        "G" => (0, 9, Decimal),
        "T" => (0, 12, Decimal),
        "P" => (0, 15, Decimal),
        "E" => (0, 18, Decimal),
        "Ki" => (1, 0, Binary),
        "Mi" => (2, 0, Binary),
        "Gi" => (3, 0, Binary),
        "Ti" => (4, 0, Binary),
        "Pi" => (5, 0, Binary),
        "Ei" => (6, 0, Binary),
        _ => (0, suffix.strip_prefix(['e', 'E'])?.parse().ok()?, Exponent),
    })
}

impl std::str::FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::read(text).ok_or_else(|| QuantityError(text.chars().take(64).collect()))
    }
}

/// The canonical spelling: largest suffix that keeps the number whole.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.nanos % NANO == 0;
        if self.format == Format::Binary && whole && self.nanos.abs() >= 1024 * NANO {
            let (mut value, mut step) = (self.nanos / NANO, 0);
            while step < 6 && value % 1024 == 0 {
                value /= 1024;
                step += 1;
            }
            return write!(f, "{value}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][step]);
        }
        let (mut value, mut step) = (self.nanos, 0);
        while value != 0 && step < 9 && value % 1000 == 0 {
            value /= 1000;
            step += 1;
        }
        if value == 0 {
            step = 3;
        }
        match self.format {
            Format::Exponent if step != 3 => write!(f, "{value}e{}", step as i32 * 3 - 9),
            _ => write!(f, "{value}{}", ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][step]),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::Quantity;

    fn text(t: &str) -> String {
        t.parse::<Quantity>().map_or_else(|e| e.to_string(), |q| q.to_string())
    }

    #[test]
    fn a_size_is_a_whole_number_of_bytes_with_a_unit() {
        for (text, bytes) in [
            ("10Gi", Some(10 << 30)),
            ("1048576", Some(1 << 20)),
            ("1.5Gi", Some(3 << 29)),
        ] {
            assert_eq!(Quantity::size(text), bytes, "{text}");
        }
        for text in ["", "0", "20", "1e3", "-1Gi", "0.5", "500m", "10E", "some"] {
            assert_eq!(Quantity::size(text), None, "{text}");
        }
    }

    #[test]
    fn canonical_spelling_follows_apimachinery() {
        for (given, canonical) in [
            ("0", "0"),
            ("2", "2"),
            ("2000m", "2"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("97887Mi", "97887Mi"),
            ("1000Ki", "1000Ki"),
            ("512", "512"),
            ("0.5Gi", "512Mi"),
            ("1e3", "1e3"),
            ("100k", "100k"),
            ("1E", "1E"),
            ("-2Gi", "-2Gi"),
            ("1.1n", "2n"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("10E", "10E"),
            ("99999999999999999999", "99999999999999999999"),
            ("0.000000001E", "1G"),
            ("8Ei", "9223372036854775807"),
            ("-99999999999Gi", "-9223372036854775807"),
            ("1000000E", "1000000E"),
            ("1000001E", "1000000E"),
            ("10e-3", "10e-3"),
            ("1e400", "1000000e18"),
        ] {
            assert_eq!(text(given), canonical, "{given}");
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        for bad in ["", "Gi", "1.2.3", "1GB", "--1", "1 Gi", "0x10", "e3", ".", "1e", "１"] {
            assert!(bad.parse::<Quantity>().is_err(), "{bad}");
        }
    }

    #[test]
    fn spelling_does_not_matter_for_order() {
        let q = |t: &str| t.parse::<Quantity>().unwrap_or(Quantity::ZERO);
        assert_eq!(q("1Gi"), q("1024Mi"));
        assert!(q("1G") < q("1Gi"));
    }
}
