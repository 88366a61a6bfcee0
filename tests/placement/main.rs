//! Placement from outside: clusters through `convert` and `index`, questions through the public functions.

mod mixed;
mod reasons;
mod world;
