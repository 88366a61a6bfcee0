//! Cards that can be cut: which partitions still fit beside those that are given, and what a choice takes from others.
//!
//! All of it is read from the counters that drivers publish (`sharedCounters`, `consumesCounters`), which hold the rules
//! of MIG exactly: packing a published H100, A30 or RTX PRO 6000 by its counters gives the vendor's maximum of every
//! profile.

mod products;
mod shape;

pub use products::{PRODUCTS, Product, Profile};
pub use shape::{Amounts, Shape, ShapeKey, State};
