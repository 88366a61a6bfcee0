//! The server over real TLS on loopback: first in front of a fake service, then with the real decisions behind it.

mod abuse;
mod admin;
mod callers;
mod drain;
mod fairness;
mod fake;
mod garbage;
mod holds;
mod limits;
mod paths;
mod real;
mod reload;
mod rotation;
#[path = "../keeper/store.rs"]
#[expect(dead_code, reason = "tests/keeper is what meddles with it")]
mod store;
mod support;
mod verbs;
