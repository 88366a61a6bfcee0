//! What may be called, and with what: the names and signatures Kubernetes declares, for the check at compile
//! time. The crate finds an overload only at run time; Kubernetes refuses the object when it is created.
//!
//! A signature is written `(string, int) string`, with a dot in front for a method. Sources: cel-go's standard
//! library and ext (strings 2, lists 3, sets), k8s.io/apiserver/pkg/cel/library.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::types::Overload;

const NUMERIC: &[&str] = &["(int, int) int", "(uint, uint) uint", "(double, double) double"];

/// Numbers compare across types, everything else within one. Quantities and versions have methods instead.
const ORDERED: &[&str] = &[
    "(bool, bool) bool",
    "(int, int) bool",
    "(int, uint) bool",
    "(int, double) bool",
    "(uint, uint) bool",
    "(uint, int) bool",
    "(uint, double) bool",
    "(double, double) bool",
    "(double, int) bool",
    "(double, uint) bool",
    "(string, string) bool",
    "(bytes, bytes) bool",
    "(timestamp, timestamp) bool",
    "(duration, duration) bool",
];

const POSITION: &[&str] = &[
    ".(string, string) int",
    ".(string, string, int) int",
    ".(list(A), A) int",
];
const COMPARED: &[&str] = &[".(quantity, quantity) bool", ".(semver, semver) bool"];
const ON_STRING: &[&str] = &[".(string) string"];
const STRING_TEST: &[&str] = &[".(string, string) bool"];
const QUANTITY_MATH: &[&str] = &[".(quantity, quantity) quantity", ".(quantity, int) quantity"];
const SET_TEST: &[&str] = &["(list(A), list(A)) bool"];
const ADDRESS_TEST: &[&str] = &[".(ip) bool"];
const URL_PART: &[&str] = &[".(url) string"];
const VERSION_PART: &[&str] = &[".(semver) int"];
const SAME_LIST: &[&str] = &[".(list(A)) list(A)"];
const OF_TIMESTAMP: &[&str] = &[".(timestamp) int", ".(timestamp, string) int"];
const OF_TIME: &[&str] = &[".(timestamp) int", ".(timestamp, string) int", ".(duration) int"];
const FORMAT: &[&str] = &["() format"];
const EXTREME: &[&str] = &[".(list(A)) A"];

