//! Kubernetes' functions as overloads on the crate's environment: one file a family.
//!
//! What the crate has (standard CEL, strings, most of lists) is the crate's; here is what it lacks, and what it
//! does without a bound.

pub(super) mod amounts;
pub(super) mod formats;
mod guards;
mod lists;
pub(super) mod net;
mod positions;
mod quantities;
mod re2;
pub(super) mod regex;
pub(super) mod times;
pub(super) mod url;

use std::sync::{Arc, LazyLock};

use cel::common::functions::Function;
use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelString, DYN_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError, extensions};

use self::amounts::Amount;
use self::formats::Format;
use super::kinds::{CidrVal, FormatVal, IpVal, PatternVal, QuantityVal, SemverVal, UrlVal};

/// Name, whether it is a method, number of arguments (the receiver included), implementation.
type Native = (&'static str, bool, usize, Function);

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type Returned<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// Arguments as functions on plain data like to see them.
enum Arg<'b> {
    String(&'b str),
    Int(i64),
    Bool(bool),
    Quantity(Amount),
    Format(&'static Format),
    Semver(&'b semver::Version),
    Ip(net::IpAddr),
    Cidr(net::Cidr),
    Url(&'b url::Url),
    Pattern(&'b regex::Pattern),
    Other,
}

impl<'b> Arg<'b> {
    fn of(value: &'b (dyn Val + '_)) -> Self {
        if let Some(s) = value.downcast_ref::<CelString>() {
            Self::String(s.inner())
        } else if let Some(q) = value.downcast_ref::<QuantityVal>() {
            Self::Quantity(q.0)
        } else if let Some(v) = value.downcast_ref::<SemverVal>() {
            Self::Semver(&v.0)
        } else if let Some(i) = value.downcast_ref::<CelInt>() {
            Self::Int(*i.inner())
        } else if let Some(b) = value.downcast_ref::<CelBool>() {
            Self::Bool(*b.inner())
        } else if let Some(p) = value.downcast_ref::<PatternVal>() {
            Self::Pattern(&p.0)
        } else if let Some(ip) = value.downcast_ref::<IpVal>() {
            Self::Ip(ip.0)
        } else if let Some(c) = value.downcast_ref::<CidrVal>() {
            Self::Cidr(c.0)
        } else if let Some(f) = value.downcast_ref::<FormatVal>() {
            Self::Format(f.0)
        } else if let Some(u) = value.downcast_ref::<UrlVal>() {
            Self::Url(&u.0)
        } else {
            Self::Other
        }
    }
}

/// What such functions give back.
enum Out {
    Bool(bool),
    Int(i64),
    Double(f64),
    String(String),
    Strings(Vec<String>),
    Quantity(Amount),
    Semver(semver::Version),
    Ip(net::IpAddr),
    Cidr(net::Cidr),
    Url(url::Url),
    /// The whole value, where there is no plain form of it.
    Value(Box<dyn Val>),
}

/// Why they do not.
enum Failed {
    /// The values fit no signature.
    Overload,
    Message(String),
    Budget(ExecutionError),
}

impl From<ExecutionError> for Failed {
    fn from(error: ExecutionError) -> Self {
        Self::Budget(error)
    }
}

type Plain = Result<Out, Failed>;

fn bridge<'b, 'v>(name: &'static str, run: fn(&[Arg<'_>]) -> Plain, args: &[CowVal<'b, 'v>]) -> Returned<'b, 'v> {
    let plain: Vec<_> = args.iter().map(|a| Arg::of(a.as_ref())).collect();
    Ok(match run(&plain) {
        Ok(Out::Bool(b)) => CowVal::owned(CelBool::from(b)),
        Ok(Out::Int(i)) => CowVal::owned(CelInt::from(i)),
        Ok(Out::Double(d)) => CowVal::owned(CelDouble::from(d)),
        Ok(Out::String(s)) => CowVal::owned(CelString::from(s)),
        Ok(Out::Strings(all)) => {
            let values: Vec<Box<dyn Val + 'v>> = all.into_iter().map(|s| Box::new(CelString::from(s)) as _).collect();
            CowVal::owned(CelList::from(values))
        }
        Ok(Out::Quantity(q)) => CowVal::owned(QuantityVal(q)),
        Ok(Out::Semver(v)) => CowVal::owned(SemverVal(v)),
        Ok(Out::Ip(ip)) => CowVal::owned(IpVal(ip)),
        Ok(Out::Cidr(c)) => CowVal::owned(CidrVal(c)),
        Ok(Out::Url(u)) => CowVal::owned(UrlVal(u)),
        Ok(Out::Value(v)) => CowVal::Owned(v),
        Err(Failed::Overload) => return Err(no_overload(name, args)),
        Err(Failed::Message(message)) => return Err(ExecutionError::function_error(name, message)),
        Err(Failed::Budget(error)) => return Err(error),
    })
}

/// In the words of cel-go.
fn no_overload(name: &str, args: &[CowVal<'_, '_>]) -> ExecutionError {
    let types: Vec<_> = args.iter().map(|a| a.get_type().name()).collect();
    ExecutionError::function_error(name, format!("no such overload: {name}({})", types.join(", ")))
}

/// A function on plain data as an overload: the crate takes only functions without state.
macro_rules! native {
    ($name:literal, $run:expr) => {{
        fn call<'b, 'v>(args: super::Args<'b, 'v>) -> super::Returned<'b, 'v> {
            super::bridge($name, $run, &args)
        }
        call
    }};
}
use native;

/// Everything an expression may use, put together once.
pub(super) static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    // The crate refuses a declaration only if there is one of the same name and signature: a mistake of ours,
    // which the test below and every other one would meet at once.
    let strings = env.add_extension(extensions::strings);
    let lists = env.add_extension(extensions::lists);
    debug_assert!(strings.is_ok() && lists.is_ok());
    for natives in FAMILIES {
        for (name, member, arity, run) in *natives {
            let id = format!("wattlane_{name}_{member}_{arity}");
            // Any types: the crate's own overloads of the name come first, ours say what they do not take.
            let mut types: Vec<_> = (0..*arity).map(|_| DYN_TYPE).collect();
            let added = if *member {
                types.pop();
                env.add_member_overload(name, &id, DYN_TYPE, types, *run)
            } else {
                env.add_overload(name, &id, types, *run)
            };
            debug_assert!(added.is_ok(), "{name}");
        }
    }
    Arc::new(env)
});

const FAMILIES: &[&[Native]] = &[
    formats::NATIVES,
    times::NATIVES,
    guards::NATIVES,
    lists::NATIVES,
    positions::NATIVES,
    quantities::NATIVES,
    regex::NATIVES,
    net::NATIVES,
    url::NATIVES,
];
