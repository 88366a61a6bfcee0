//! A watched object as JSON text, with just enough metadata read for kube-runtime. Reading one never fails, whatever
//! is in it: a list is lost as a whole if one of its objects does not decode, and an event with all that it said. So each
//! is taken as text first and read by itself (`lenient`); decoding is left to `convert`, one object at a time.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::lenient;
use crate::convert::{self, ConvertError};
use crate::index::{Key, Kind, Object};
use crate::model::NamespacedName;

#[derive(Clone, Debug)]
pub(super) struct Raw {
    meta: ObjectMeta,
    text: Box<RawValue>,
}

impl Raw {
    pub(super) fn key(&self) -> Key {
        let text = |t: &Option<String>| t.as_deref().unwrap_or("").to_owned();
        NamespacedName::new(text(&self.meta.namespace), text(&self.meta.name))
    }

    /// The object, known to be of that kind. Pods come by the ten thousand, and nodes say that they are well all the time: most
    /// are read without a tree in between.
    ///
    /// # Errors
    /// As of `convert::of_kind`.
    pub(super) fn object(&self, kind: Kind) -> Result<Object, ConvertError> {
        match kind {
            Kind::Pod => convert::pod_of_text(self.text.get()).map(Object::Pod),
            Kind::Node => convert::node_of_text(self.text.get()).map(Object::Node),
            _ => None,
        }
        .map_or_else(|| convert::of_kind(kind, &doc(&self.text)), Ok)
    }
}

/// The whole object; null: it is none. Items of a list have no apiVersion and kind of their own.
fn doc(text: &RawValue) -> Value {
    lenient::from_str(text.get()).map_or(Value::Null, |Document(doc)| doc)
}

/// What kube-runtime reads of an object, where it is as it should be.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    name: Option<&'a str>,
    namespace: Option<&'a str>,
    uid: Option<&'a str>,
    resource_version: Option<&'a str>,
}

fn meta(text: &RawValue) -> ObjectMeta {
    let of = |[name, namespace, uid, resource_version]: [Option<&str>; 4]| ObjectMeta {
        name: name.map(str::to_owned),
        namespace: namespace.map(str::to_owned),
        uid: uid.map(str::to_owned),
        resource_version: resource_version.map(str::to_owned),
        ..ObjectMeta::default()
    };
    match serde_json::from_str(text.get()) {
        Ok(Head { metadata: m }) => of([m.name, m.namespace, m.uid, m.resource_version]),
        Err(_) => {
            let doc = doc(text);
            of(["name", "namespace", "uid", "resourceVersion"].map(|key| doc.get("metadata")?.get(key)?.as_str()))
        }
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self {
            meta: meta(&text),
            text,
        })
    }
}

struct Document(Value);

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Fields { metadata: false }.deserialize(deserializer).map(Self)
    }
}

/// Reads the members of an object, or of its metadata. managedFields, often half of an object, is skipped in the
/// parser: it never becomes memory.
#[derive(Clone, Copy)]
struct Fields {
    metadata: bool,
}

impl<'de> DeserializeSeed<'de> for Fields {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self).map(Value::Object)
    }
}

impl<'de> Visitor<'de> for Fields {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if self.metadata && key == "managedFields" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = if !self.metadata && key == "metadata" {
                map.next_value_seed(Self { metadata: true })?
            } else {
                map.next_value()?
            };
            out.insert(key, value);
        }
        Ok(out)
    }
}

/// What kube needs to build URLs: all of it comes from the `ApiResource`.
impl Resource for Raw {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(dt: &ApiResource) -> Cow<'_, str> {
        dt.kind.as_str().into()
    }

    fn group(dt: &ApiResource) -> Cow<'_, str> {
        dt.group.as_str().into()
    }

    fn version(dt: &ApiResource) -> Cow<'_, str> {
        dt.version.as_str().into()
    }

    fn api_version(dt: &ApiResource) -> Cow<'_, str> {
        dt.api_version.as_str().into()
    }

    fn plural(dt: &ApiResource) -> Cow<'_, str> {
        dt.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keeps_everything_but_managed_fields() {
        let raw: Raw = serde_json::from_value(json!({
            "metadata": {
                "name": "n", "namespace": "ns", "resourceVersion": "5", "creationTimestamp": "no time at all",
                "managedFields": [{"manager": "x"}],
            },
            "spec": {"managedFields": "of a spec stay"},
        }))
        .expect("any object will do");
        assert_eq!(raw.key(), NamespacedName::new("ns", "n"));
        assert_eq!(raw.meta().resource_version.as_deref(), Some("5"));
        assert_eq!(
            doc(&raw.text),
            json!({
                "metadata": {
                    "name": "n", "namespace": "ns", "resourceVersion": "5", "creationTimestamp": "no time at all",
                },
                "spec": {"managedFields": "of a spec stay"},
            })
        );
    }

    #[test]
    fn one_that_nobody_can_read_costs_the_others_of_its_list_nothing() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
        let text = format!(
            r#"{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"9"}},"items":[
                {{"metadata":{{"name":"deep","uid":"u"}},"spec":{deep},"status":{{"read":true}}}},
                {{"metadata":{{"name":"half"}},"spec":"\ud800"}}, 7,
                {{"metadata":{{"name":"well"}}}}]}}"#
        );
        let list: kube::core::ObjectList<Raw> = serde_json::from_str(&text).expect("the list is read");
        let names: Vec<_> = list.items.iter().map(|raw| raw.key().name.to_string()).collect();
        assert_eq!(names, ["deep", "half", "", "well"]);
        let first = doc(&list.items.first().expect("four").text);
        assert_eq!(
            (&first["metadata"]["uid"], &first["status"]["read"]),
            (&json!("u"), &json!(true))
        );

        let line = format!(r#"{{"type":"MODIFIED","object":{{"metadata":{{"name":"deep"}},"spec":{deep}}}}}"#);
        let event: kube::core::WatchEvent<Raw> = serde_json::from_str(&line).expect("the event is read");
        assert!(matches!(event, kube::core::WatchEvent::Modified(raw) if &*raw.key().name == "deep"));
    }
}
