//! Text to an expression the crate may evaluate: parsed within bounds, checked as far as types are known, and
//! with calls put in that pay for the work (`functions::guards`).
//!
//! Types are followed through the expression; attributes have none before they are read, as in Kubernetes.

use cel::IdedExpr;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SelectExpr, operators,
};
use cel::parser::PrattParser;

use super::device::pattern_name;
use super::functions::{regex, times};
use super::kinds::PatternVal;
use super::macros::{self, function};
use super::price::paid;
use super::rules::{field, homogeneous, inner, literal_type, no_overload};
use super::scan::check_nesting;
use super::signatures;
use super::types::Type;
use crate::model::go_duration;

/// As resource.k8s.io/v1 limits it (`CELSelectorExpressionMaxLength`).
const MAX_TEXT: usize = 10 * 1024;
/// Depth of the tree to evaluate. The crate's evaluator takes some 35 KiB of stack a level in a build
/// without optimisation, and this must fit into 2 MiB.
const MAX_DEPTH: usize = 44;

/// A checked expression.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) root: IdedExpr,
    pub(super) patterns: Vec<PatternVal>,
    /// Names `node`, which only policy expressions may do.
    pub(super) reads_node: bool,
}

/// The error is worded for the author of the expression, as Kubernetes words it.
pub(super) fn prepare(text: &str) -> Result<Program, String> {
    if text.len() > MAX_TEXT {
        return Err(format!(
            "expression is {} bytes long, the limit is {MAX_TEXT}",
            text.len()
        ));
    }
    let failed = |e: String| format!("compilation failed: {e}");
    check_nesting(text).map_err(failed)?;
    let parser = PrattParser::new().enable_optional_syntax(true);
    let tree = parser.parse(text).map_err(|e| failed(e.to_string()))?;
    let mut checker = Checker::default();
    let (root, result) = checker.expr(tree).map_err(failed)?;
    if !Type::Bool.agrees(&result) || result == Type::Null {
        return Err(format!("must evaluate to bool or the unknown type, not {result}"));
    }
    if depth(&root) > MAX_DEPTH {
        return Err(failed(format!(
            "expression is nested too deeply (more than {MAX_DEPTH} levels)"
        )));
    }
    Ok(Program {
        root,
        patterns: checker.patterns,
        reads_node: checker.reads_node,
    })
}

pub(super) fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

/// Recursion is bounded by `check_nesting`.
fn depth(expr: &IdedExpr) -> usize {
    let deepest = |all: &mut dyn Iterator<Item = &IdedExpr>| all.map(depth).max().unwrap_or(0);
    1 + match &expr.expr {
        Expr::Call(call) => deepest(&mut call.target.as_deref().into_iter().chain(&call.args)),
        Expr::Select(select) => depth(&select.operand),
        Expr::List(list) => deepest(&mut list.elements.iter()),
        Expr::Map(map) => deepest(&mut map.entries.iter().flat_map(|e| match &e.expr {
            EntryExpr::MapEntry(e) => [&e.key, &e.value],
            EntryExpr::StructField(f) => [&f.value, &f.value],
        })),
        Expr::Comprehension(c) => {
            let parts = [&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result];
            deepest(&mut parts.into_iter())
        }
        _ => 0,
    }
}

type Typed = Result<(IdedExpr, Type), String>;

/// Names that stand for types, as in `type(x) == int`.
const TYPE_NAMES: &[&str] = &[
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
    "optional_type",
];

#[derive(Default)]
struct Checker {
    /// Variables of macros, innermost last.
    scope: Vec<(String, Type)>,
    loops: usize,
    patterns: Vec<PatternVal>,
    reads_node: bool,
}

impl Checker {
    fn expr(&mut self, expr: IdedExpr) -> Typed {
        let id = expr.id;
        let (expr, of) = match expr.expr {
            Expr::Unspecified => return Err("Syntax error".to_owned()),
            Expr::Literal(literal) => {
                let of = literal_type(&literal);
                (Expr::Literal(literal), of)
            }
            Expr::Ident(name) => {
                let of = self.variable(&name)?;
                (Expr::Ident(name), of)
            }
            Expr::Select(select) => self.select(select)?,
            Expr::Call(call) => match macros::expand(call)? {
                Expr::Call(call) => self.call(call)?,
                expanded => return self.expr(IdedExpr { id, expr: expanded }),
            },
            Expr::List(list) => self.list(list, true)?,
            Expr::Map(map) => self.map(map)?,
            Expr::Comprehension(comprehension) => self.comprehension(*comprehension)?,
            Expr::Struct(message) => return Err(undeclared(&message.type_name)),
        };
        Ok((IdedExpr { id, expr }, of))
    }

