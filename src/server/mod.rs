//! The HTTP service: accept, TLS and its reload, routes, limits, drain; decode, let decide, encode.
//!
//! `accept` owns connections, `seats` how many there are, `tls` certificates, `client` who is at the other end, `paths` where admission is asked, `route` what happens to one request, `verbs` the meaning of each
//! path, `handlers` the real decisions. What decides is behind the trait `Service`, so that everything in front of
//! it is tested without a cluster.

mod accept;
pub mod admin;
mod apart;
mod body;
mod client;
mod complaints;
mod deadline;
mod desk;
pub mod handlers;
mod holds;
mod limits;
mod paths;
mod route;
mod seats;
mod service;
mod stall;
mod tls;
mod turns;
mod verbs;

pub use accept::Server;
pub use apart::come_last;
pub use limits::Limits;
pub use paths::{ADMISSION, Paths, ending};
pub use service::{BindFailure, Failure, Service};
pub use tls::{Material, Reloaded, Tls, TlsOptions};
pub use turns::Turns;
