//! CEL device selectors: compile once, evaluate, with the environment Kubernetes gives them.
//! The only user of the CEL crate.

use std::sync::Arc;

use crate::model::{Device, Labels, Name};

/// Why a selector gave no answer, in words: it does not compile, or failed on this device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorError(pub Name);

/// One compiled expression; compile errors are kept, and come back from `matches`.
#[derive(Debug)]
pub struct Selector {
    /// Unique in the process and never reused: key of result caches.
    pub id: u64,
    pub text: Name,
}

impl Selector {
    /// `node_labels` backs the variable `node.labels`, which only policy expressions may use.
    pub fn matches(
        &self,
        _driver: &Name,
        _device: &Device,
        _node_labels: Option<&Labels>,
    ) -> Result<bool, SelectorError> {
        Err(SelectorError("not built yet".into()))
    }

    pub fn compile_error(&self) -> Option<&SelectorError> {
        None
    }
}

/// Compiled selectors by text. Reading does not lock; the number kept is bounded.
#[derive(Debug, Default)]
pub struct Selectors {}

impl Selectors {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn selector(&self, text: &Name) -> Arc<Selector> {
        Arc::new(Selector {
            id: 0,
            text: text.clone(),
        })
    }
}
