//! CEL device selectors: compile once, evaluate, with the environment Kubernetes gives them
//! (k8s.io/dynamic-resource-allocation/cel and k8s.io/apiserver/pkg/cel). The only user of the CEL crate.
//!
//! The crate parses and evaluates. Ours is what Kubernetes adds: the variables (`device`), the types and
//! functions (`kinds`, `functions`), the checks at compile time (`prepare`, `signatures`, `types`), and the
//! bounds on what an expression may cost (`scan`, `budget`).

mod budget;
mod device;
mod errors;
mod functions;
mod kinds;
mod macros;
mod prepare;
mod price;
mod registry;
mod rules;
mod scan;
mod signatures;
mod types;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cel::common::types::CelBool;
use cel::{Context, Value};

use crate::model::{Device, Labels, Name};
use device::Variables;
use prepare::Program;
pub use registry::Selectors;

/// Why a selector gave no answer, in words: it does not compile, or failed on this device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorError(pub Name);

impl std::fmt::Display for SelectorError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SelectorError {}

/// One compiled expression; compile errors are kept, and come back from `matches`.
#[derive(Debug)]
pub struct Selector {
    /// Unique in the process and never reused: key of result caches.
    pub id: u64,
    text: Name,
    program: Result<Program, SelectorError>,
}

impl Selector {
    fn compile(id: u64, text: &Name) -> Self {
        // The crate's parser is a good one, but its input is anybody's: a panic in it is an error of the text.
        let compiled = catch_unwind(|| prepare::prepare(text))
            .unwrap_or_else(|_| Err("compilation failed: internal error of the CEL parser".to_owned()));
        Self {
            id,
            text: text.clone(),
            program: compiled.map_err(|e| SelectorError(e.into())),
        }
    }

    /// Whether the device is one the expression wants. `node_labels` backs the variable `node.labels`,
    /// which only policy expressions may use.
    ///
    /// An error is for the author of the expression; Kubernetes gives up the allocation on it.
    pub fn matches(&self, driver: &Name, device: &Device, node_labels: Option<&Labels>) -> Result<bool, SelectorError> {
        let program = self.program.as_ref().map_err(Clone::clone)?;
        if program.reads_node && node_labels.is_none() {
            let message = format!("compilation failed: {}", prepare::undeclared("node"));
            return Err(SelectorError(message.into()));
        }
        // Last resort, as above: nothing of ours is changed by an evaluation, so there is nothing to be left
        // half done by a panic.
        let run = AssertUnwindSafe(|| evaluate(program, driver, device, node_labels));
        catch_unwind(run)
            .unwrap_or_else(|_| Err("internal error of the CEL evaluator".to_owned()))
            .map_err(|e| SelectorError(e.into()))
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Why the text is no expression that could ever be evaluated.
    pub fn compile_error(&self) -> Option<&SelectorError> {
        self.program.as_ref().err()
    }
}

fn evaluate(program: &Program, driver: &str, device: &Device, labels: Option<&Labels>) -> Result<bool, String> {
    budget::start();
    let variables = Variables::new(driver, device, labels, &program.patterns);
    let mut context = Context::with_env(Arc::clone(&functions::ENVIRONMENT));
    context.set_variable_resolver(&variables);
    let result = Value::resolve_val(&program.root, &context);
    if budget::exhausted() {
        return Err(budget::EXHAUSTED.to_owned());
    }
    let value = result.map_err(|e| errors::words(&e))?;
    match value.downcast_ref::<CelBool>() {
        Some(answer) => Ok(*answer.inner()),
        None => {
            let given = value.get_type().name();
            Err(format!("CEL result of type {given} could not be converted to bool"))
        }
    }
}
