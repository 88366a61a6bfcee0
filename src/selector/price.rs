//! What a round of a loop costs, and where in the loop it is paid.

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr, LiteralValue, operators};

use super::macros::function;

/// Steps for a round, whatever it does.
const ROUND: u64 = 2;
/// Plain nodes of the tree evaluated for one step.
const NODES_PER_STEP: u64 = 4;

/// The condition and the step of a loop, one of them with the payment for a round. `map` and `filter` pay in
/// the step: the crate builds their lists in place only while the condition is a literal and the step has the
/// shape it knows, and copies the whole list in each round if not.
pub(super) fn paid(condition: IdedExpr, mut step: IdedExpr) -> (IdedExpr, IdedExpr) {
    let price = ROUND + (nodes(&condition) + nodes(&step)) / NODES_PER_STEP;
    let pay = |expr: &mut IdedExpr| {
        let price = LiteralValue::Int(i64::try_from(price).unwrap_or(i64::MAX).into());
        let price = IdedExpr {
            id: 0,
            expr: Expr::Literal(price),
        };
        *expr = function("@step", vec![std::mem::take(expr), price]);
    };
    let mut condition = condition;
    let in_step = match (&condition.expr, &mut step.expr) {
        (Expr::Literal(_), Expr::Call(call)) => match (call.func_name.as_str(), call.args.as_mut_slice()) {
            (operators::CONDITIONAL, [guard, _, _]) => Some(guard),
            (
                operators::ADD,
                [
                    _,
                    IdedExpr {
                        expr: Expr::List(list), ..
                    },
                ],
            ) => list.elements.first_mut(),
            _ => None,
        },
        _ => None,
    };
    match in_step {
        Some(part) => pay(part),
        None => pay(&mut condition),
    }
    (condition, step)
}

/// The nodes of a tree; those that look a function up or make something count more. Recursion is bounded by
/// `check_nesting`.
fn nodes(expr: &IdedExpr) -> u64 {
    let sum = |all: &mut dyn Iterator<Item = &IdedExpr>| all.map(nodes).sum::<u64>();
    match &expr.expr {
        Expr::Call(call) => {
            let operator = call.func_name.contains(['_', '!', '-']);
            let own = if operator { 1 } else { NODES_PER_STEP };
            own + sum(&mut call.target.as_deref().into_iter().chain(&call.args))
        }
        Expr::Select(select) => 1 + nodes(&select.operand),
        Expr::List(list) => 2 + sum(&mut list.elements.iter()),
        Expr::Map(map) => {
            let entries = map.entries.iter().flat_map(|e| match &e.expr {
                EntryExpr::MapEntry(e) => vec![&e.key, &e.value],
                EntryExpr::StructField(f) => vec![&f.value],
            });
            2 + 3 * map.entries.len() as u64 + entries.map(nodes).sum::<u64>()
        }
        Expr::Comprehension(c) => {
            let parts = [&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result];
            2 * NODES_PER_STEP + sum(&mut parts.into_iter())
        }
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cel::{Context, Value};

    use super::super::{budget, functions, kinds::CLONES, prepare::prepare};

    /// Copies made of an address that a loop puts into its list.
    fn copies(text: &str) -> u64 {
        let program = prepare(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        budget::start();
        CLONES.set(0);
        let context = Context::with_env(Arc::clone(&functions::ENVIRONMENT));
        let result = Value::resolve_val(&program.root, &context);
        assert!(result.is_ok() && !budget::exhausted(), "{text}: {result:?}");
        CLONES.get()
    }

    #[test]
    fn lists_are_built_in_place() {
        for text in [
            "lists.range(500).map(x, ip('10.0.0.1')).size() == 500",
            "lists.range(500).map(x, x >= 0, ip('10.0.0.1')).size() == 500",
            "lists.range(500).map(x, ip('10.0.0.1')).filter(x, true).size() == 500",
            "lists.range(500).transformList(i, v, ip('10.0.0.1')).size() == 500",
        ] {
            let made = copies(text);
            assert!(made <= 500 * 8, "{text}: {made}");
        }
    }
}
