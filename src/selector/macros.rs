//! Macros beyond the standard ones that the crate's parser expands: `cel.bind`, `optMap`, `optFlatMap`,
//! `sortBy` and the comprehensions of two variables. Calls in, plainer expressions out; `prepare` checks those.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, ListExpr, LiteralValue, operators};

/// The macro expanded, the call as it was if it is none, or why it cannot be right.
pub(super) fn expand(mut call: CallExpr) -> Result<Expr, String> {
    let Some(target) = call.target.take() else {
        return Ok(Expr::Call(call));
    };
    let bind = call.func_name == "bind" && matches!(&target.expr, Expr::Ident(n) if n == "cel");
    let mut args = std::mem::take(&mut call.args).into_iter();
    let rest = args.len();
    let mut next = || args.next().unwrap_or_default();
    let expanded = match (call.func_name.as_str(), rest) {
        ("bind", 3) if bind => {
            let (name, init, body) = (name(&next())?, next(), next());
            self::bind(name, init, body)
        }
        ("optMap" | "optFlatMap", 2) => {
            let (name, body) = (name(&next())?, next());
            opt_map(*target, name, body, call.func_name == "optMap")
        }
        ("sortBy", 2) => {
            let (name, body) = (name(&next())?, next());
            let input = || ident("@sorted");
            let keys = map(input(), name, None, body);
            let sorted = method(input(), "@sortByAssociatedKeys", vec![keys]);
            self::bind("@sorted".to_owned(), *target, sorted)
        }
        ("all" | "exists" | "exists_one" | "existsOne" | "transformList" | "transformMap" | "transformMapEntry", 3)
        | ("transformList" | "transformMap" | "transformMapEntry", 4) => {
            let (key, value) = (name(&next())?, name(&next())?);
            if key == value {
                return Err(format!("duplicate variable name: {key}"));
            }
            let filter = (rest == 4).then(&mut next);
            two_variables(&call.func_name, *target, key, value, filter, next())
        }
        _ => {
            call.args = args.collect();
            call.target = Some(target);
            return Ok(Expr::Call(call));
        }
    };
    Ok(expanded.expr)
}

fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn ident(name: &str) -> IdedExpr {
    node(Expr::Ident(name.to_owned()))
}

fn literal(value: bool) -> IdedExpr {
    node(Expr::Literal(LiteralValue::Boolean(value.into())))
}

pub(super) fn function(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: None,
        args,
    }))
}

fn method(target: IdedExpr, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: Some(Box::new(target)),
        args,
    }))
}

fn list(elements: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::List(ListExpr::new(elements)))
}

fn name(expr: &IdedExpr) -> Result<String, String> {
    match &expr.expr {
        Expr::Ident(name) => Ok(name.clone()),
        _ => Err("argument must be a simple name".to_owned()),
    }
}

/// A loop over nothing, whose accumulator is the variable: so cel-go binds too.
fn bind(name: String, init: IdedExpr, body: IdedExpr) -> IdedExpr {
    let step = ident(&name);
    node(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: list(vec![]),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: name,
        accu_init: init,
        loop_cond: literal(false),
        loop_step: step,
        result: body,
    })))
}

fn opt_map(target: IdedExpr, name: String, body: IdedExpr, wrap: bool) -> IdedExpr {
    let value = method(ident("@target"), "value", vec![]);
    let mapped = bind(name, value, body);
    let some = if wrap {
        function("optional.of", vec![mapped])
    } else {
        mapped
    };
    let has = method(ident("@target"), "hasValue", vec![]);
    let chosen = function(
        operators::CONDITIONAL,
        vec![has, some, function("optional.none", vec![])],
    );
    bind("@target".to_owned(), target, chosen)
}

/// `range.map(name, filter, body)`
fn map(range: IdedExpr, name: String, filter: Option<IdedExpr>, body: IdedExpr) -> IdedExpr {
    let append = function(operators::ADD, vec![ident("@result"), list(vec![body])]);
    let step = match filter {
        Some(filter) => function(operators::CONDITIONAL, vec![filter, append, ident("@result")]),
        None => append,
    };
    comprehension(range, name, list(vec![]), literal(true), step, ident("@result"))
}

fn comprehension(
    iter_range: IdedExpr,
    iter_var: String,
    accu_init: IdedExpr,
    loop_cond: IdedExpr,
    loop_step: IdedExpr,
    result: IdedExpr,
) -> IdedExpr {
    node(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range,
        iter_var,
        iter_var2: None,
        accu_var: "@result".to_owned(),
        accu_init,
        loop_cond,
        loop_step,
        result,
    })))
}

/// Over the keys or positions, with the value looked up: the crate's loops have one variable.
fn two_variables(
    macro_name: &str,
    target: IdedExpr,
    key: String,
    value: String,
    filter: Option<IdedExpr>,
    body: IdedExpr,
) -> IdedExpr {
    let looked_up = || function(operators::INDEX, vec![ident("@range"), ident(&key)]);
    let with_value = |body| bind(value.clone(), looked_up(), body);
    let keys = function("@keys", vec![ident("@range")]);
    let filter = filter.map(&with_value);
    let accu = || ident("@result");
    let result = match macro_name {
        "all" | "exists" => {
            let all = macro_name == "all";
            let (operator, running) = match all {
                true => (operators::LOGICAL_AND, accu()),
                false => (operators::LOGICAL_OR, function(operators::LOGICAL_NOT, vec![accu()])),
            };
            let goes_on = function(operators::NOT_STRICTLY_FALSE, vec![running]);
            let step = function(operator, vec![accu(), with_value(body)]);
            comprehension(keys, key.clone(), literal(all), goes_on, step, accu())
        }
        "exists_one" | "existsOne" => {
            let number = |n: i64| node(Expr::Literal(LiteralValue::Int(n.into())));
            let more = function(operators::ADD, vec![accu(), number(1)]);
            let step = function(operators::CONDITIONAL, vec![with_value(body), more, accu()]);
            let one = function(operators::EQUALS, vec![accu(), number(1)]);
            comprehension(keys, key.clone(), number(0), literal(true), step, one)
        }
        "transformMap" => {
            let pair = |value| list(vec![function("dyn", vec![ident(&key)]), function("dyn", vec![value])]);
            let pairs = map(keys, key.clone(), filter, pair(with_value(body)));
            function("@entries", vec![pairs])
        }
        "transformMapEntry" => {
            let maps = map(keys, key.clone(), filter, with_value(body));
            function("@entries", vec![maps])
        }
        _ => map(keys, key.clone(), filter, with_value(body)),
    };
    bind("@range".to_owned(), target, result)
}
