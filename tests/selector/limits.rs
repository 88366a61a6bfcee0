//! No expression may stall the service or exhaust its stack or memory: each of these would, without bounds.
//! They run on the stack of a test thread (2 MiB), in a build without optimisation.

use crate::fixture::{answer, compile_error};

const COST: &str = "cost limit exceeded";

#[test]
fn text_is_bounded() {
    let long = format!("device.driver == '{}'", "x".repeat(10 * 1024));
    assert!(compile_error(&long).is_some_and(|e| e.contains("limit is 10240")));
    let most = format!("device.driver == '{}'", "x".repeat(10 * 1024 - 19));
    assert_eq!(answer(&most), Ok(false));
}

#[test]
fn nesting_is_bounded() {
    let wrap = |open: &str, inner: &str, close: &str, n: usize| open.repeat(n) + inner + &close.repeat(n);
    let deep: Vec<String> = [10, 30, 45, 60, 99, 1000, 3000]
        .into_iter()
        .flat_map(|n| {
            [
                wrap("(", "true", ")", n),
                wrap("!(", "true", ")", n),
                wrap("[", "1", "]", n) + " == []",
                wrap("{1:", "1", "}", n) + " == {}",
                wrap("size([", "1", "])", n) + " == 1",
                wrap("[1].all(x,", "true", ")", n),
                wrap("cel.bind(a,[1],", "true", ")", n),
                wrap("[1].all(i,v,", "true", ")", n),
                wrap("optional.of(1).optMap(x,", "1", ")", n) + " == optional.of(1)",
                wrap("false ? true : (", "true", ")", n),
                "false ? true : ".repeat(n) + "true",
                "1".to_owned() + &" + 1".repeat(n) + " == 1",
                "'a'".to_owned() + &".trim()".repeat(n) + " == 'a'",
                "device.attributes".to_owned() + &".a".repeat(n) + " == 1",
                "[1]".to_owned() + &".map(x, x)".repeat(n) + " == [1]",
                "!".repeat(n) + "true",
                "-".repeat(n) + "1 == 1",
                "(".repeat(n),
                "[".repeat(n),
                "'".repeat(n),
                "a.b{c:".repeat(n),
            ]
        })
        .filter(|t| t.len() <= 10 * 1024)
        .collect();
    for text in &deep {
        // That it returns is the point. What it says must be an answer or a reason.
        if let Err(why) = answer(text) {
            assert!(!why.contains("internal error"), "{text}: {why}");
        }
    }
    let shallow = wrap("(", "true", ")", 30);
    assert_eq!(answer(&shallow), Ok(true));
    let refused = compile_error(&wrap("(", "1", ")", 3000));
    assert!(refused.is_some_and(|e| e.contains("nested too deeply")));
}

/// What people write must not come near the bounds on depth.
#[test]
fn long_and_flat_is_fine() {
    let any = (0..120)
        .map(|i| format!("device.attributes['gpu.example.com'].index == {i}"))
        .collect::<Vec<_>>();
    assert_eq!(answer(&any.join(" || ")), Ok(true));
    let all = (0..120).map(|i| format!("device.attributes['gpu.example.com'].cores > {i}"));
    assert_eq!(answer(&all.collect::<Vec<_>>().join(" && ")), Ok(true));
    let list: Vec<_> = (0..1000).map(|i| i.to_string()).collect();
    let within = format!("device.attributes['gpu.example.com'].index in [{}]", list.join(","));
    assert_eq!(answer(&within), Ok(true));
}

#[test]
fn loops_are_bounded() {
    let thousand = "lists.range(1000)";
    for text in [
        format!("{thousand}.all(a, {thousand}.all(b, {thousand}.all(c, a + b + c >= 0)))"),
        format!("{thousand}.map(a, {thousand}.map(b, {thousand}.map(c, 1))).size() > 0"),
        format!("{thousand}.map(a, {thousand}).map(a, {thousand}).map(a, {thousand}).size() > 0"),
        format!("{thousand}.filter(a, {thousand}.filter(b, {thousand}.exists(c, c < 0)).size() > 0).size() > 0"),
        format!("{thousand}.exists_one(a, {thousand}.exists_one(b, {thousand}.exists_one(c, c < 0)))"),
        format!("{thousand}.all(i, a, {thousand}.all(j, b, {thousand}.all(k, c, a + b + c >= 0)))"),
        format!("{thousand}.transformMap(a, v, {thousand}.transformMap(b, w, {thousand})).size() > 0"),
        "lists.range(1000000000000).size() > 0".to_owned(),
        "lists.range(9223372036854775807).all(x, true)".to_owned(),
        "lists.range(500000).distinct().size() > 0".to_owned(),
        "lists.range(900).map(x, lists.range(900)).flatten().distinct().size() > 0".to_owned(),
        "sets.contains(lists.range(90000), lists.range(90000).reverse())".to_owned(),
        "lists.range(3000).all(x, -1 in lists.range(3000) || true)".to_owned(),
    ] {
        let got = answer(&text);
        assert!(got.as_ref().is_err_and(|e| e.contains(COST)), "{text}: {got:?}");
    }
    // An error does not hide behind an absorbing operator.
    let hidden = format!("true || {thousand}.all(a, true)");
    assert_eq!(answer(&hidden), Ok(true));
    let spent = format!("{thousand}.all(a, {thousand}.all(b, {thousand}.all(c, true))) || true");
    assert!(answer(&spent).is_err_and(|e| e.contains(COST)));
    // And the next evaluation starts afresh.
    assert_eq!(answer("lists.range(1000).all(a, a >= 0)"), Ok(true));
}