    fn variable(&mut self, name: &str) -> Result<Type, String> {
        if let Some((_, of)) = self.scope.iter().rfind(|(n, _)| n == name) {
            return Ok(of.clone());
        }
        match name.trim_start_matches('.') {
            "device" => Ok(Type::Device),
            "node" => {
                self.reads_node = true;
                Ok(Type::Node)
            }
            name if TYPE_NAMES.contains(&name) => Ok(Type::Type),
            name => Err(undeclared(name)),
        }
    }

    fn select(&mut self, select: SelectExpr) -> Result<(Expr, Type), String> {
        let (operand, of) = self.expr(*select.operand)?;
        let (inner, wrapped) = match of {
            Type::Optional(t) => (*t, true),
            t => (t, false),
        };
        let found = field(&inner, &select.field)?;
        let result = match (select.test, wrapped) {
            (true, _) => Type::Bool,
            (false, true) => Type::optional(found),
            (false, false) => found,
        };
        let operand = Box::new(operand);
        Ok((Expr::Select(SelectExpr { operand, ..select }), result))
    }

    fn call(&mut self, mut call: CallExpr) -> Result<(Expr, Type), String> {
        // `a.?b` has the field as a literal.
        if call.func_name == operators::OPT_SELECT {
            return self.optional_select(call);
        }
        // `sets.contains(a, b)` is written like a method, unless `sets` is a variable.
        if let Some(Expr::Ident(namespace)) = call.target.as_ref().map(|t| &t.expr)
            && !self.scope.iter().any(|(n, _)| n == namespace)
        {
            let qualified = format!("{namespace}.{}", call.func_name);
            if signatures::of(&qualified).is_some() {
                call.func_name = qualified;
                call.target = None;
            }
        }
        let name = call.func_name.trim_start_matches('.').to_owned();
        let Some(overloads) = signatures::of(&name) else {
            return Err(undeclared(&name));
        };
        let member = call.target.is_some();
        let (mut args, mut types) = (vec![], vec![]);
        for arg in call.target.take().map(|t| *t).into_iter().chain(call.args) {
            // Kubernetes lets the values of `format` differ in type, and no other list.
            let (arg, of) = match arg.expr {
                Expr::List(values) if name == "format" => {
                    let (expr, of) = self.list(values, false)?;
                    (IdedExpr { id: arg.id, expr }, of)
                }
                expr => self.expr(IdedExpr { id: arg.id, expr })?,
            };
            args.push(arg);
            types.push(of);
        }
        let result = overloads
            .iter()
            .filter_map(|o| o.call(member, &types))
            .reduce(|a, b| if a == b { a } else { Type::Dyn })
            .ok_or_else(|| no_overload(&name, member, &types))?;
        Ok((self.guarded(&name, member, args, &types)?.expr, result))
    }

    fn optional_select(&mut self, call: CallExpr) -> Result<(Expr, Type), String> {
        let mut args = call.args.into_iter();
        let (Some(operand), Some(key)) = (args.next(), args.next()) else {
            return Err("Syntax error".to_owned());
        };
        let Expr::Literal(LiteralValue::String(name)) = &key.expr else {
            return Err("Syntax error".to_owned());
        };
        let (operand, of) = self.expr(operand)?;
        let inner = match of {
            Type::Optional(t) => *t,
            t => t,
        };
        let found = field(&inner, name.inner())?;
        // What is found is copied.
        let args = vec![self.weighed(operand, &Type::Dyn), key];
        let expr = Expr::Call(CallExpr {
            func_name: call.func_name,
            target: None,
            args,
        });
        Ok((expr, Type::optional(found)))
    }

