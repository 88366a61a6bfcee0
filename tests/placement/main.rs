//! Placement from outside: clusters through `convert` and `index`, questions through the public functions.

mod allowed;
mod beside;
mod bounds;
mod brute;
mod features;
mod large;
mod limit;
mod mixed;
mod power;
mod reasons;
mod refused_pods;
mod scores;
mod shares;
mod slots;
mod topology;
mod vacancy;
mod world;
