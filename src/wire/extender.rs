//! The scheduler extender protocol (k8s.io/kube-scheduler/extender/v1): arguments in, answers out.
//!
//! Go marshals these types without JSON tags and reads them without regard to case; other callers write lower case.
//! So keys are read in any case, and answers are written with Go's names, field for field. Answers are written
//! straight into bytes: at thousands of nodes a tree of maps costs more than the placement itself.

mod answers;
mod args;
mod bind;
mod names;
#[cfg(test)]
mod tests;
mod verdicts;

pub use answers::{filter_result, prioritize_result};
pub use args::ExtenderArgs;
pub use bind::{BindArgs, bind_result};
pub use names::NodeNames;
pub use verdicts::Verdicts;

use super::WireError;

fn not_these(what: &str, error: &serde_json::Error) -> WireError {
    WireError(format!("not {what}: {error}"))
}
