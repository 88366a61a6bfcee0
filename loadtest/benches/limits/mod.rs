//! The gate of both benches.

use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig};

/// 5 % over what it took when the number was written down (rustc 1.95, x86-64, glibc's allocator).
pub(crate) fn within(instructions: u64) -> LibraryBenchmarkConfig {
    let limit = instructions + instructions / 20;
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::default().hard_limits([(EventKind::Ir, limit)]));
    config
}
