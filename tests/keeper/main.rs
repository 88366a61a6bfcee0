//! The certificates of `--tls-secret` in virtual time: years of rotation with outages and races, and everything that
//! can be garbled. What clients accept is asked of the verifier they use.

mod healing;
mod odd;
mod paths;
mod store;
mod world;
mod years;
