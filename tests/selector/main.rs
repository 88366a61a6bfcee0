//! Selectors against what Kubernetes does: a table of expressions on one device, the bounds, and garbled input.

mod device_cases;
mod fixture;
mod garbled;
mod language_cases;
mod library_cases;
mod limits;

use fixture::{answer, compile_error, gpu, labels, name};
use wattlane::selector::Selectors;

#[derive(Debug)]
enum Expect {
    Is(bool),
    /// Refused before a device is seen, with a message that contains this.
    Compile(&'static str),
    /// Refused on this device.
    Fails(&'static str),
}

fn check(cases: &[(&str, Expect)]) {
    let mut wrong = vec![];
    for (text, expected) in cases {
        let (refused, got) = (compile_error(text), answer(text));
        let right = match expected {
            Expect::Is(answer) => got.as_ref() == Ok(answer),
            Expect::Compile(why) => refused.as_ref().is_some_and(|e| e.contains(why)) && got.is_err(),
            Expect::Fails(why) => refused.is_none() && got.as_ref().is_err_and(|e| e.contains(why)),
        };
        if !right {
            wrong.push(format!("{text}\n  expected {expected:?}\n  got {got:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

#[test]
fn devices_answer_as_in_kubernetes() {
    check(device_cases::CASES);
}

#[test]
fn libraries_answer_as_in_kubernetes() {
    check(library_cases::CASES);
}

#[test]
fn the_language_answers_as_in_kubernetes() {
    check(language_cases::CASES);
}

/// Known differences, all on the side of refusing or of answering what cel-go refuses earlier or later.
#[test]
fn differences_are_these() {
    check(&[
        // cel-go folds constants when it compiles.
        ("int('x') == 12", Expect::Fails("parse error")),
        ("uint(-1) == 0u", Expect::Fails("unsigned integer overflow")),
        // Names of types with dots are not known.
        (
            "type(duration('1h')) == google.protobuf.Duration",
            Expect::Compile("undeclared reference to 'google'"),
        ),
        // cel-go finds an error in a binding only where the variable is used.
        ("cel.bind(a, 1/0, true)", Expect::Fails("division by zero")),
        // cel-go keeps one of two equal keys.
        ("{'a': 1, 'a': 2} == {'a': 1}", Expect::Fails("repeated key")),
    ]);
}

#[test]
fn node_labels_are_for_policies_only() {
    let selectors = Selectors::new();
    let selector = selectors.selector(&name("node.labels['zone'] == 'a' && device.driver != ''"));
    assert_eq!(selector.compile_error(), None);
    let (driver, device) = (name(fixture::DRIVER), gpu());
    let on = |zone: &str| selector.matches(&driver, &device, Some(&labels(&[("zone", zone)])));
    assert_eq!(on("a"), Ok(true));
    assert_eq!(on("b"), Ok(false));
    let missing = selector.matches(&driver, &device, Some(&labels(&[])));
    assert_eq!(missing.map_err(|e| e.to_string()), Err("no such key: zone".to_owned()));
    let tenant = selector.matches(&driver, &device, None).map_err(|e| e.to_string());
    assert!(tenant.is_err_and(|e| e.contains("undeclared reference to 'node'")));
    let has = selectors.selector(&name("has(node.labels.zone) || node.labels.exists(k, k == 'x')"));
    assert_eq!(has.matches(&driver, &device, Some(&labels(&[("x", "")]))), Ok(true));
}

/// A version the driver should not have been able to publish.
#[test]
fn a_broken_version_is_an_error_of_the_device() {
    let mut device = gpu();
    for (name, value) in device.attributes.iter_mut() {
        if &*name.name == "driverVersion" {
            *value = wattlane::model::AttributeValue::Version("latest".into());
        }
    }
    let selector = Selectors::new().selector(&name(
        "device.attributes['gpu.example.com'].driverVersion == semver('1.0.0')",
    ));
    let got = selector.matches(&name(fixture::DRIVER), &device, None);
    assert!(got.is_err_and(|e| e.0.contains("parse semantic version")));
}

#[test]
fn a_shared_device_says_so() {
    let mut device = gpu();
    device.allow_multiple = true;
    let selector = Selectors::new().selector(&name("device.allowMultipleAllocations"));
    assert_eq!(selector.matches(&name(fixture::DRIVER), &device, None), Ok(true));
}