/// Lists are made in linear work, what a round does is paid for by its length, and copies are paid for.
#[test]
fn rounds_pay_for_what_they_do() {
    let terms = |term: &str, n: usize| vec![term; n].join(" && ");
    let nested = "cel.bind(m, {'a': {'c': lists.range(5000)}}, ";
    for text in [
        "lists.range(20000).map(x, 1).size() > 0".to_owned(),
        "lists.range(20000).filter(x, true).size() > 0".to_owned(),
        "lists.range(20000).map(x, -x).sort().size() > 0".to_owned(),
        "lists.range(20000).map(x, 'a').join('').size() > 0".to_owned(),
        "lists.range(20000).transformList(i, v, v).size() > 0".to_owned(),
        format!("lists.range(2000).all(x, {})", terms("x >= 0", 500)),
        format!("lists.range(2000).all(x, {})", terms("string(x) != ''", 300)),
        format!("{nested}lists.range(3000).all(x, !m.?a.?b.hasValue()))"),
        format!("{nested}lists.range(3000).all(x, has(cel.bind(z, 1, m).a)))"),
        format!(
            "cel.bind(s, '{}', lists.range(3000).map(x, s + string(x)).size() > 0)",
            "a".repeat(2000)
        ),
    ] {
        let got = answer(&text);
        assert!(got.as_ref().is_err_and(|e| e.contains(COST)), "{text:.80}: {got:?}");
    }
    for text in [
        "lists.range(500).map(x, x * 2).size() == 500",
        "lists.range(500).filter(x, x >= 0).map(x, -x).sort()[0] == -499",
        "lists.range(500).map(x, string(x)).join(',').size() > 0",
        "lists.range(500).transformList(i, v, i + v).size() == 500",
        "lists.range(500).map(x, x).distinct().size() == 500",
        "lists.range(500).all(i, v, i == v)",
        "lists.range(50).all(x, lists.range(50).exists(y, x == y))",
    ] {
        assert_eq!(answer(text), Ok(true), "{text}");
    }
}

#[test]
fn sizes_are_bounded() {
    let mut doubled = "size(s30) > 0".to_owned();
    let mut lists = "size(s30) > 0".to_owned();
    for i in (0..18).rev() {
        let (to, from) = if i == 17 {
            ("s30".to_owned(), i)
        } else {
            (format!("s{}", i + 1), i)
        };
        doubled = format!("cel.bind({to}, s{from} + s{from}, {doubled})");
        lists = format!("cel.bind({to}, [s{from}, s{from}], {lists})");
    }
    let a = "a".repeat(1000);
    let replaced = format!("'{a}'.replace('a', '{a}').replace('a', '{a}').replace('a', '{a}').size() > 0");
    let joined = format!("lists.range(1000).map(x, '{a}').join('{a}').split('').join('{a}').size() > 0");
    for text in [
        format!("cel.bind(s0, '{a}', {doubled})"),
        format!("cel.bind(s0, lists.range(100), {lists})"),
        replaced,
        joined,
        format!("lists.range(1000).map(x, '{a}'.replace('a', '{a}')).size() > 0"),
        format!("cel.bind(s, '{a}'.replace('a', '{a}'), lists.range(1000).all(x, s.contains('b') || true))"),
        format!("cel.bind(s, '{a}'.replace('a', '{a}'), lists.range(1000).map(x, s).size() > 0)"),
        format!("cel.bind(s, '{a}'.replace('a', '{a}'), lists.range(1000).map(x, [s, s]).size() > 0)"),
    ] {
        let got = answer(&text);
        let bounded = |e: &String| e.contains(COST) || e.contains("nested too deeply");
        assert!(got.as_ref().is_err_and(bounded), "{}: {got:?}", &text[..60]);
    }
}

#[test]
fn patterns_are_bounded() {
    assert!(compile_error("'a'.matches('(((a{100}){100}){100}){100}')").is_some());
    assert!(compile_error(&format!("'a'.matches('{}a{}')", "(".repeat(2000), ")".repeat(2000))).is_some());
    let dynamic = "lists.range(1000).all(x, 'a'.matches('(a{50}){50}' + string(x)) || true)";
    assert!(answer(dynamic).is_err_and(|e| e.contains(COST)));
    assert_eq!(answer("'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'.matches('^(a+)+$')"), Ok(true));
    assert_eq!(
        answer("'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaab'.matches('^(a+)+$')"),
        Ok(false)
    );
}

/// Arithmetic at its limits is an error, not a panic.
#[test]
fn numbers_at_their_limits() {
    let least = "(-9223372036854775807 - 1)";
    for text in [
        format!("{least} / -1 == 0"),
        format!("{least} % -1 == 0"),
        format!("{least} - 1 == 0"),
        format!("{least} * -1 == 0"),
        format!("-{least} == 0"),
        "9223372036854775807 + 1 == 0".to_owned(),
        "[9223372036854775807, 1].sum() == 0".to_owned(),
        "0u - 1u == 0u".to_owned(),
        "18446744073709551615u * 2u == 0u".to_owned(),
    ] {
        let got = answer(&text);
        assert!(got.as_ref().is_err_and(|e| e.contains("overflow")), "{text}: {got:?}");
    }
    assert_eq!(
        answer("quantity('1e300').add(quantity('1e300')).isGreaterThan(quantity('1'))"),
        Ok(true)
    );
    assert_eq!(
        answer("quantity('-1e300').sub(9223372036854775807).isLessThan(quantity('0'))"),
        Ok(true)
    );
}
