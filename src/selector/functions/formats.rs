//! `format.dns1123Label()` and its kin (k8s.io/apiserver/pkg/cel/library/format.go): what is wrong with a text, in the
//! words of Kubernetes.

use std::sync::LazyLock;

use cel::common::types::{CelList, CelOptional, CelString};
use cel::common::value::Val;
use regex::Regex;

use super::super::budget::charge_bytes;
use super::super::kinds::FormatVal;
use super::{Arg, Failed, Native, Out, Plain, native, times, url};

/// One format: its name in CEL, and the check.
#[derive(Debug)]
pub(in super::super) struct Format {
    name: &'static str,
    faults: fn(&str) -> Vec<String>,
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

macro_rules! formats {
    ($($name:literal, $function:literal => $faults:expr;)*) => {
        static FORMATS: &[Format] = &[$(Format { name: $name, faults: $faults }),*];

        pub(super) const NATIVES: &[Native] = &[
            $(($function, false, 0, native!($function, |args| match args {
                [] => named($name),
                _ => Err(Failed::Overload),
            })),)*
            ("format.named", false, 1, native!("format.named", |args| {
                let [Arg::String(name)] = args else {
                    return Err(Failed::Overload);
                };
                charge_bytes(name.len())?;
                let found = FORMATS.iter().find(|f| f.name == *name);
                let found = found.map_or_else(CelOptional::none, |f| CelOptional::of(Box::new(FormatVal(f))));
                Ok(Out::Value(Box::new(found)))
            })),
            ("validate", true, 2, native!("validate", |args| {
                let [Arg::Format(format), Arg::String(text)] = args else {
                    return Err(Failed::Overload);
                };
                charge_bytes(4 * text.len())?;
                let faults = (format.faults)(text);
                if faults.is_empty() {
                    return Ok(Out::Value(Box::new(CelOptional::none())));
                }
                let faults: Vec<Box<dyn Val>> = faults.into_iter().map(|f| Box::new(CelString::from(f)) as _).collect();
                Ok(Out::Value(Box::new(CelOptional::of(Box::new(CelList::from(faults))))))
            })),
        ];
    };
}

formats! {
    "dns1123Label", "format.dns1123Label" => dns1123_label;
    "dns1123Subdomain", "format.dns1123Subdomain" => dns1123_subdomain;
    "dns1035Label", "format.dns1035Label" => dns1035_label;
    "qualifiedName", "format.qualifiedName" => qualified_name;
    "dns1123LabelPrefix", "format.dns1123LabelPrefix" => |s| dns1123_label(&masked(s));
    "dns1123SubdomainPrefix", "format.dns1123SubdomainPrefix" => |s| dns1123_subdomain(&masked(s));
    "dns1035LabelPrefix", "format.dns1035LabelPrefix" => |s| dns1035_label(&masked(s));
    "labelValue", "format.labelValue" => label_value;
    "uri", "format.uri" => |s| single(url::is_request_uri(s), "invalid URI for request");
    "uuid", "format.uuid" => |s| single(UUID.is_match(s), "does not match the UUID format");
    "byte", "format.byte" => |s| single(BASE64.is_match(s), "invalid base64");
    "date", "format.date" => |s| single(is_date(s), "invalid date");
    "datetime", "format.datetime" => |s| single(is_datetime(s), "invalid datetime");
}

fn named(name: &str) -> Plain {
    let format = FORMATS.iter().find(|f| f.name == name).ok_or(Failed::Overload)?;
    Ok(Out::Value(Box::new(FormatVal(format))))
}

const LABEL_1123: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

fn whole(pattern: &str) -> Regex {
    Regex::new(&format!("^(?:{pattern})$")).expect("a pattern of this file, which its test compiles")
}

static IS_LABEL_1123: LazyLock<Regex> = LazyLock::new(|| whole(LABEL_1123));
static IS_LABEL_1035: LazyLock<Regex> = LazyLock::new(|| whole(LABEL_1035));
static IS_SUBDOMAIN: LazyLock<Regex> = LazyLock::new(|| whole(SUBDOMAIN));
static IS_KEY: LazyLock<Regex> = LazyLock::new(|| whole(KEY));
static IS_VALUE: LazyLock<Regex> = LazyLock::new(|| whole(VALUE));
static UUID: LazyLock<Regex> =
    LazyLock::new(|| whole("(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"));
static BASE64: LazyLock<Regex> =
    LazyLock::new(|| whole("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"));
static TIME: LazyLock<Regex> =
    LazyLock::new(|| whole("([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))"));

fn single(fine: bool, fault: &str) -> Vec<String> {
    if fine { vec![] } else { vec![fault.to_owned()] }
}

fn too_long(most: usize) -> String {
    format!("must be no more than {most} bytes")
}

fn unlike(words: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<_> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!(
        "{words} (e.g. {}regex used for validation is '{pattern}')",
        examples.join(" or ")
    )
}

/// A prefix may end in a dash: the last two characters stand for what follows.
fn masked(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut kept: Vec<char> = rest.chars().collect();
            kept.pop();
            kept.into_iter().chain(['a']).collect()
        }
        _ => text.to_owned(),
    }
}

