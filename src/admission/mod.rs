//! A pod at its creation: portable manifest in, exact claims out, everything else left alone.
//!
//! `decide` is a pure function of (snapshot, policy, pod): `pod` reads the JSON, `ask` finds the device requests (`parts` those for
//! partitions),
//! `plan` turns them into claims and `template` into ResourceClaimTemplates, `class` finds the wattage class, `amend`
//! edits a copy of the pod. `share` makes slots on
//! shared devices of them instead. The patch is the difference between the two. `Admitter` is the I/O around it: it makes the
//! templates before the answer goes out, `sweep` removes them when they are of no more use. Decoding AdmissionReviews is the business of `wire`.

mod admitter;
mod amend;
mod ask;
mod class;
mod decide;
mod gate;
mod naming;
mod offer;
mod parts;
mod plan;
mod pod;
mod refuse;
mod share;
mod shared;
mod skip;
mod sweep;
mod template;
mod wish;

pub use admitter::Admitter;
pub use decide::{Decision, Request, decide};
pub use refuse::Refused;
pub use shared::Shared;
pub use skip::Skip;
pub use sweep::{Swept, sweep, unused, unused_shares};
pub use template::{Choice, Parts, Template};

pub use crate::model::{ADMITTED, CLASS, WEBHOOK};
