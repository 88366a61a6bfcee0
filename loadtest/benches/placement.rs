//! Instructions of one decision on one node, for the shapes of issue 3. A gate: `.ci/run` fails where one takes more
//! than 5 % over the number written here. A change that makes one cheaper writes the new number down.
//!
//! ```text
//! cargo install gungraun-runner --version 0.20.0 --locked     # and valgrind
//! cargo bench -p wattlane-loadtest --bench placement
//! ```

#![allow(unused_qualifications, reason = "the macros of gungraun make them")]

mod limits;
#[path = "../src/prepared.rs"]
mod prepared;

use std::hint::black_box;

use gungraun::prelude::*;
use limits::within;
use prepared::Prepared;
use prepared::shapes::shapes;
use wattlane::model::Refusal;
use wattlane::placement::{Demand, Placement};

fn shape(name: &str) -> (Prepared, Demand) {
    let (_, case) = shapes()
        .into_iter()
        .find(|(n, _)| *n == name)
        .expect("a shape of this name");
    let prepared = Prepared::of(&case);
    let demand = prepared.demand();
    (prepared, demand)
}

#[library_benchmark(setup = shape)]
#[bench::one_of_8(args = ("1 of 8"), config = within(6_778))]
#[bench::four_of_8(args = ("4 of 8, one group"), config = within(32_311))]
#[bench::partitions(args = ("7 partitions"), config = within(86_642))]
#[bench::all_of_16(args = ("All of 16"), config = within(78_155))]
#[bench::cannot_be(args = ("9 of 128 that cannot be"), config = within(3_426_772))]
fn place((prepared, demand): (Prepared, Demand)) -> (Result<Placement, Refusal>, Prepared, Demand) {
    (black_box(prepared.place(&demand)), prepared, demand)
}

#[library_benchmark(setup = shape)]
#[bench::one_of_8(args = ("1 of 8"), config = within(1_938))]
#[bench::four_of_8(args = ("4 of 8, one group"), config = within(22_194))]
#[bench::partitions(args = ("7 partitions"), config = within(67_742))]
#[bench::all_of_16(args = ("All of 16"), config = within(61_305))]
#[bench::cannot_be(args = ("9 of 128 that cannot be"), config = within(3_419_048))]
fn check((prepared, demand): (Prepared, Demand)) -> (Result<(), Refusal>, Prepared, Demand) {
    (black_box(prepared.check(&demand)), prepared, demand)
}

#[library_benchmark(setup = shape)]
#[bench::one_of_8(args = ("1 of 8"), config = within(4_716))]
fn demand((prepared, before): (Prepared, Demand)) -> (Demand, Prepared, Demand) {
    (black_box(prepared.demand()), prepared, before)
}

library_benchmark_group!(name = decisions, benchmarks = [place, check, demand]);

main!(library_benchmark_groups = decisions);
