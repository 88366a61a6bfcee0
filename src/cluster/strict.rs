//! What Kubernetes would find in a manifest that somebody wrote, and nothing here looks for: fields it does not know, and values of the
//! wrong kind. Words only: a newer cluster may know the field.

use std::cell::{Cell, RefCell};

use k8s_openapi::api::{core, resource};
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde_json::{Error, Value};

use crate::index::Kind;
use crate::model::alike;

/// Of the types that `k8s_openapi` was built with.
const VERSION: &str = "Kubernetes 1.36";

/// A line for each doubtful place of the object, in the order of its fields. Nothing is said of older versions, and of
/// kinds that programs write.
pub fn doubts(kind: Kind, object: &Value) -> Vec<String> {
    let older = !kind.group().is_empty() && object["apiVersion"] != "resource.k8s.io/v1";
    match kind {
        _ if older => vec![],
        Kind::Pod => of::<core::v1::Pod>(object),
        Kind::Namespace => of::<core::v1::Namespace>(object),
        Kind::Claim => of::<resource::v1::ResourceClaim>(object),
        Kind::Template => of::<resource::v1::ResourceClaimTemplate>(object),
        Kind::Class => of::<resource::v1::DeviceClass>(object),
        _ => vec![],
    }
}

fn of<T: DeserializeOwned>(object: &Value) -> Vec<String> {
    let found = Found::default();
    let at = At {
        value: object,
        path: String::new(),
        found: &found,
    };
    // What is wrong is in `found`, with its place.
    let _ = T::deserialize(at);
    found.lines.into_inner()
}

#[derive(Default)]
struct Found {
    lines: RefCell<Vec<String>>,
    /// A value of the wrong kind ends the look; whoever holds it hears of it as well.
    wrong: Cell<bool>,
}

impl Found {
    fn add(&self, path: &str, what: &str) {
        self.lines.borrow_mut().push(format!("{path}: {what}"));
    }

    fn end(&self, path: &str, error: &Error) {
        if !self.wrong.replace(true) {
            self.add(path, &error.to_string());
        }
    }
}

/// A value that remembers where it is. What a type asks for by name (`deserialize_struct`) is what it knows.
struct At<'de> {
    value: &'de Value,
    path: String,
    found: &'de Found,
}

impl<'de> At<'de> {
    fn below(&self, value: &'de Value, path: String) -> Self {
        Self { value, path, ..*self }
    }

    fn field(&self, name: &str) -> String {
        let dot = if self.path.is_empty() { "" } else { "." };
        format!("{}{dot}{name}", self.path)
    }
}