    /// The call, with its arguments paid for, and with our stand-in where the crate's function has no bound.
    fn guarded(&mut self, name: &str, member: bool, args: Vec<IdedExpr>, types: &[Type]) -> Result<IdedExpr, String> {
        let logic = matches!(
            name,
            operators::LOGICAL_AND | operators::LOGICAL_OR | operators::CONDITIONAL | operators::NOT_STRICTLY_FALSE
        );
        let mut args: Vec<IdedExpr> = match logic {
            // Not looked at, only handed on; and wrapped they would no longer be known to the crate's loops.
            true => args,
            // The list a loop makes, and what it puts in: the crate must see both as they are.
            false if name == operators::ADD && appends(&args) => args,
            false => args
                .into_iter()
                .zip(types)
                .enumerate()
                // Taking something out of a variable does not look at the rest of it.
                .map(|(i, (arg, of))| match &arg.expr {
                    Expr::Ident(_) if i == 0 && name == operators::INDEX => arg,
                    _ => self.weighed(arg, of),
                })
                .collect(),
        };
        let stand_in = match name {
            operators::EQUALS => "@equals",
            operators::NOT_EQUALS => "@differs",
            "replace" => "@replace",
            "join" => "@join",
            "lists.range" => "@range",
            "indexOf" => "@indexOf",
            "lastIndexOf" => "@lastIndexOf",
            "duration" | "timestamp" => {
                literal_time(name, &args)?;
                if name == "duration" { "@duration" } else { "@timestamp" }
            }
            "string" if types == [Type::Double] || types == [Type::Timestamp] => "@text",
            // The crate would take the offset the text was written with.
            "getFullYear" | "getMonth" | "getDayOfYear" | "getDayOfMonth" | "getDate" | "getDayOfWeek" | "getHours"
            | "getMinutes" | "getSeconds" | "getMilliseconds"
                if types == [Type::Timestamp] =>
            {
                let utc = LiteralValue::String("UTC".to_owned().into());
                args.push(IdedExpr {
                    id: 0,
                    expr: Expr::Literal(utc),
                });
                name
            }
            "matches" | "find" | "findAll" => {
                self.constant_pattern(&mut args)?;
                name
            }
            "distinct" => {
                args = args.into_iter().map(|a| function("@square", vec![a])).collect();
                name
            }
            other => other,
        };
        if !member || stand_in != name {
            return Ok(function(stand_in, args));
        }
        let mut args = args.into_iter();
        let target = args.next().map(Box::new);
        let expr = Expr::Call(CallExpr {
            func_name: name.to_owned(),
            target,
            args: args.collect(),
        });
        Ok(IdedExpr { id: 0, expr })
    }

    /// A pattern that is a literal is compiled now, and becomes a variable.
    fn constant_pattern(&mut self, args: &mut [IdedExpr]) -> Result<(), String> {
        let Some(arg) = args.get_mut(1) else { return Ok(()) };
        let Expr::Literal(LiteralValue::String(text)) = &arg.expr else {
            return Ok(());
        };
        let compiled = regex::compile(text.inner()).map_err(|_| "invalid matches argument".to_owned())?;
        arg.expr = Expr::Ident(pattern_name(self.patterns.len()));
        self.patterns.push(PatternVal(compiled));
        Ok(())
    }

    /// Wrapped in a call that pays for looking at the value, unless that is known to be cheap.
    fn weighed(&self, expr: IdedExpr, of: &Type) -> IdedExpr {
        let small = match of {
            Type::String | Type::Bytes | Type::List(_) | Type::Map(..) | Type::Optional(_) => false,
            t => !t.is_dynamic(),
        };
        let constant = matches!(expr.expr, Expr::Literal(_));
        // What a device holds is bounded by its API; in a loop it still adds up.
        let of_device = self.loops == 0 && rooted_in_device(&expr);
        let walked_by_loop = matches!(&expr.expr, Expr::Ident(name) if name == "@result");
        if small || constant || of_device || walked_by_loop {
            expr
        } else {
            function("@weigh", vec![expr])
        }
    }

    fn list(&mut self, list: ListExpr, one_type: bool) -> Result<(Expr, Type), String> {
        let mut element = Type::Free;
        let mut elements = vec![];
        for (i, item) in list.elements.into_iter().enumerate() {
            let (item, of) = self.expr(item)?;
            let item = self.weighed(item, &of);
            let of = inner(of, list.optional_indices.contains(&i))?;
            element = match one_type {
                true => homogeneous(element, of)?,
                false => element.join(of),
            };
            elements.push(item);
        }
        let list = ListExpr::new_with_optionals(elements, list.optional_indices);
        Ok((Expr::List(list), Type::list(element)))
    }

