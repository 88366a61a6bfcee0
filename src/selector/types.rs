//! Static types of expressions and the declared signatures of functions: what a compile-time check knows.

use std::fmt;

/// The type of an expression as far as it is known before a device is at hand.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::enum_variant_names, reason = "`type` is a type of CEL")]
pub(super) enum Type {
    /// Anything, known only at run time: every attribute.
    Dyn,
    /// The element of an empty list: agrees with everything.
    Free,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    Type,
    Quantity,
    Semver,
    Url,
    Ip,
    Cidr,
    Format,
    List(Box<Type>),
    Map(Box<Type>, Box<Type>),
    Optional(Box<Type>),
    /// The variable `device` itself.
    Device,
    /// The variable `node` itself.
    Node,
    /// A type parameter of a signature.
    Param(char),
}

impl Type {
    pub(super) fn list(of: Self) -> Self {
        Self::List(Box::new(of))
    }

    pub(super) fn map(key: Self, value: Self) -> Self {
        Self::Map(Box::new(key), Box::new(value))
    }

    pub(super) fn optional(of: Self) -> Self {
        Self::Optional(Box::new(of))
    }

    pub(super) fn is_dynamic(&self) -> bool {
        matches!(self, Self::Dyn | Self::Free)
    }

    fn nullable(&self) -> bool {
        use Type::{Cidr, Duration, Format, Ip, Null, Optional, Quantity, Semver, Timestamp, Url};
        matches!(
            self,
            Null | Quantity | Semver | Url | Ip | Cidr | Format | Duration | Timestamp | Optional(_)
        )
    }

    /// Whether a value of one type may stand where the other is expected, as far as is known.
    pub(super) fn agrees(&self, other: &Self) -> bool {
        match (self, other) {
            (a, b) if a.is_dynamic() || b.is_dynamic() => true,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.agrees(b),
            (Self::Map(k, v), Self::Map(k2, v2)) => k.agrees(k2) && v.agrees(v2),
            (Self::Null, b) => b.nullable(),
            (a, Self::Null) => a.nullable(),
            (a, b) => a == b,
        }
    }

    /// Stricter: the same type, apart from elements of empty lists. Kubernetes wants literals homogeneous.
    pub(super) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Free, _) | (_, Self::Free) => true,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.same(b),
            (Self::Map(k, v), Self::Map(k2, v2)) => k.same(k2) && v.same(v2),
            (a, b) => a == b,
        }
    }

    /// What is known of a value that has one of two types.
    pub(super) fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Free, b) => b,
            (a, Self::Free) => a,
            (Self::List(a), Self::List(b)) => Self::list(a.join(*b)),
            (Self::Optional(a), Self::Optional(b)) => Self::optional(a.join(*b)),
            (Self::Map(k, v), Self::Map(k2, v2)) => Self::map(k.join(*k2), v.join(*v2)),
            (a, b) if a == b => a,
            _ => Self::Dyn,
        }
    }

    /// Matches a declared parameter type against an argument, binding type parameters.
    fn accepts(&self, given: &Self, bound: &mut Vec<(char, Type)>) -> bool {
        match (self, given) {
            (Self::Param(name), _) => match bound.iter_mut().find(|(n, _)| n == name) {
                Some((_, earlier)) => {
                    let agrees = earlier.agrees(given);
                    *earlier = earlier.clone().join(given.clone());
                    agrees
                }
                None => {
                    bound.push((*name, given.clone()));
                    true
                }
            },
            (_, g) if g.is_dynamic() => true,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.accepts(b, bound),
            (Self::Map(k, v), Self::Map(k2, v2)) => k.accepts(k2, bound) && v.accepts(v2, bound),
            (a, b) => a.agrees(b),
        }
    }

    fn resolved(&self, bound: &[(char, Type)]) -> Self {
        match self {
            Self::Param(name) => bound
                .iter()
                .find(|(n, _)| n == name)
                .map_or(Self::Free, |(_, t)| t.clone()),
            Self::List(a) => Self::list(a.resolved(bound)),
            Self::Optional(a) => Self::optional(a.resolved(bound)),
            Self::Map(k, v) => Self::map(k.resolved(bound), v.resolved(bound)),
            other => other.clone(),
        }
    }

    /// Reads the notation of the function table; `None` if it is not a type.
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some((head, inner)) = text.strip_suffix(')').and_then(|t| t.split_once('(')) {
            return Some(match head {
                "list" => Self::list(Self::read(inner)?),
                "optional" => Self::optional(Self::read(inner)?),
                "map" => {
                    let (key, value) = inner.split_once(',')?;
                    Self::map(Self::read(key)?, Self::read(value)?)
                }
                _ => return None,
            });
        }
        Some(match text {
            "dyn" => Self::Dyn,
            "null" => Self::Null,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "uint" => Self::Uint,
            "double" => Self::Double,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "duration" => Self::Duration,
            "timestamp" => Self::Timestamp,
            "type" => Self::Type,
            "quantity" => Self::Quantity,
            "semver" => Self::Semver,
            "url" => Self::Url,
            "ip" => Self::Ip,
            "cidr" => Self::Cidr,
            "format" => Self::Format,
            "A" => Self::Param('A'),
            "B" => Self::Param('B'),
            _ => return None,
        })
    }
}

/// As cel-go writes types in its messages.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dyn | Self::Free => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Type => "type",
            Self::Quantity => "kubernetes.Quantity",
            Self::Semver => "kubernetes.Semver",
            Self::Url => "kubernetes.URL",
            Self::Ip => "net.IP",
            Self::Cidr => "net.CIDR",
            Self::Format => "kubernetes.NamedFormat",
            Self::Device => "kubernetes.DRADevice",
            Self::Node => "wattlane.Node",
            Self::List(t) => return write!(f, "list({t})"),
            Self::Map(k, v) => return write!(f, "map({k}, {v})"),
            Self::Optional(t) => return write!(f, "optional_type({t})"),
            Self::Param(c) => return write!(f, "{c}"),
        })
    }
}

/// One way to call a function.
#[derive(Debug)]
pub(super) struct Overload {
    /// Called as `a.f(b)`; `a` is then the first parameter.
    pub(super) member: bool,
    params: Vec<Type>,
    result: Type,
}

impl Overload {
    /// Reads `(string, int) string`, or `.(string, int) string` for a method.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (member, rest) = match text.strip_prefix('.') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let rest = rest.strip_prefix('(')?;
        // Parameters may hold parentheses and commas themselves.
        let (mut depth, mut params, mut from) = (0_usize, vec![], 0);
        for (at, c) in rest.char_indices() {
            match c {
                '(' => depth += 1,
                ')' if depth > 0 => depth -= 1,
                ',' | ')' if depth == 0 => {
                    let param = rest[from..at].trim();
                    if !param.is_empty() {
                        params.push(Type::read(param)?);
                    }
                    from = at + 1;
                    if c == ')' {
                        let result = Type::read(&rest[from..])?;
                        return Some(Self { member, params, result });
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// The result's type, if the call fits.
    pub(super) fn call(&self, member: bool, args: &[Type]) -> Option<Type> {
        if self.member != member || self.params.len() != args.len() {
            return None;
        }
        let mut bound = vec![];
        let fits = self.params.iter().zip(args).all(|(p, a)| p.accepts(a, &mut bound));
        fits.then(|| self.result.resolved(&bound))
    }
}
