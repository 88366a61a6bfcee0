//! What `prepare` puts into an expression: calls that pay for work, and stand-ins for functions of the crate
//! that could make far more than they are given. Names with `@` cannot be written by anybody.

use std::collections::HashMap;

use cel::ExecutionError;
use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, MAP_TYPE};
use cel::common::value::{CowVal, Val};

use super::super::budget::{charge, charge_bytes, weigh};
use super::super::kinds::strict;
use super::{Arg, Args, Failed, Native, Out, Plain, Returned, native, no_overload, times};

/// Pairs of elements compared for one step. What is in them is paid for by `@weigh`.
const COMPARED_PER_STEP: u64 = 8;

pub(super) const NATIVES: &[Native] = &[
    // One round of a loop, at the price it has: hands its first argument on.
    ("@step", false, 2, |args| {
        let price = args.get(1).and_then(|a| a.as_ref().downcast_ref::<CelInt>());
        charge(price.map_or(u64::MAX, |price| u64::try_from(*price.inner()).unwrap_or(u64::MAX)))?;
        first(args, "@step")
    }),
    // Pays for looking at the whole value: hands it on.
    ("@weigh", false, 1, |args| {
        charge(1)?;
        args.iter().try_for_each(|a| weigh(a.as_ref()))?;
        first(args, "@weigh")
    }),
    // Pays for comparing every element with every other: hands the list on.
    ("@square", false, 1, |args| {
        if let Some(list) = args.first().and_then(|a| a.as_ref().downcast_ref::<CelList>()) {
            let count = list.inner().len() as u64;
            charge(count.saturating_mul(count) / COMPARED_PER_STEP)?;
        }
        first(args, "@square")
    }),
    ("@equals", false, 2, |args| match args.as_slice() {
        [a, b] => equal(a.as_ref(), b.as_ref()).map(|same| CowVal::owned(CelBool::from(same))),
        _ => Err(no_overload("_==_", &args)),
    }),
    ("@differs", false, 2, |args| match args.as_slice() {
        // What refuses to be compared is not equal: cel-go looks for `true` only.
        [a, b] => Ok(CowVal::owned(CelBool::from(
            !equal(a.as_ref(), b.as_ref()).unwrap_or(false),
        ))),
        _ => Err(no_overload("_!=_", &args)),
    }),
    ("@replace", false, 3, native!("replace", replace)),
    ("@replace", false, 4, native!("replace", replace)),
    ("@join", false, 1, join),
    ("@join", false, 2, join),
    ("@range", false, 1, range),
    ("@text", false, 1, |args| match args.as_slice() {
        [v] => {
            let double = v.as_ref().downcast_ref::<CelDouble>().map(|d| double_text(*d.inner()));
            let text = double.or_else(|| times::text(v.as_ref()));
            match text {
                Some(text) => Ok(CowVal::owned(CelString::from(text))),
                None => Err(no_overload("string", &args)),
            }
        }
        _ => Err(no_overload("string", &args)),
    }),
    // Alpha in Kubernetes 1.36: membership that works on an attribute whether it is a list or not.
    ("includes", true, 2, |args| {
        let [of, wanted] = args.as_slice() else {
            return Err(no_overload("includes", &args));
        };
        let found = match of.as_ref().downcast_ref::<CelList>() {
            Some(list) => list
                .inner()
                .iter()
                .any(|v| equal(v.as_ref(), wanted.as_ref()).unwrap_or(false)),
            None => equal(of.as_ref(), wanted.as_ref())?,
        };
        Ok(CowVal::owned(CelBool::from(found)))
    }),
    ("@keys", false, 1, keys),
    ("@entries", false, 1, entries),
];

fn first<'b, 'v>(args: Args<'b, 'v>, name: &str) -> Returned<'b, 'v> {
    args.into_iter().next().ok_or_else(|| no_overload(name, &[]))
}

/// Equality as cel-go has it with the types of Kubernetes: those refuse to be compared with another type.
pub(super) fn equal(a: &dyn Val, b: &dyn Val) -> Result<bool, ExecutionError> {
    let either_null = a.downcast_ref::<CelNull>().is_some() || b.downcast_ref::<CelNull>().is_some();
    if strict(a) && !either_null && a.get_type() != b.get_type() {
        return Err(ExecutionError::function_error("_==_", "no such overload"));
    }
    // A map of the device knows how to compare itself with a literal, not the other way round.
    if b.get_type() == &MAP_TYPE && b.downcast_ref::<CelMap>().is_none() {
        return Ok(b.equals(a));
    }
    Ok(a.equals(b))
}

