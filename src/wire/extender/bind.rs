//! The bind verb: ExtenderBindingArgs and ExtenderBindingResult.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::not_these;
use crate::convert::Text;
use crate::wire::WireError;
use crate::wire::json::write_string;

/// ExtenderBindingArgs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindArgs {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub node: String,
}

impl BindArgs {
    /// All four must be there: a bind without the pod's UID could hit another pod of the same name.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let args: Self = serde_json::from_slice(body).map_err(|e| not_these("ExtenderBindingArgs", &e))?;
        for (field, value) in [
            ("PodName", &args.name),
            ("PodNamespace", &args.namespace),
            ("PodUID", &args.uid),
            ("Node", &args.node),
        ] {
            if value.is_empty() {
                return Err(WireError(format!("ExtenderBindingArgs: {field} is missing or empty")));
            }
        }
        Ok(args)
    }
}

impl<'de> Deserialize<'de> for BindArgs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = BindArgs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with PodName, PodNamespace, PodUID and Node")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut args = BindArgs::default();
                while let Some(Text(key)) = map.next_key()? {
                    let field = match &*key.to_ascii_lowercase() {
                        "podname" => &mut args.name,
                        "podnamespace" => &mut args.namespace,
                        "poduid" => &mut args.uid,
                        "node" => &mut args.node,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    *field = map.next_value::<Option<String>>()?.unwrap_or_default();
                }
                Ok(args)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// Writes ExtenderBindingResult; None: bound.
pub fn bind_result(error: Option<&str>) -> Vec<u8> {
    let mut out = br#"{"Error":"#.to_vec();
    write_string(&mut out, error.unwrap_or_default());
    out.push(b'}');
    out
}