const TABLE: &[(&str, &[&str])] = &[
    // Operators
    ("_==_", &["(A, A) bool"]),
    ("_!=_", &["(A, A) bool"]),
    ("_<_", ORDERED),
    ("_<=_", ORDERED),
    ("_>_", ORDERED),
    ("_>=_", ORDERED),
    (
        "_+_",
        &[
            "(int, int) int",
            "(uint, uint) uint",
            "(double, double) double",
            "(string, string) string",
            "(bytes, bytes) bytes",
            "(list(A), list(A)) list(A)",
            "(duration, duration) duration",
            "(duration, timestamp) timestamp",
            "(timestamp, duration) timestamp",
        ],
    ),
    (
        "_-_",
        &[
            "(int, int) int",
            "(uint, uint) uint",
            "(double, double) double",
            "(duration, duration) duration",
            "(timestamp, duration) timestamp",
            "(timestamp, timestamp) duration",
        ],
    ),
    ("_*_", NUMERIC),
    ("_/_", NUMERIC),
    ("_%_", &["(int, int) int", "(uint, uint) uint"]),
    ("-_", &["(int) int", "(double) double"]),
    ("!_", &["(bool) bool"]),
    ("_&&_", &["(bool, bool) bool"]),
    ("_||_", &["(bool, bool) bool"]),
    ("_?_:_", &["(bool, A, A) A"]),
    ("@in", &["(A, list(A)) bool", "(A, map(A, B)) bool"]),
    (
        "_[_]",
        &[
            "(list(A), int) A",
            "(map(A, B), A) B",
            "(optional(list(A)), int) optional(A)",
            "(optional(map(A, B)), A) optional(B)",
        ],
    ),
    (
        "_[?_]",
        &[
            "(list(A), int) optional(A)",
            "(map(A, B), A) optional(B)",
            "(optional(list(A)), int) optional(A)",
            "(optional(map(A, B)), A) optional(B)",
        ],
    ),
    ("@not_strictly_false", &["(bool) bool"]),
    // Standard functions
    (
        "size",
        &[
            "(string) int",
            "(bytes) int",
            "(list(A)) int",
            "(map(A, B)) int",
            ".(string) int",
            ".(bytes) int",
            ".(list(A)) int",
            ".(map(A, B)) int",
        ],
    ),
    ("dyn", &["(A) dyn"]),
    ("type", &["(A) type"]),
    ("bool", &["(bool) bool", "(string) bool"]),
    (
        "int",
        &[
            "(int) int",
            "(uint) int",
            "(double) int",
            "(string) int",
            "(duration) int",
            "(timestamp) int",
        ],
    ),
    ("uint", &["(uint) uint", "(int) uint", "(double) uint", "(string) uint"]),
    (
        "double",
        &["(double) double", "(int) double", "(uint) double", "(string) double"],
    ),
    (
        "string",
        &[
            "(string) string",
            "(bool) string",
            "(int) string",
            "(uint) string",
            "(double) string",
            "(bytes) string",
            "(ip) string",
            "(cidr) string",
            "(duration) string",
            "(timestamp) string",
        ],
    ),
    ("bytes", &["(bytes) bytes", "(string) bytes"]),
    ("contains", STRING_TEST),
    ("startsWith", STRING_TEST),
    ("endsWith", STRING_TEST),
    ("matches", &["(string, string) bool", ".(string, string) bool"]),
    // Times
    (
        "duration",
        &["(duration) duration", "(int) duration", "(string) duration"],
    ),
    (
        "timestamp",
        &["(timestamp) timestamp", "(int) timestamp", "(string) timestamp"],
    ),
    ("getFullYear", OF_TIMESTAMP),
    ("getMonth", OF_TIMESTAMP),
    ("getDayOfYear", OF_TIMESTAMP),
    ("getDayOfMonth", OF_TIMESTAMP),
    ("getDate", OF_TIMESTAMP),
    ("getDayOfWeek", OF_TIMESTAMP),
    ("getHours", OF_TIME),
    ("getMinutes", OF_TIME),
    ("getSeconds", OF_TIME),
    ("getMilliseconds", OF_TIME),
    // Named formats
    ("format.named", &["(string) optional(format)"]),
    ("format.dns1123Label", FORMAT),
    ("format.dns1123Subdomain", FORMAT),
    ("format.dns1035Label", FORMAT),
    ("format.qualifiedName", FORMAT),
    ("format.dns1123LabelPrefix", FORMAT),
    ("format.dns1123SubdomainPrefix", FORMAT),
    ("format.dns1035LabelPrefix", FORMAT),
    ("format.labelValue", FORMAT),
    ("format.uri", FORMAT),
    ("format.uuid", FORMAT),
    ("format.byte", FORMAT),
    ("format.date", FORMAT),
    ("format.datetime", FORMAT),
    ("validate", &[".(format, string) optional(list(string))"]),
    // Optionals
    ("optional.of", &["(A) optional(A)"]),
    ("optional.none", &["() optional(A)"]),
    ("optional.ofNonZeroValue", &["(A) optional(A)"]),
    ("hasValue", &[".(optional(A)) bool"]),
    ("value", &[".(optional(A)) A"]),
    ("orValue", &[".(optional(A), A) A"]),
    ("or", &[".(optional(A), optional(A)) optional(A)"]),
    // Strings
    ("charAt", &[".(string, int) string"]),
    ("indexOf", POSITION),
    ("lastIndexOf", POSITION),
    ("lowerAscii", ON_STRING),
    ("upperAscii", ON_STRING),
    ("trim", ON_STRING),
    (
        "replace",
        &[
            ".(string, string, string) string",
            ".(string, string, string, int) string",
        ],
    ),
    (
        "split",
        &[".(string, string) list(string)", ".(string, string, int) list(string)"],
    ),
    ("join", &[".(list(string)) string", ".(list(string), string) string"]),
    ("substring", &[".(string, int) string", ".(string, int, int) string"]),
    ("format", &[".(string, list(dyn)) string"]),
    ("strings.quote", &["(string) string"]),
    ("find", &[".(string, string) string"]),
    (
        "findAll",
        &[".(string, string) list(string)", ".(string, string, int) list(string)"],
    ),
    // Lists and sets
    ("isSorted", &[".(list(A)) bool"]),
    (
        "sum",
        &[".(list(int)) int", ".(list(uint)) uint", ".(list(double)) double"],
    ),
    ("min", EXTREME),
    ("max", EXTREME),
    ("sort", SAME_LIST),
    ("distinct", SAME_LIST),
    ("reverse", SAME_LIST),
    ("slice", &[".(list(A), int, int) list(A)"]),
    (
        "flatten",
        &[
            ".(list(list(A))) list(A)",
            ".(list(A)) list(A)",
            ".(list(dyn), int) list(dyn)",
        ],
    ),
    ("lists.range", &["(int) list(int)"]),
    ("sets.contains", SET_TEST),
    ("sets.equivalent", SET_TEST),
    ("sets.intersects", SET_TEST),
    ("includes", &[".(dyn, dyn) bool"]),
    // Quantities and versions
    ("quantity", &["(string) quantity"]),
    ("isQuantity", &["(string) bool"]),
    ("sign", &["(quantity) int"]),
    ("isInteger", &[".(quantity) bool"]),
    ("asInteger", &[".(quantity) int"]),
    ("asApproximateFloat", &[".(quantity) double"]),
    ("add", QUANTITY_MATH),
    ("sub", QUANTITY_MATH),
    ("isGreaterThan", COMPARED),
    ("isLessThan", COMPARED),
    ("compareTo", &[".(quantity, quantity) int", ".(semver, semver) int"]),
    ("semver", &["(string) semver", "(string, bool) semver"]),
    ("isSemver", &["(string) bool", "(string, bool) bool"]),
    ("major", VERSION_PART),
    ("minor", VERSION_PART),
    ("patch", VERSION_PART),
    // Addresses and URLs
    ("ip", &["(string) ip", ".(cidr) ip"]),
    ("isIP", &["(string) bool"]),
    ("ip.isCanonical", &["(string) bool"]),
    ("family", &[".(ip) int"]),
    ("isUnspecified", ADDRESS_TEST),
    ("isLoopback", ADDRESS_TEST),
    ("isLinkLocalMulticast", ADDRESS_TEST),
    ("isLinkLocalUnicast", ADDRESS_TEST),
    ("isGlobalUnicast", ADDRESS_TEST),
    ("cidr", &["(string) cidr"]),
    ("isCIDR", &["(string) bool"]),
    ("containsIP", &[".(cidr, string) bool", ".(cidr, ip) bool"]),
    ("containsCIDR", &[".(cidr, string) bool", ".(cidr, cidr) bool"]),
    ("prefixLength", &[".(cidr) int"]),
    ("masked", &[".(cidr) cidr"]),
    ("url", &["(string) url"]),
    ("isURL", &["(string) bool"]),
    ("getScheme", URL_PART),
    ("getHost", URL_PART),
    ("getHostname", URL_PART),
    ("getPort", URL_PART),
    ("getEscapedPath", URL_PART),
    ("getQuery", &[".(url) map(string, list(string))"]),
    // What `macros` expands to; nobody can write these names.
    ("@keys", &["(list(A)) list(int)", "(map(A, B)) list(A)"]),
    ("@entries", &["(list(dyn)) map(dyn, dyn)"]),
    ("@sortByAssociatedKeys", &[".(list(A), list(B)) list(A)"]),
];

static SIGNATURES: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let read = |texts: &[&str]| texts.iter().filter_map(|t| Overload::read(t)).collect();
    TABLE.iter().map(|(name, texts)| (*name, read(texts))).collect()
});

/// The signatures of a function, if there is one of that name.
pub(super) fn of(name: &str) -> Option<&'static [Overload]> {
    SIGNATURES.get(name).map(Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::{SIGNATURES, TABLE};

    /// A signature that does not read would silently not exist; a name given twice would replace the first.
    #[test]
    fn every_signature_reads_and_every_name_is_given_once() {
        for (name, texts) in TABLE {
            assert_eq!(SIGNATURES.get(name).map(Vec::len), Some(texts.len()), "{name}");
        }
        assert_eq!(TABLE.len(), SIGNATURES.len());
    }
}
