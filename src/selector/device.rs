//! The variables of an expression, `device` and `node`, as values of the crate that read the model only
//! where the expression looks: nothing is copied into maps first.

use std::sync::OnceLock;

use cel::ExecutionError;
use cel::common::traits::{Container, Indexer, Iterable, Iterator as Items, Sizer};
use cel::common::types::{CelBool, CelInt, CelList, CelMap, CelString, MAP_TYPE, Type};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;

use super::functions::amounts::Amount;
use super::kinds::{PatternVal, QuantityVal, SemverVal};
use crate::model::{AttributeValue, Device, Labels, Name};

/// Everything an expression can name.
pub(super) struct Variables<'v> {
    device: MapVal<'v>,
    node: Option<MapVal<'v>>,
    patterns: &'v [PatternVal],
}

/// Name of the variable that holds the pattern with that number. Nobody can write it.
pub(super) fn pattern_name(number: usize) -> String {
    format!("@pattern{number}")
}

impl<'v> Variables<'v> {
    pub(super) fn new(
        driver: &'v str,
        device: &'v Device,
        labels: Option<&'v Labels>,
        patterns: &'v [PatternVal],
    ) -> Self {
        Self {
            device: MapVal::new(Entries::Device(driver, device)),
            node: labels.map(|labels| MapVal::new(Entries::Node(labels))),
            patterns,
        }
    }
}

impl VariableResolver for Variables<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        match variable {
            "device" => Some(CowVal::Borrowed(&self.device)),
            "node" => self.node.as_ref().map(|n| CowVal::Borrowed(n as &dyn Val)),
            other => {
                let number: usize = other.strip_prefix("@pattern")?.parse().ok()?;
                self.patterns.get(number).map(|p| CowVal::Borrowed(p as &dyn Val))
            }
        }
    }
}

/// What a map of the model is a map of.
#[derive(Clone, Copy, Debug)]
enum Entries<'v> {
    Device(&'v str, &'v Device),
    Attributes(&'v Device),
    Capacities(&'v Device),
    /// Of one domain. An unknown domain is an empty map, as in Kubernetes.
    AttributesOf(&'v Device, Option<&'v str>),
    CapacitiesOf(&'v Device, Option<&'v str>),
    Node(&'v Labels),
    Labels(&'v Labels),
}

#[derive(Debug)]
pub(super) struct MapVal<'v> {
    of: Entries<'v>,
    /// Only for expressions that walk the map.
    keys: OnceLock<Vec<CelString<'v>>>,
}

type Found<'v> = Result<Option<Box<dyn Val + 'v>>, ExecutionError>;

impl<'v> MapVal<'v> {
    fn new(of: Entries<'v>) -> Self {
        let keys = OnceLock::new();
        Self { of, keys }
    }

    fn find(&self, key: &str) -> Found<'v> {
        let map = |of| Ok(Some(Box::new(Self::new(of)) as Box<dyn Val + 'v>));
        match self.of {
            Entries::Device(driver, device) => match key {
                "driver" => Ok(Some(text(driver))),
                "attributes" => map(Entries::Attributes(device)),
                "capacity" => map(Entries::Capacities(device)),
                "allowMultipleAllocations" => Ok(Some(Box::new(CelBool::from(device.allow_multiple)))),
                _ => Ok(None),
            },
            Entries::Attributes(device) => {
                let known = device.attributes.iter().find(|(n, _)| *n.domain == *key);
                map(Entries::AttributesOf(device, known.map(|(n, _)| &*n.domain)))
            }
            Entries::Capacities(device) => {
                let known = device.capacity.iter().find(|(n, _)| *n.domain == *key);
                map(Entries::CapacitiesOf(device, known.map(|(n, _)| &*n.domain)))
            }
            Entries::AttributesOf(device, domain) => {
                let value = domain.and_then(|domain| device.attribute(domain, key));
                value.map(attribute).transpose()
            }
            Entries::CapacitiesOf(device, domain) => {
                let found = domain.and_then(|domain| device.capacity(domain, key));
                Ok(found.map(|c| Box::new(QuantityVal(Amount::of_device(c.value))) as Box<dyn Val + 'v>))
            }
            Entries::Node(labels) if key == "labels" => map(Entries::Labels(labels)),
            Entries::Node(_) => Ok(None),
            Entries::Labels(labels) => Ok(labels.get(key).map(|value| text(value))),
        }
    }

    /// Sorted, each once.
    fn keys(&self) -> &[CelString<'v>] {
        self.keys.get_or_init(|| {
            let mut keys: Vec<&'v str> = match self.of {
                Entries::Device(..) => vec!["driver", "attributes", "capacity", "allowMultipleAllocations"],
                Entries::Attributes(d) => d.attributes.iter().map(|(n, _)| &*n.domain).collect(),
                Entries::Capacities(d) => d.capacity.iter().map(|(n, _)| &*n.domain).collect(),
                Entries::AttributesOf(d, domain) => {
                    let names = d.attributes.iter().map(|(n, _)| n);
                    names.filter(|n| Some(&*n.domain) == domain).map(|n| &*n.name).collect()
                }
                Entries::CapacitiesOf(d, domain) => {
                    let names = d.capacity.iter().map(|(n, _)| n);
                    names.filter(|n| Some(&*n.domain) == domain).map(|n| &*n.name).collect()
                }
                Entries::Node(_) => vec!["labels"],
                Entries::Labels(labels) => labels.keys().map(|k| &**k).collect(),
            };
            keys.sort_unstable();
            keys.dedup();
            keys.into_iter().map(CelString::from).collect()
        })
    }
}

fn text<'v>(text: &'v str) -> Box<dyn Val + 'v> {
    Box::new(CelString::from(text))
}

/// An attribute as a CEL value; a version that is none is an error of the device.
fn attribute<'v>(value: &'v AttributeValue) -> Result<Box<dyn Val + 'v>, ExecutionError> {
    let version = |text: &'v Name| match semver::Version::parse(text) {
        Ok(version) => Ok(Box::new(SemverVal(version)) as Box<dyn Val + 'v>),
        Err(e) => Err(ExecutionError::function_error(
            "attribute",
            format!("parse semantic version {text:?}: {e}"),
        )),
    };
    let list = |values: Vec<Box<dyn Val + 'v>>| Ok(Box::new(CelList::from(values)) as Box<dyn Val + 'v>);
    match value {
        AttributeValue::Int(i) => Ok(Box::new(CelInt::from(*i))),
        AttributeValue::Bool(b) => Ok(Box::new(CelBool::from(*b))),
        AttributeValue::String(s) => Ok(text(s)),
        AttributeValue::Version(v) => version(v),
        AttributeValue::Ints(all) => list(all.iter().map(|i| Box::new(CelInt::from(*i)) as _).collect()),
        AttributeValue::Bools(all) => list(all.iter().map(|b| Box::new(CelBool::from(*b)) as _).collect()),
        AttributeValue::Strings(all) => list(all.iter().map(|s| text(s)).collect()),
        AttributeValue::Versions(all) => list(all.iter().map(version).collect::<Result<_, _>>()?),
    }
}

