//! What the operator decides: one YAML file, read whole or refused whole, and the classes devices get from it.
//!
//! `fields` reads a value with its place, `read` makes a `Policy` of them that cannot be wrong (or every error at once),
//! `catalogue` knows what products draw, `classify` gives each device its class, `census` counts what the rules are
//! about, `partitions` knows who serves a resource that names a profile, and `doubts` says what in them is probably not meant. Nothing here reads files, watches
//! for changes or applies a patch: `app` reloads, `admission` patches, `placement` places.

mod catalogue;
mod census;
mod classify;
mod doubts;
mod failing;
mod fields;
mod names;
mod partitions;
mod product;
mod read;
mod read_class;
mod read_namespace;
mod read_sharing;
mod sharing;
mod types;
mod watts;

pub use catalogue::{BoardPower, board_power};
pub use census::{Census, ClassReport, NamespaceReport};
pub use classify::PolicyClassifier;
pub use doubts::doubts;
pub use names::{HAMI_AMOUNTS, dns_label, dns_subdomain};
pub use partitions::{Server, named_by, spelled};
pub use product::class_name;
pub use read::PolicyError;
pub use sharing::{SHARING_DRIVER, Sharing, Strategy};
pub use types::{Class, Defaults, NamespaceRule, NodeOrder, Placement, PodPatch, Policy, PowerDomain};
