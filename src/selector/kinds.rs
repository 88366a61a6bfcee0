//! The types Kubernetes adds to CEL, as values of the crate: quantities, versions, addresses, URLs.

use std::any::Any;

use cel::common::types::Type;
use cel::common::value::{StaticVal, Val};

use super::functions::amounts::Amount;
use super::functions::formats::Format;
use super::functions::net::{Cidr, IpAddr};
use super::functions::regex::Pattern;
use super::functions::url::Url;

#[cfg(test)]
thread_local! {
    /// Copies made of our values: what an evaluation does, counted.
    pub(super) static CLONES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A value type: its wrapper, the name CEL sees, and when two are equal.
macro_rules! kind {
    ($name:ident, $static:ident, $inner:ty, $text:literal, $same:expr) => {
        static $static: Type = Type::new_unspecified_type($text);

        #[derive(Clone, Debug)]
        pub(super) struct $name(pub(super) $inner);

        impl Val for $name {
            fn get_type(&self) -> &Type {
                &$static
            }

            fn cel_type() -> &'static Type {
                &$static
            }

            fn equals(&self, other: &dyn Val) -> bool {
                let same: fn(&$inner, &$inner) -> bool = $same;
                other.downcast_ref::<Self>().is_some_and(|o| same(&self.0, &o.0))
            }

            fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
                #[cfg(test)]
                CLONES.set(CLONES.get() + 1);
                Box::new(self.clone())
            }

            fn as_any(&self) -> Option<&dyn Any> {
                Some(self)
            }
        }

        impl StaticVal for $name {}
    };
}

kind!(QuantityVal, QUANTITY, Amount, "kubernetes.Quantity", |a, b| a == b);
// Build metadata does not count.
kind!(SemverVal, SEMVER, semver::Version, "kubernetes.Semver", |a, b| {
    a.cmp_precedence(b).is_eq()
});
kind!(IpVal, IP, IpAddr, "net.IP", |a, b| a == b);
kind!(CidrVal, CIDR, Cidr, "net.CIDR", |a, b| a == b);
kind!(UrlVal, URL, Url, "kubernetes.URL", |a, b| a == b);
kind!(FormatVal, FORMAT, &'static Format, "kubernetes.NamedFormat", |a, b| a
    == b);
// A pattern of the expression, compiled once; no expression can name it.
kind!(PatternVal, PATTERN, Pattern, "wattlane.Pattern", |_, _| false);

/// Types that refuse to be compared with another type, instead of being unequal.
pub(super) fn strict(value: &dyn Val) -> bool {
    let of = value.get_type();
    [&QUANTITY, &SEMVER, &IP, &CIDR, &URL, &FORMAT].contains(&of)
}
