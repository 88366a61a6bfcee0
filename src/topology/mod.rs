//! How the cards of one node are connected: from what a probe or the drivers say to the nearest set of free cards.
//!
//! Pure: text and devices in, tables out. `report` is what was found, `text/` reads it out of the vendors' tools,
//! `annotation` carries it on the Node, `source` decides what is believed of a node, `shape` holds the tables, `groups`
//! tells people who reaches whom.

pub mod annotation;
mod cell;
mod groups;
mod link;
mod report;
mod shape;
mod source;
pub mod text;
mod worth;

pub use groups::{Groups, groups};
pub use link::{Link, Nearness};
pub use report::{Report, ReportedCard};
pub use shape::{Cards, Fabric, Grade, MOST_CARDS, Shape};
pub use source::{LinkSource, Links, links};
pub use worth::Worth;
