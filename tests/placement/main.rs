//! Placement from outside: clusters through `convert` and `index`, questions through the public functions.

mod large;
mod mixed;
mod reasons;
mod world;
