//! The server over real TLS on loopback: first in front of a fake service, then with the real decisions behind it.

mod admin;
mod callers;
mod drain;
mod fake;
mod garbage;
mod holds;
mod limits;
mod real;
mod reload;
mod support;
mod verbs;
