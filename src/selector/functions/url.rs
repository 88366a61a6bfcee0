//! URLs (k8s.io/apiserver/pkg/cel/library/urls.go), cut apart as Go's net/url does: absolute ones, or paths.

use std::collections::{BTreeMap, HashMap};

use cel::common::types::{CelList, CelMap, CelMapKey, CelString};
use cel::common::value::Val;

use super::super::budget::charge_bytes;
use super::{Arg, Failed, Native, Out, Plain, native};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Url {
    scheme: String,
    /// With the port.
    host: String,
    path: String,
    query: String,
    /// Only so that two URLs compare as a whole.
    rest: (String, String),
}

impl Url {
    fn read(text: &str) -> Option<Self> {
        if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return None;
        }
        let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
        let (scheme, after) = match text.split_once(':') {
            Some((scheme, after)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), after),
            _ => (String::new(), text),
        };
        let (before_query, query) = after.split_once('?').unwrap_or((after, ""));
        if !before_query.starts_with('/') {
            // `mailto:x` has no path; without a scheme it is no absolute URL at all.
            return (!scheme.is_empty()).then(|| Self {
                scheme,
                host: String::new(),
                path: String::new(),
                query: query.to_owned(),
                rest: (before_query.to_owned(), fragment.to_owned()),
            });
        }
        let (authority, path) = match before_query.strip_prefix("//") {
            Some(rest) if !scheme.is_empty() => {
                let end = rest.find('/').unwrap_or(rest.len());
                rest.split_at(end)
            }
            _ => ("", before_query),
        };
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        if !valid_host(host) || !valid_escapes(path) {
            return None;
        }
        Some(Self {
            scheme,
            host: host.to_owned(),
            path: escaped_path(path),
            query: query.to_owned(),
            rest: (user.to_owned(), fragment.to_owned()),
        })
    }

    fn hostname(&self) -> &str {
        match self.host.strip_prefix('[').and_then(|h| h.split_once(']')) {
            Some((inner, _)) => inner,
            None => self.host.split_once(':').map_or(&self.host, |(name, _)| name),
        }
    }

    fn port(&self) -> &str {
        let behind = self.host.rsplit_once(']').map_or(&*self.host, |(_, behind)| behind);
        behind.rsplit_once(':').map_or("", |(_, port)| port)
    }

    fn query(&self) -> CelMap<'static> {
        let mut values: BTreeMap<String, Vec<Box<dyn Val>>> = BTreeMap::new();
        for pair in self.query.split('&').filter(|p| !p.is_empty() && !p.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Some(key), Some(value)) = (unescaped(key), unescaped(value)) {
                values.entry(key).or_default().push(Box::new(CelString::from(value)));
            }
        }
        let entries = values.into_iter().map(|(key, list)| {
            let list: Box<dyn Val> = Box::new(CelList::from(list));
            (CelMapKey::from(key), list)
        });
        CelMap::from(entries.collect::<HashMap<_, _>>())
    }
}

/// What `url.ParseRequestURI` accepts.
pub(super) fn is_request_uri(text: &str) -> bool {
    Url::read(text).is_some()
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

fn valid_host(host: &str) -> bool {
    let port = match host.strip_prefix('[') {
        Some(literal) => match literal.split_once(']') {
            Some((_, behind)) => behind,
            None => return false,
        },
        None => {
            let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
            if name
                .bytes()
                .any(|b| matches!(b, b' ' | b'<' | b'>' | b'"' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}'))
            {
                return false;
            }
            port
        }
    };
    port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()))
}

fn valid_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|part| {
        let digits = part.as_bytes().get(..2);
        digits.is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit))
    })
}

/// As written where that is a valid encoding; what must not stand in a path is escaped.
fn escaped_path(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for b in path.bytes() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => escaped.push(char::from(b)),
            b'-' | b'_' | b'.' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
            | b':' | b'@' | b'[' | b']' | b'/' | b'%' => escaped.push(char::from(b)),
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = vec![];
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
                rest = tail.get(2..)?;
                u8::from_str_radix(digits, 16).ok()?
            }
            other => *other,
        });
    }
    String::from_utf8(bytes).ok()
}

pub(super) const NATIVES: &[Native] = &[
    (
        "url",
        false,
        1,
        native!("url", |args| {
            let [Arg::String(s)] = args else {
                return Err(Failed::Overload);
            };
            let refused = || Failed::Message(format!("URL parse error during conversion from string: {s:?}"));
            Url::read(s).map(Out::Url).ok_or_else(refused)
        }),
    ),
    (
        "isURL",
        false,
        1,
        native!("isURL", |args| match args {
            [Arg::String(s)] => Ok(Out::Bool(Url::read(s).is_some())),
            _ => Err(Failed::Overload),
        }),
    ),
    ("getScheme", true, 1, native!("getScheme", |a| part(a, |u| &u.scheme))),
    ("getHost", true, 1, native!("getHost", |a| part(a, |u| &u.host))),
    (
        "getHostname",
        true,
        1,
        native!("getHostname", |a| part(a, Url::hostname)),
    ),
    ("getPort", true, 1, native!("getPort", |a| part(a, Url::port))),
    (
        "getEscapedPath",
        true,
        1,
        native!("getEscapedPath", |a| part(a, |u| &u.path)),
    ),
    (
        "getQuery",
        true,
        1,
        native!("getQuery", |args| match args {
            [Arg::Url(u)] => {
                charge_bytes(u.query.len())?;
                Ok(Out::Value(Box::new(u.query())))
            }
            _ => Err(Failed::Overload),
        }),
    ),
];

fn part(args: &[Arg<'_>], of: fn(&Url) -> &str) -> Plain {
    match args {
        [Arg::Url(u)] => Ok(Out::String(of(u).to_owned())),
        _ => Err(Failed::Overload),
    }
}
