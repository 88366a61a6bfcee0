//! Which replica binds: an election over a Lease, and the fence around the writes of the one that was elected.
//!
//! `election` is the rules, without clock and network; `task` drives them; `standing` is what others may know, and
//! judges whether a term is over; `fence` holds writes to their term; `label` shows the Service where the leader is.

mod election;
#[cfg(test)]
mod election_tests;
mod fence;
mod label;
mod standing;
mod task;
#[cfg(test)]
mod task_tests;

pub use election::Timing;
pub use fence::Fence;
#[cfg(test)]
pub(crate) use standing::Lever;
pub use standing::{Leadership, NotLeading, Stats, Term};
pub use task::{Settings, elect};