impl<'de> IntoDeserializer<'de, Error> for At<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for At<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let read = match self.value {
            Value::Object(fields) => {
                let fields = fields
                    .iter()
                    .map(|(name, value)| (name.as_str(), self.below(value, self.field(name))));
                visitor.visit_map(MapDeserializer::new(fields))
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                let items = items.map(|(i, item)| self.below(item, format!("{}[{i}]", self.path)));
                visitor.visit_seq(SeqDeserializer::new(items))
            }
            value => value.deserialize_any(visitor),
        };
        read.inspect_err(|e| self.found.end(&self.path, e))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let fields = self.value.as_object().into_iter().flat_map(|fields| fields.keys());
        for name in fields.filter(|name| !known.contains(&name.as_str())) {
            let meant = alike::hint(known.iter().copied(), name).unwrap_or_default();
            self.found
                .add(&self.field(name), &format!("{VERSION} has no such field{meant}"));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            // `nvidia.com/gpu: 2`, which the type wants as text.
            Value::Number(number) if name == "Quantity" => {
                visitor.visit_newtype_struct(number.to_string().into_deserializer())
            }
            _ => visitor.visit_newtype_struct(self),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Kind;

    fn doubts(pod: &Value) -> Vec<String> {
        super::doubts(Kind::Pod, pod)
    }

    #[test]
    fn fields_that_kubernetes_does_not_know_are_named_with_their_place() {
        let container = |more| json!({"spec": {"containers": [{"name": "a"}, more]}});
        let of_resources = "spec.containers[1].resources";
        for (pod, said) in [
            (
                json!({"spec": {"nodeSelektor": {}, "containers": []}}),
                "spec.nodeSelektor: Kubernetes 1.36 has no such field; did you mean nodeSelector?",
            ),
            (
                json!({"spec": {"container": []}}),
                "spec.container: Kubernetes 1.36 has no such field; did you mean containers?",
            ),
            (
                json!({"sepc": {}}),
                "sepc: Kubernetes 1.36 has no such field; did you mean spec?",
            ),
            (
                json!({"metadata": {"lables": {}}}),
                "metadata.lables: Kubernetes 1.36 has no such field; did you mean labels?",
            ),
            (
                container(json!({"resorces": {}})),
                "spec.containers[1].resorces: Kubernetes 1.36 has no such field; did you mean resources?",
            ),
            (
                container(json!({"resources": {"limit": {"nvidia.com/gpu": 2}}})),
                &format!("{of_resources}.limit: Kubernetes 1.36 has no such field; did you mean limits?"),
            ),
            (
                container(json!({"zzz": 1})),
                "spec.containers[1].zzz: Kubernetes 1.36 has no such field",
            ),
        ] {
            assert_eq!(doubts(&pod), [said], "{pod}");
        }
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_named_and_hides_nothing_before_it() {
        let pod = json!({"spec": {"nodeSelektor": {}, "containers": [{"name": "a", "image": 5}]}});
        let found = doubts(&pod);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[1].starts_with("spec.containers[0].image: invalid type: integer `5`"),
            "{found:?}"
        );
        let lists = json!({"spec": {"containers": {"name": "a"}}});
        assert!(
            doubts(&lists)[0].starts_with("spec.containers: invalid type: map"),
            "{:?}",
            doubts(&lists)
        );
    }

    #[test]
    fn what_kubernetes_takes_is_taken() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "creationTimestamp": null, "annotations": {"a": "b"}, "managedFields": [{"fieldsV1": {"f:a": {".": {}}}}]},
            "spec": {"volumes": null, "containers": [{
                "name": "a", "resources": {"limits": {"nvidia.com/gpu": 2, "cpu": "500m", "memory": 1.5}},
                "livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"httpGet": {"port": "http"}},
            }]},
            "status": {"startTime": "2026-01-01T00:00:00Z"},
        });
        assert_eq!(doubts(&pod), [""; 0]);
    }

    #[test]
    fn claims_templates_and_classes_are_read_as_strictly_as_pods() {
        let spec = json!({"devices": {"requests": [{"name": "r", "exactly": {"cout": 2}}], "constrants": [], "config": [
            {"opaque": {"driver": "d", "parameters": {"any": {"thing": 1}}}}]}});
        let object = |spec| json!({"apiVersion": "resource.k8s.io/v1", "spec": spec});
        for (kind, at, object) in [
            (Kind::Claim, "spec", object(spec.clone())),
            (Kind::Template, "spec.spec", object(json!({"spec": spec.clone()}))),
        ] {
            let no_such = |path: &str, meant: &str| {
                format!("{at}.devices.{path}: Kubernetes 1.36 has no such field; did you mean {meant}?")
            };
            let said = [
                no_such("constrants", "constraints"),
                no_such("requests[0].exactly.cout", "count"),
            ];
            assert_eq!(super::doubts(kind, &object), said);
            let older = json!({"apiVersion": "resource.k8s.io/v1beta1", "spec": object["spec"]});
            assert!(super::doubts(kind, &older).is_empty());
        }
        let class = object(json!({"selector": []}));
        assert_eq!(super::doubts(Kind::Class, &class).len(), 1);
        let namespace = json!({"metadata": {"name": "a", "lables": {}}});
        assert_eq!(super::doubts(Kind::Namespace, &namespace).len(), 1);
    }
}
