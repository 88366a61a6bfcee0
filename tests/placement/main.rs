//! Placement from outside: clusters through `convert` and `index`, questions through the public functions.

mod brute;
mod mixed;
mod reasons;
mod world;