    fn map(&mut self, map: MapExpr) -> Result<(Expr, Type), String> {
        let (mut keys, mut values) = (Type::Free, Type::Free);
        let mut entries = vec![];
        for mut entry in map.entries {
            let EntryExpr::MapEntry(mut e) = entry.expr else {
                return Err("Syntax error".to_owned());
            };
            let (key, of) = self.expr(e.key)?;
            e.key = self.weighed(key, &of);
            keys = homogeneous(keys, of)?;
            let (value, of) = self.expr(e.value)?;
            e.value = self.weighed(value, &of);
            values = homogeneous(values, inner(of, e.optional)?)?;
            entry.expr = EntryExpr::MapEntry(e);
            entries.push(entry);
        }
        Ok((Expr::Map(MapExpr { entries }), Type::map(keys, values)))
    }

    fn comprehension(&mut self, c: ComprehensionExpr) -> Result<(Expr, Type), String> {
        let (iter_range, over) = self.expr(c.iter_range)?;
        let (accu_init, accu) = self.expr(c.accu_init)?;
        let item = match &over {
            Type::List(t) => (**t).clone(),
            Type::Map(key, _) => (**key).clone(),
            t if t.is_dynamic() => Type::Dyn,
            t => {
                return Err(format!(
                    "expression of type '{t}' cannot be range of a comprehension (must be list, map, or dynamic)"
                ));
            }
        };
        let iter_range = self.weighed(iter_range, &over);
        let accu_init = self.weighed(accu_init, &accu);
        // A loop over an empty literal is `cel.bind`, which repeats nothing.
        let repeats = !matches!(&iter_range.expr, Expr::List(l) if l.elements.is_empty());
        let outer = self.scope.len();
        self.scope.push((c.iter_var.clone(), item));
        self.scope.push((c.accu_var.clone(), accu.clone()));
        self.loops += usize::from(repeats);
        let (loop_cond, _) = self.expr(c.loop_cond)?;
        let (loop_step, stepped) = self.expr(c.loop_step)?;
        self.loops -= usize::from(repeats);
        self.scope.truncate(outer);
        self.scope.push((c.accu_var.clone(), accu.join(stepped)));
        let result = self.expr(c.result);
        self.scope.truncate(outer);
        let (result, of) = result?;
        // It is copied out of the loop.
        let result = self.weighed(result, &of);
        let (loop_cond, loop_step) = match repeats {
            true => paid(loop_cond, loop_step),
            false => (loop_cond, loop_step),
        };
        let comprehension = ComprehensionExpr {
            iter_range,
            accu_init,
            loop_cond,
            loop_step,
            result,
            ..c
        };
        Ok((Expr::Comprehension(Box::new(comprehension)), of))
    }
}

/// A literal that can never be read is refused at once, as in Kubernetes.
fn literal_time(name: &str, args: &[IdedExpr]) -> Result<(), String> {
    let [
        IdedExpr {
            expr: Expr::Literal(literal),
            ..
        },
    ] = args
    else {
        return Ok(());
    };
    let fine = match literal {
        LiteralValue::String(text) if name == "duration" => go_duration(text.inner()).is_some(),
        LiteralValue::String(text) => times::timestamp(text.inner()).is_some(),
        LiteralValue::Int(seconds) => name == "timestamp" && times::at(*seconds.inner()).is_some(),
        _ => true,
    };
    if fine {
        Ok(())
    } else {
        Err(format!("invalid {name} argument"))
    }
}

/// Whether it is `@result + [..]`, as macros write it.
fn appends(args: &[IdedExpr]) -> bool {
    let [list, more] = args else { return false };
    matches!(&list.expr, Expr::Ident(name) if name == "@result") && matches!(more.expr, Expr::List(_))
}

fn rooted_in_device(expr: &IdedExpr) -> bool {
    match &expr.expr {
        Expr::Ident(name) => name == "device" || name == "node",
        Expr::Select(select) => rooted_in_device(&select.operand),
        Expr::Call(call)
            if matches!(
                call.func_name.as_str(),
                operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT
            ) =>
        {
            call.args.first().is_some_and(rooted_in_device)
        }
        _ => false,
    }
}