/// The result may be far longer than the input: paid for before it is made.
fn replace(args: &[Arg<'_>]) -> Plain {
    let (s, old, new, limit) = match args {
        [Arg::String(s), Arg::String(old), Arg::String(new)] => (s, old, new, None),
        [Arg::String(s), Arg::String(old), Arg::String(new), Arg::Int(n)] => (s, old, new, usize::try_from(*n).ok()),
        _ => return Err(Failed::Overload),
    };
    charge_bytes(2 * s.len())?;
    let count = s.matches(old).count().min(limit.unwrap_or(usize::MAX));
    charge_bytes(count.saturating_mul(new.len()))?;
    Ok(Out::String(s.replacen(old, new, count)))
}

fn join<'b, 'v>(args: Args<'b, 'v>) -> Returned<'b, 'v> {
    let list = args.first().and_then(|a| a.as_ref().downcast_ref::<CelList>());
    let separator = match args.get(1) {
        Some(s) => s.as_ref().downcast_ref::<CelString>().map(CelString::inner),
        None => Some(""),
    };
    let (Some(list), Some(separator)) = (list, separator) else {
        return Err(no_overload("join", &args));
    };
    let mut joined = String::new();
    for (i, item) in list.inner().iter().enumerate() {
        let Some(s) = item.downcast_ref::<CelString>() else {
            let given = item.get_type().name();
            return Err(ExecutionError::function_error(
                "join",
                format!("join: invalid input: {given}"),
            ));
        };
        charge_bytes(2 * (s.inner().len() + separator.len()))?;
        if i > 0 {
            joined.push_str(separator);
        }
        joined.push_str(s.inner());
    }
    Ok(CowVal::owned(CelString::from(joined)))
}

fn range<'b, 'v>(args: Args<'b, 'v>) -> Returned<'b, 'v> {
    let count = args.first().and_then(|a| a.as_ref().downcast_ref::<CelInt>());
    let count = *count.ok_or_else(|| no_overload("lists.range", &args))?.inner();
    charge(u64::try_from(count).unwrap_or(0))?;
    let numbers: Vec<Box<dyn Val + 'v>> = (0..count).map(|i| Box::new(CelInt::from(i)) as _).collect();
    Ok(CowVal::owned(CelList::from(numbers)))
}

/// What a macro of two variables walks: the positions of a list, the keys of a map.
fn keys<'b, 'v>(args: Args<'b, 'v>) -> Returned<'b, 'v> {
    let Some(of) = args.first() else {
        return Err(no_overload("@keys", &args));
    };
    let mut made: Vec<Box<dyn Val + 'v>> = vec![];
    if let Some(list) = of.as_ref().downcast_ref::<CelList>() {
        made.extend((0..list.inner().len() as i64).map(|i| Box::new(CelInt::from(i)) as _));
    } else if let (true, Some(map)) = (of.get_type() == &MAP_TYPE, of.as_iterable()) {
        let mut items = map.iter();
        while let Some(key) = items.next() {
            made.push(key.clone_as_boxed());
        }
    } else {
        let given = of.get_type().name();
        let message = format!("got '{given}', expected iterable type");
        return Err(ExecutionError::function_error("@keys", message));
    }
    charge(made.len() as u64)?;
    Ok(CowVal::owned(CelList::from(made)))
}

/// A map out of a list of maps, or of `[key, value]` pairs.
fn entries<'b, 'v>(args: Args<'b, 'v>) -> Returned<'b, 'v> {
    let list = args.first().and_then(|a| a.as_ref().downcast_ref::<CelList>());
    let list = list.ok_or_else(|| no_overload("@entries", &args))?;
    let mut made: HashMap<CelMapKey<'v>, Box<dyn Val + 'v>> = HashMap::new();
    for item in list.inner() {
        weigh(item.as_ref())?;
        let mut add = |key: Box<dyn Val + 'v>, value: Box<dyn Val + 'v>| {
            let taken = ExecutionError::function_error("transformMapEntry", "insert failed: key already exists");
            let unsupported = |_| ExecutionError::function_error("transformMap", "unsupported key type");
            let key = CelMapKey::try_from(key).map_err(unsupported)?;
            made.insert(key, value).map_or(Ok(()), |_| Err(taken))
        };
        if let Some(map) = item.downcast_ref::<CelMap>() {
            for (key, value) in map.inner() {
                add(key.inner().clone_as_boxed(), value.clone())?;
            }
        } else if let Some([key, value]) = item.downcast_ref::<CelList>().map(CelList::inner) {
            add(key.clone(), value.clone())?;
        } else {
            return Err(no_overload("transformMapEntry", &args));
        }
    }
    Ok(CowVal::owned(CelMap::from(made)))
}

/// Go's shortest `%g`: an exponent below 1e-4 and from 1e6. The crate writes doubles as Rust does.
fn double_text(d: f64) -> String {
    if d.is_nan() {
        return "NaN".to_owned();
    }
    if d.is_infinite() {
        return if d > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{d:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(e) if !(-4..6).contains(&e) => {
            let sign = if e < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", e.abs())
        }
        _ => format!("{d}"),
    }
}