impl<'v> Val for MapVal<'v> {
    fn get_type(&self) -> &Type {
        Self::cel_type()
    }

    fn cel_type() -> &'static Type {
        static MAP: Type = MAP_TYPE;
        &MAP
    }

    fn as_indexer<'b, 'w>(&'b self) -> Option<&'b (dyn Indexer + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }

    fn as_iterable<'b, 'w>(&'b self) -> Option<&'b (dyn Iterable + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    /// Only a map literal is ever compared with: `device.attributes["x"] == {}`.
    fn equals(&self, other: &dyn Val) -> bool {
        let Some(map) = other.downcast_ref::<CelMap>() else {
            return false;
        };
        let same = |key: &CelString<'v>| {
            let (Ok(Some(ours)), Ok(theirs)) = (self.find(key.inner()), map.get(key)) else {
                return false;
            };
            ours.equals(theirs.as_ref())
        };
        self.keys().len() == map.inner().len() && self.keys().iter().all(same)
    }

    fn clone_as_boxed<'w>(&self) -> Box<dyn Val + 'w>
    where
        Self: 'w,
    {
        Box::new(Self::new(self.of))
    }
}

impl<'v> Indexer for MapVal<'v> {
    fn get<'b, 'w>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        let Some(name) = key.downcast_ref::<CelString>() else {
            return Err(ExecutionError::no_such_key(key.get_type().name()));
        };
        match self.find(name.inner())? {
            Some(value) => Ok(CowVal::Owned(value)),
            None => Err(ExecutionError::no_such_key(name.inner())),
        }
    }

    fn steal<'w>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

impl Container for MapVal<'_> {
    /// Not by way of `find`: an unknown domain is not in the map, though it can be looked up.
    fn contains(&self, key: &dyn Val) -> Result<bool, ExecutionError> {
        let name = key.downcast_ref::<CelString>();
        Ok(name.is_some_and(|name| self.keys().iter().any(|k| k.inner() == name.inner())))
    }
}

impl Iterable for MapVal<'_> {
    fn iter<'b, 'w>(&'b self) -> Box<dyn Items<'b, 'w> + 'b>
    where
        Self: 'w,
    {
        Box::new(Keys(self.keys().iter()))
    }
}

struct Keys<'b, 'v>(std::slice::Iter<'b, CelString<'v>>);

impl<'b, 'v: 'w, 'w> Items<'b, 'w> for Keys<'b, 'v> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'w)> {
        self.0.next().map(|key| key as &'b (dyn Val + 'w))
    }
}

impl Sizer for MapVal<'_> {
    fn size(&self) -> CelInt {
        CelInt::from(i64::try_from(self.keys().len()).unwrap_or(i64::MAX))
    }
}
