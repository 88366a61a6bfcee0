//! What crosses the wire: the scheduler extender protocol and AdmissionReview. Lenient in what is read, exact in
//! what is written. Owns no decision and no I/O.

pub mod admission;
pub mod extender;
mod json;

pub use admission::{AdmissionAnswer, AdmissionRequest, Operation};
pub use extender::{BindArgs, ExtenderArgs, NodeNames, Verdicts};
pub use json::tree_bytes;

/// A body that cannot be read, in words for the caller: what is wrong and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireError(pub String);

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WireError {}
