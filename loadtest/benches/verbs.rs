//! Instructions of one request, from its body to its answer, and of one event, from the change to the snapshot. A gate,
//! as `placement` is, and run as that is.

#![allow(unused_qualifications, reason = "the macros of gungraun make them")]

mod limits;
mod served;

use std::hint::black_box;
use std::sync::Arc;

use gungraun::prelude::*;
use limits::within;
use served::fixture::{self, Fit};
use served::{Fed, Served};
use wattlane::snapshot::Snapshot;

/// Has seen the pod before: what is remembered between requests is.
fn filtering(fit: Fit, nodes: usize) -> Served {
    let served = Served::new(nodes, fixture::asked(fit, nodes).into());
    (0..3).for_each(|_| drop(served.filter()));
    served
}

fn prioritizing(nodes: usize) -> Served {
    let served = Served::new(nodes, fixture::asked(Fit::All, nodes).into());
    (0..3).for_each(|_| drop(served.prioritize()));
    served
}

fn admitting() -> Served {
    let served = Served::new(1, fixture::review(&fixture::unadmitted()));
    (0..3).for_each(|_| drop(served.admit()));
    served
}

#[library_benchmark]
#[bench::all_of_500(args = (Fit::All, 500), setup = filtering, config = within(261_396))]
#[bench::one_of_500(args = (Fit::One, 500), setup = filtering, config = within(359_107))]
#[bench::none_of_5000(args = (Fit::None, 5000), setup = filtering, config = within(1_993_296))]
fn filter(served: Served) -> (Vec<u8>, Served) {
    (black_box(served.filter()), served)
}

#[library_benchmark]
#[bench::all_of_500(args = (500), setup = prioritizing, config = within(407_490))]
#[bench::all_of_5000(args = (5000), setup = prioritizing, config = within(2_681_994))]
fn prioritize(served: Served) -> (Vec<u8>, Served) {
    (black_box(served.prioritize()), served)
}

#[library_benchmark]
#[bench::deployment(setup = admitting, config = within(433_464))]
fn admit(served: Served) -> (Vec<u8>, Served) {
    (black_box(served.admit()), served)
}

#[library_benchmark]
#[bench::of_500(args = (500), setup = Fed::new, config = within(19_754))]
#[bench::of_5000(args = (5000), setup = Fed::new, config = within(20_323))]
fn event(mut fed: Fed) -> (Option<Arc<Snapshot>>, Fed) {
    (black_box(fed.next()), fed)
}

library_benchmark_group!(name = requests, benchmarks = [filter, prioritize, admit, event]);

main!(library_benchmark_groups = requests);
