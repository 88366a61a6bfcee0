//! The deterministic simulation: the real core under faults of every kind, in virtual time, one schedule a seed.
//!
//! `SCHEDULES_SEED=n cargo test --test schedules repeat -- --nocapture` plays one again with its trace; `SCHEDULES=n`
//! plays more.
//!
//! What is real: index task, binder, handlers of the verbs, pokes, the Kubernetes cluster's own calls. What is simulated:
//! the API server (`store`, `rules`), the controllers (`keepers`), kube-scheduler (`scheduler`), watches (`feeds`), the
//! network (`network`), and time (`host`, `process`).

mod acts;
mod checks;
mod feeds;
mod host;
mod keepers;
mod network;
mod process;
mod quiet;
mod replica;
mod rng;
mod rules;
mod runs;
mod scenario;
mod scheduler;
mod store;
mod tally;
mod targeted;
