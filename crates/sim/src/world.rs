//! The event queue of virtual time.
//!
//! Events are ordered by time and, at equal times, by insertion. Nothing else, such as an address or
//! a hash, affects the order, so runs are repeatable.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use policy::time::Timestamp;

/// Future events.
///
/// ```
/// use policy::time::Timestamp;
/// use sim::world::Queue;
///
/// let mut queue = Queue::new();
/// queue.push(Timestamp::from_secs(2), "late");
/// queue.push(Timestamp::from_secs(1), "early");
/// queue.push(Timestamp::from_secs(1), "early too");
/// assert_eq!(queue.pop(), Some((Timestamp::from_secs(1), "early")));
/// assert_eq!(queue.pop(), Some((Timestamp::from_secs(1), "early too")));
/// ```
#[derive(Clone, Debug)]
pub struct Queue<E> {
    heap: BinaryHeap<Entry<E>>,
    pushed: u64,
}

impl<E> Queue<E> {
    /// An empty queue.
    pub const fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            pushed: 0,
        }
    }

    /// Adds `event` at `at`, after events already at that time.
    pub fn push(&mut self, at: Timestamp, event: E) {
        self.heap.push(Entry {
            at,
            number: self.pushed,
            event,
        });
        self.pushed += 1;
    }

    /// Removes the next event, with its time.
    pub fn pop(&mut self) -> Option<(Timestamp, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Clone, Debug)]
struct Entry<E> {
    at: Timestamp,
    number: u64,
    event: E,
}

impl<E> Ord for Entry<E> {
    /// Reversed, because the heap returns the greatest entry first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pops_events_by_time_and_then_by_insertion() {
        let mut queue = Queue::new();
        for (second, name) in [(3, 'd'), (1, 'a'), (2, 'c'), (1, 'b')] {
            queue.push(Timestamp::from_secs(second), name);
        }
        let order: String = std::iter::from_fn(|| queue.pop())
            .map(|(_, name)| name)
            .collect();
        assert_eq!(order, "abcd");
    }
}
