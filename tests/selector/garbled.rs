//! Random and garbled expressions: every one gets an answer or a reason, and none takes the process down.

use proptest::prelude::*;

use crate::fixture::{answer, compile_error};

/// Pieces that make near-valid text far more often than random bytes would.
const PIECES: &[&str] = &[
    "device",
    ".driver",
    ".attributes",
    ".capacity",
    "[\"gpu.example.com\"]",
    ".index",
    ".?nope",
    "[?\"x\"]",
    "[0]",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "?",
    ".",
    "&&",
    "||",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    "==",
    "!=",
    "<",
    ">=",
    " in ",
    "true",
    "false",
    "null",
    "1",
    "0",
    "-9223372036854775808",
    "18446744073709551615u",
    "1.5",
    "1e300",
    "\"a\"",
    "'größe✌'",
    "b'\\xff'",
    "r'\\d'",
    "\"\"\"",
    "x",
    "y",
    ".all(x, ",
    ".exists(x, ",
    ".map(x, ",
    ".filter(x, ",
    ".exists_one(x, ",
    ".all(x, y, ",
    ".transformMap(x, y, ",
    ".sortBy(x, ",
    "cel.bind(x, ",
    ".optMap(x, ",
    "has(",
    "size(",
    "quantity(",
    "semver(",
    "type(",
    "dyn(",
    "string(",
    "int(",
    ".matches(",
    ".replace(",
    ".split(",
    ".join(",
    ".substring(",
    ".format(",
    ".indexOf(",
    ".lastIndexOf(",
    ".charAt(",
    ".sum()",
    ".sort()",
    ".flatten()",
    ".slice(",
    "lists.range(",
    "sets.contains(",
    "optional.none()",
    "optional.of(",
    ".orValue(",
    ".value()",
    "ip(",
    "cidr(",
    "url(",
    ".compareTo(",
    ".isGreaterThan(",
    ".major()",
    "//",
    "\n",
    "`",
    "@",
    "\\",
    "\u{0}",
    "if",
];

fn check(text: &str) -> Result<(), TestCaseError> {
    let refused = compile_error(text);
    let answered = answer(text);
    if let Some(why) = &refused {
        prop_assert_eq!(answered.as_ref().err(), Some(why));
    }
    if let Err(why) = answered {
        prop_assert!(!why.contains("internal error"), "{}: {}", text, why);
    }
    Ok(())
}

/// Well-formed expressions of mixed types, evaluated for the most part.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("device.driver".to_owned()),
        Just("device.attributes[\"gpu.example.com\"].index".to_owned()),
        Just("device.attributes[\"gpu.example.com\"].modes".to_owned()),
        Just("device.attributes[\"gpu.example.com\"].nope".to_owned()),
        Just("device.attributes[\"gpu.example.com\"].driverVersion".to_owned()),
        Just("device.capacity[\"gpu.example.com\"].memory".to_owned()),
        Just("device.attributes".to_owned()),
        Just("quantity('1Gi')".to_owned()),
        Just("semver('1.2.3')".to_owned()),
        Just("dyn('größe✌')".to_owned()),
        Just("dyn([1, 2, 3])".to_owned()),
        Just("dyn({'a': 1})".to_owned()),
        Just("dyn(null)".to_owned()),
        any::<i64>().prop_map(|i| format!("dyn({i})")),
        any::<u64>().prop_map(|u| format!("dyn({u}u)")),
        any::<f32>()
            .prop_filter("a literal", |d| d.is_finite())
            .prop_map(|d| format!("dyn({d:?})")),
        any::<bool>().prop_map(|b| b.to_string()),
    ];
    leaf.prop_recursive(4, 40, 3, |inner| {
        let operators = prop::sample::select(vec!["+", "-", "*", "/", "%", "==", "!=", "<", ">=", "&&", "||", "in"]);
        let methods = prop::sample::select(vec![
            "size",
            "contains",
            "startsWith",
            "replace",
            "split",
            "join",
            "substring",
            "charAt",
            "indexOf",
            "lastIndexOf",
            "format",
            "matches",
            "findAll",
            "sum",
            "min",
            "max",
            "isSorted",
            "sort",
            "distinct",
            "flatten",
            "slice",
            "compareTo",
            "isGreaterThan",
            "add",
            "sub",
            "asInteger",
            "major",
            "includes",
            "containsIP",
            "orValue",
            "value",
        ]);
        let macros = prop::sample::select(vec!["all", "exists", "exists_one", "map", "filter", "sortBy"]);
        let wide = prop::sample::select(vec!["all", "exists", "existsOne", "transformList", "transformMap"]);
        prop_oneof![
            (inner.clone(), operators, inner.clone()).prop_map(|(a, o, b)| format!("dyn({a}) {o} dyn({b})")),
            (inner.clone(), methods, prop::collection::vec(inner.clone(), 0..3)).prop_map(|(a, m, args)| format!(
                "dyn({a}).{m}({})",
                args.iter().map(|a| format!("dyn({a})")).collect::<Vec<_>>().join(", ")
            )),
            (inner.clone(), macros, inner.clone()).prop_map(|(a, m, b)| format!("dyn({a}).{m}(x, dyn({b}))")),
            (inner.clone(), wide, inner.clone()).prop_map(|(a, m, b)| format!("dyn({a}).{m}(k, v, dyn([k, v, {b}]))")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("dyn({a}) ? dyn({b}) : dyn({c})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("dyn({a})[dyn({b})]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("dyn({a})[?dyn({b})]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("cel.bind(x, dyn({a}), [x, dyn({b})])")),
            inner.prop_map(|a| format!("-dyn({a})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pieces_in_any_order(parts in prop::collection::vec(prop::sample::select(PIECES), 0..40)) {
        check(&parts.concat())?;
    }

    #[test]
    fn any_text(text in any::<String>()) {
        check(&text)?;
    }

    #[test]
    fn expressions_of_mixed_types(text in expression()) {
        check(&text)?;
        check(&format!("dyn({text}) == true || false"))?;
    }

    /// A character taken out of a sound expression.
    #[test]
    fn something_missing(text in expression(), at in any::<prop::sample::Index>()) {
        let mut chars: Vec<char> = text.chars().collect();
        chars.remove(at.index(chars.len()));
        check(&chars.into_iter().collect::<String>())?;
    }
}
