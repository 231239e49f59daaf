//! The memory of all bodies that are kept for sending them again, with a bound for the process: each body
//! has one of its own, but thousands of requests may wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much is kept, of all requests together.
#[derive(Debug)]
pub struct ReplayMemory {
    most: AtomicU64,
    used: AtomicU64,
}

impl ReplayMemory {
    /// For at most so many bytes, and one piece of each request beyond.
    pub fn new(most: u64) -> Self {
        Self {
            most: AtomicU64::new(most),
            used: AtomicU64::new(0),
        }
    }

    /// Changes the bound. What is kept beyond a lower one stays.
    pub fn set_most(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// How many bytes are kept.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.used() > self.most.load(Ordering::Relaxed)
    }
}

/// What one body takes of it. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct ReplayShare {
    memory: Arc<ReplayMemory>,
    bytes: u64,
}

impl ReplayShare {
    pub(super) fn new(memory: Arc<ReplayMemory>) -> Self {
        Self { memory, bytes: 0 }
    }

    /// Takes so many more bytes.
    pub(super) fn take(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        self.bytes += bytes;
        self.memory.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives all of them back.
    pub(super) fn give_back(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.memory.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Is the memory of all used up?
    pub(super) fn is_full(&self) -> bool {
        self.memory.is_full()
    }
}

impl Drop for ReplayShare {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_full_until_shares_are_given_back() {
        let memory = Arc::new(ReplayMemory::new(10));
        let mut one = ReplayShare::new(Arc::clone(&memory));
        let mut other = ReplayShare::new(Arc::clone(&memory));
        one.take(10);
        assert!(!other.is_full());
        other.take(5);
        assert!(one.is_full());
        assert_eq!(memory.used(), 15);
        other.give_back();
        assert!(!one.is_full());
        drop((one, other));
        assert_eq!(memory.used(), 0);
        memory.set_most(0);
        let mut none = ReplayShare::new(memory);
        none.take(1);
        assert!(none.is_full());
    }
}
