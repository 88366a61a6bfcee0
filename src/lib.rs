//! wattlane: GPU placement for Kubernetes by wattage class and topology. Start at ARCHITECTURE.md.

pub mod admission;
pub mod app;
pub mod audit;
pub mod binding;
pub mod certs;
pub mod cli;
pub mod cluster;
pub mod convert;
pub mod index;
pub mod keeper;
pub mod leader;
pub mod metrics;
pub mod model;
pub mod partition;
pub mod placement;
pub mod policy;
pub mod publish;
pub mod selector;
pub mod server;
pub mod snapshot;
pub mod topology;
pub mod wire;
