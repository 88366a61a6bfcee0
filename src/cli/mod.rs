//! One file for each subcommand. Nothing else of the crate prints.

pub mod check;
