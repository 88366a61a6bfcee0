//! CPU and memory: what a pod asks for, and what a node has left. Placement prefers by it and refuses nothing: whether a pod
//! fits is NodeResourcesFit's to say.

use super::Quantity;

const MIB: f64 = 1_048_576.0;

/// At most four million cores and four PiB; more is as good as that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Room {
    /// In thousandths of a core.
    pub cpu: u32,
    /// In MiB.
    pub memory: u32,
}

impl Room {
    pub fn of(cpu: Quantity, memory: Quantity) -> Self {
        // Saturates, and nothing is negative.
        Self {
            cpu: (cpu.as_f64() * 1000.0).ceil() as u32,
            memory: (memory.as_f64() / MIB).ceil() as u32,
        }
    }

    pub fn has(self, asked: Self) -> bool {
        self.cpu >= asked.cpu && self.memory >= asked.memory
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
        }
    }

    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(other.cpu),
            memory: self.memory.saturating_sub(other.memory),
        }
    }

    /// How many times the other goes into it; None: any number of times.
    pub fn times(self, asked: Self) -> Option<u32> {
        let each = [(self.cpu, asked.cpu), (self.memory, asked.memory)];
        each.iter().filter_map(|(have, asked)| have.checked_div(*asked)).min()
    }
}
