//! Lists (Kubernetes' library: isSorted, sum, min, max) and sets (cel-go's). Slices,
//! sorting and the like are the crate's.

use std::cmp::Ordering;

use cel::ExecutionError;
use cel::common::types::{CelBool, CelInt, CelList, CelString};
use cel::common::value::{CowVal, Val};

use super::super::budget::{charge, weigh};
use super::guards::equal;
use super::{Args, Native, Returned, no_overload};

pub(super) const NATIVES: &[Native] = &[
    ("isSorted", true, 1, is_sorted),
    ("sum", true, 1, sum),
    ("min", true, 1, |args| extreme(args, "min", Ordering::Less)),
    ("max", true, 1, |args| extreme(args, "max", Ordering::Greater)),
    ("sets.contains", false, 2, |args| {
        let [a, b] = pair(&args, "sets.contains")?;
        bool(includes(a, b)?)
    }),
    ("sets.equivalent", false, 2, |args| {
        let [a, b] = pair(&args, "sets.equivalent")?;
        bool(includes(a, b)? && includes(b, a)?)
    }),
    ("sets.intersects", false, 2, |args| {
        let [a, b] = pair(&args, "sets.intersects")?;
        for item in a.inner() {
            if holds(b, item.as_ref())? {
                return bool(true);
            }
        }
        bool(false)
    }),
];

fn bool<'b, 'v>(value: bool) -> Returned<'b, 'v> {
    Ok(CowVal::owned(CelBool::from(value)))
}

fn one<'x, 'v>(args: &'x Args<'_, 'v>, name: &str) -> Result<&'x CelList<'v>, ExecutionError> {
    let list = args.first().and_then(|a| a.as_ref().downcast_ref::<CelList>());
    list.ok_or_else(|| no_overload(name, args))
}

fn pair<'x, 'v>(args: &'x Args<'_, 'v>, name: &str) -> Result<[&'x CelList<'v>; 2], ExecutionError> {
    let [a, b] = args.as_slice() else {
        return Err(no_overload(name, args));
    };
    match (a.as_ref().downcast_ref(), b.as_ref().downcast_ref()) {
        (Some(a), Some(b)) => Ok([a, b]),
        _ => Err(no_overload(name, args)),
    }
}

/// Equality where a refusal to be compared is no match.
pub(super) fn same(a: &dyn Val, b: &dyn Val) -> Result<bool, ExecutionError> {
    charge(1)?;
    Ok(equal(a, b).unwrap_or(false))
}

fn holds(items: &CelList<'_>, wanted: &dyn Val) -> Result<bool, ExecutionError> {
    weigh(wanted)?;
    for item in items.inner() {
        weigh(item.as_ref())?;
        if same(item.as_ref(), wanted)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether every element of `part` is in `whole`.
fn includes(whole: &CelList<'_>, part: &CelList<'_>) -> Result<bool, ExecutionError> {
    for item in part.inner() {
        if !holds(whole, item.as_ref())? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The order of two elements, if they have one.
fn order(a: &dyn Val, b: &dyn Val) -> Option<Ordering> {
    a.as_comparer()?.compare(b).ok()
}

fn is_sorted<'b, 'v>(args: Args<'b, 'v>) -> Returned<'b, 'v> {
    for pair in one(&args, "isSorted")?.inner().windows(2) {
        match order(pair[0].as_ref(), pair[1].as_ref()) {
            Some(Ordering::Greater) => return bool(false),
            Some(_) => {}
            None => return Err(no_overload("isSorted", &args)),
        }
    }
    bool(true)
}

fn sum<'b, 'v>(args: Args<'b, 'v>) -> Returned<'b, 'v> {
    let items = one(&args, "sum")?.inner();
    // What an empty list sums up to depends on its type, which is gone by now: int is by far the likeliest.
    let Some((first, rest)) = items.split_first() else {
        return Ok(CowVal::owned(CelInt::from(0)));
    };
    if first.downcast_ref::<CelString>().is_some() || first.downcast_ref::<CelList>().is_some() {
        return Err(no_overload("sum", &args));
    }
    let mut total: Box<dyn Val + 'v> = first.clone();
    for item in rest {
        let adder = total.as_adder().ok_or_else(|| no_overload("sum", &args))?;
        total = adder.add(item.as_ref())?.into_owned();
    }
    Ok(CowVal::Owned(total))
}

fn extreme<'b, 'v>(args: Args<'b, 'v>, name: &str, wanted: Ordering) -> Returned<'b, 'v> {
    let mut best: Option<&Box<dyn Val + 'v>> = None;
    for item in one(&args, name)?.inner() {
        match order(item.as_ref(), best.unwrap_or(item).as_ref()) {
            Some(ordering) if ordering == wanted || best.is_none() => best = Some(item),
            Some(_) => {}
            None => return Err(no_overload(name, &args)),
        }
    }
    match best {
        Some(best) => Ok(CowVal::Owned(best.clone())),
        None => Err(ExecutionError::function_error(
            name,
            format!("{name} called on empty list"),
        )),
    }
}