fn dns1123_label(text: &str) -> Vec<String> {
    let mut faults = single(text.len() <= 63, &too_long(63));
    if IS_SUBDOMAIN.is_match(text) && !IS_LABEL_1123.is_match(text) {
        faults.push("must not contain dots".to_owned());
    } else if !IS_LABEL_1123.is_match(text) {
        let words = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                     start and end with an alphanumeric character";
        faults.push(unlike(words, LABEL_1123, &["my-name", "123-abc"]));
    }
    faults
}

fn dns1123_subdomain(text: &str) -> Vec<String> {
    let mut faults = single(text.len() <= 253, &too_long(253));
    if !IS_SUBDOMAIN.is_match(text) {
        let words = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                     and must start and end with an alphanumeric character";
        faults.push(unlike(words, SUBDOMAIN, &["example.com"]));
    }
    faults
}

fn dns1035_label(text: &str) -> Vec<String> {
    let mut faults = single(text.len() <= 63, &too_long(63));
    if !IS_LABEL_1035.is_match(text) {
        let words = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                     alphabetic character, and end with an alphanumeric character";
        faults.push(unlike(words, LABEL_1035, &["my-name", "abc-123"]));
    }
    faults
}

fn qualified_name(text: &str) -> Vec<String> {
    let words = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                 alphanumeric character";
    let odd = unlike(words, KEY, &["MyName", "my.name", "123-abc"]);
    let mut faults = vec![];
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                let all = dns1123_subdomain(prefix).into_iter();
                faults.extend(all.map(|fault| format!("prefix part {fault}")));
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {odd} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push(format!("name part {}", too_long(63)));
    }
    if !IS_KEY.is_match(name) {
        faults.push(format!("name part {odd}"));
    }
    faults
}

fn label_value(text: &str) -> Vec<String> {
    let mut faults = single(text.len() <= 63, &too_long(63));
    if !IS_VALUE.is_match(text) {
        let words = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                     must start and end with an alphanumeric character";
        faults.push(unlike(words, VALUE, &["MyValue", "my_value", "12345"]));
    }
    faults
}

fn is_date(text: &str) -> bool {
    // Year 0 is a date to Go, and no timestamp.
    text.len() == 10 && times::timestamp(&format!("{}T00:00:00Z", text.replacen("0000", "0004", 1))).is_some()
}

fn is_datetime(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    let Some(found) = TIME.captures(time).filter(|_| is_date(date)) else {
        return false;
    };
    let most = [(1, "23"), (2, "59"), (3, "59")];
    most.iter()
        .all(|(i, most)| found.get(*i).is_some_and(|m| m.as_str() <= *most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_found_and_worded() {
        for (name, good, bad) in [
            ("dns1123Label", "my-name", "My-name"),
            ("dns1123Subdomain", "a.b-c.d", "a..b"),
            ("dns1035Label", "a1", "1a"),
            ("qualifiedName", "example.com/My_Name", "/x"),
            ("dns1123LabelPrefix", "my-", "-"),
            ("dns1123SubdomainPrefix", "a.b-", "a.b-."),
            ("dns1035LabelPrefix", "ab-", "11-"),
            ("labelValue", "", "-a"),
            ("uri", "http://example.com/a?b", "a b"),
            ("uuid", "123e4567-E89B-12d3-a456-426614174000", "123e4567"),
            ("byte", "aGVsbG8=", "aGVsbG8"),
            ("date", "2024-02-29", "2023-02-29"),
            ("datetime", "2021-01-01t00:00:00.5+01:00", "2021-01-01T24:00:00Z"),
        ] {
            let format = FORMATS.iter().find(|f| f.name == name).expect("there");
            assert_eq!((format.faults)(good), [""; 0], "{name} of {good}");
            assert_eq!((format.faults)(bad).len(), 1, "{name} of {bad}");
        }
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns1123_label(&"A".repeat(64)).len(), 2);
    }
}
