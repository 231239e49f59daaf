//! A number of slots and a queue, first come, first served.
//!
//! The slot and the time of a request are known on arrival: it gets the slot that is free first.
//! When slots are removed, requests in service or in the queue keep their times; slots are removed
//! as they become free.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use policy::time::Timestamp;

use super::response::LimitStatus;

#[derive(Clone, Debug)]
pub(super) struct Slots {
    count: u32,
    queue: u32,
    /// When each slot becomes free.
    free_at: BinaryHeap<Reverse<Timestamp>>,
    /// When each queued request gets a slot, in order.
    starts: VecDeque<Timestamp>,
    /// How many slots are removed as they become free.
    to_remove: u32,
    max_queue: usize,
    at: Timestamp,
}

impl Slots {
    pub(super) fn free(count: u32, queue: u32) -> Self {
        Self {
            count,
            queue,
            free_at: (0..count).map(|_| Reverse(Timestamp::ZERO)).collect(),
            starts: VecDeque::new(),
            to_remove: 0,
            max_queue: 0,
            at: Timestamp::ZERO,
        }
    }

    pub(super) fn advance(&mut self, now: Timestamp) {
        while self.starts.front().is_some_and(|start| *start <= now) {
            self.starts.pop_front();
        }
        self.at = now;
    }

    pub(super) fn change(&mut self, count: u32, queue: u32, at: Timestamp) {
        if count >= self.count {
            let mut more = count - self.count;
            let stay = more.min(self.to_remove);
            self.to_remove -= stay;
            more -= stay;
            self.free_at.extend((0..more).map(|_| Reverse(at)));
        } else {
            self.to_remove += self.count - count;
        }
        self.count = count;
        self.queue = queue;
    }

    /// When a request that arrives now is done; `None` if the queue is full.
    pub(super) fn take(&mut self, now: Timestamp, service: Duration) -> Option<Timestamp> {
        while self.to_remove > 0 && self.free_at.len() > 1 {
            self.free_at.pop();
            self.to_remove -= 1;
        }
        let Reverse(free) = *self.free_at.peek()?;
        let start = free.max(now);
        if start > now {
            if self.waiting() >= self.queue {
                return None;
            }
            self.starts.push_back(start);
            self.max_queue = self.max_queue.max(self.starts.len());
        }
        self.free_at.pop();
        let done = start + service;
        self.free_at.push(Reverse(done));
        Some(done)
    }

    pub(super) fn max_queue(&self) -> u64 {
        self.max_queue as u64
    }

    pub(super) fn status(&self) -> LimitStatus {
        let idle = self.free_at.iter().filter(|slot| slot.0 <= self.at).count() as u64;
        let places = u64::from(self.queue.saturating_sub(self.waiting()));
        let first = self.free_at.peek().map_or(self.at, |slot| slot.0);
        LimitStatus {
            limit: u64::from(self.count) + u64::from(self.queue),
            remaining: idle + places,
            reset: first.since(self.at),
        }
    }

    fn waiting(&self) -> u32 {
        u32::try_from(self.starts.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(slots: &mut Slots, millis: u64) -> Option<u64> {
        let now = Timestamp::from_millis(millis);
        slots.advance(now);
        let done = slots.take(now, Duration::from_millis(100));
        done.map(|done| done.as_nanos() / 1_000_000)
    }

    #[test]
    fn queues_requests_in_order_and_refuses_when_the_queue_is_full() {
        let mut slots = Slots::free(2, 3);
        let done = [0, 10, 20, 30, 40, 50, 99].map(|at| take(&mut slots, at));
        let expected = [
            Some(100),
            Some(110),
            Some(200),
            Some(210),
            Some(300),
            None,
            None,
        ];
        assert_eq!(done, expected);
        // At 100 the first queued request gets a slot, which frees a place in the queue.
        assert_eq!(take(&mut slots, 100), Some(310));
        assert_eq!(take(&mut slots, 101), None);
        assert_eq!(slots.max_queue(), 3);
    }

    #[test]
    fn refuses_at_once_without_a_queue() {
        let mut slots = Slots::free(1, 0);
        assert_eq!(
            [0, 99, 100].map(|at| take(&mut slots, at)),
            [Some(100), None, Some(200)]
        );
        assert_eq!(slots.max_queue(), 0);
    }

    #[test]
    fn adds_slots_at_once_and_removes_them_when_free() {
        let mut slots = Slots::free(1, 9);
        assert_eq!(take(&mut slots, 0), Some(100));
        slots.change(2, 9, Timestamp::from_millis(10));
        assert_eq!(take(&mut slots, 10), Some(110));
        slots.change(1, 9, Timestamp::from_millis(20));
        assert_eq!(
            [20, 30].map(|at| take(&mut slots, at)),
            [Some(210), Some(310)]
        );
    }
}
