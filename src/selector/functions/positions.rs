//! `indexOf` and `lastIndexOf`, of strings and of lists. The crate has them for strings, but takes an offset
//! behind the end for an error where cel-go finds nothing.

use cel::ExecutionError;
use cel::common::types::{CelInt, CelList, CelString};
use cel::common::value::CowVal;

use super::super::budget::charge_bytes;
use super::lists::same;
use super::{Args, Native, Returned, no_overload};

pub(super) const NATIVES: &[Native] = &[
    ("@indexOf", false, 2, |args| position(&args, "indexOf", false)),
    ("@indexOf", false, 3, |args| position(&args, "indexOf", false)),
    ("@lastIndexOf", false, 2, |args| position(&args, "lastIndexOf", true)),
    ("@lastIndexOf", false, 3, |args| position(&args, "lastIndexOf", true)),
];

fn position<'b, 'v>(args: &Args<'b, 'v>, name: &str, last: bool) -> Returned<'b, 'v> {
    let refused = || no_overload(name, args);
    let (of, wanted, offset) = match args.as_slice() {
        [of, wanted] => (of, wanted, None),
        [of, wanted, offset] => {
            let offset = offset.as_ref().downcast_ref::<CelInt>().ok_or_else(refused)?;
            (of, wanted, Some(*offset.inner()))
        }
        _ => return Err(refused()),
    };
    let found = match of.as_ref().downcast_ref::<CelList>() {
        Some(list) if offset.is_none() => {
            let mut found = -1;
            for (at, item) in list.inner().iter().enumerate() {
                if same(item.as_ref(), wanted.as_ref())? {
                    found = int(at);
                    if !last {
                        break;
                    }
                }
            }
            found
        }
        _ => {
            let text = of.as_ref().downcast_ref::<CelString>().ok_or_else(refused)?.inner();
            let part = wanted.as_ref().downcast_ref::<CelString>().ok_or_else(refused)?.inner();
            charge_bytes(text.len())?;
            in_text(text, part, offset, last).ok_or_else(|| out_of_range(name, offset.unwrap_or_default()))?
        }
    };
    Ok(CowVal::owned(CelInt::from(found)))
}

fn int(at: usize) -> i64 {
    i64::try_from(at).unwrap_or(i64::MAX)
}

fn out_of_range(name: &str, index: i64) -> ExecutionError {
    ExecutionError::function_error(name, format!("index out of range: {index}"))
}

/// Position in code points, -1 if there is none; `None` for a negative offset.
fn in_text(text: &str, part: &str, offset: Option<i64>, last: bool) -> Option<i64> {
    let length = text.chars().count();
    if part.is_empty() {
        return Some(offset.unwrap_or(if last { int(length) } else { 0 }));
    }
    let from = match offset {
        Some(offset) => usize::try_from(offset).ok()?,
        None if last => length.saturating_sub(1),
        None => 0,
    };
    let Some((start, _)) = text.char_indices().nth(from) else {
        return Some(-1);
    };
    let found = if last {
        // A match may begin at the offset at the most, and end wherever it does.
        let end = (start + part.len()).min(text.len());
        let end = (start..=end).rev().find(|e| text.is_char_boundary(*e))?;
        text[..end].rfind(part)
    } else {
        text[start..].find(part).map(|at| start + at)
    };
    Some(found.map_or(-1, |at| int(text[..at].chars().count())))
}
