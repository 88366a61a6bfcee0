//! Power budgets from policy to reservation: a policy as an operator writes it, the index that adds up, placement that
//! chooses, reservations that race.

mod arrivals;
mod binds;
#[path = "../shared/splitmix.rs"]
mod splitmix;
mod sums;
mod world;
