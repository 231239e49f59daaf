//! All events as one number: two runs are the same if it is.

use policy::time::Timestamp;

use crate::simulate::{Sight, What};

/// The hash of Fowler, Noll and Vo, by words: not hard to deceive, but nobody tries.
#[derive(Debug)]
pub(super) struct Trace {
    hash: u64,
    events: u64,
}

impl Trace {
    pub(super) fn new() -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            events: 0,
        }
    }

    pub(super) fn add(&mut self, sight: &Sight<'_>) {
        self.events += 1;
        self.word(sight.now.as_nanos());
        self.word(sight.client as u64);
        self.word(u64::from(sight.has_fresh));
        match sight.what {
            What::Waits { until } => self.time(until),
            What::Sent { class, ends, .. } => {
                self.word(class as u64);
                self.time(Some(ends));
            }
            What::Ended { class, attempt, .. } => {
                self.word(class as u64);
                let latency = attempt.outcome.latency.as_nanos();
                self.word(u64::try_from(latency).unwrap_or(u64::MAX));
            }
        }
        if let Some(view) = &sight.gate {
            let now = sight.now;
            self.word(view.gate.rate().to_bits());
            self.word(u64::from(view.gate.epoch()));
            self.time(view.gate.hold_until(now));
            self.word(view.gate.breaker_state(now) as u64);
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn events(&self) -> u64 {
        self.events
    }

    fn time(&mut self, at: Option<Timestamp>) {
        self.word(at.map_or(u64::MAX, Timestamp::as_nanos));
    }

    fn word(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        // A product passes nothing down: the high half has to be mixed in.
        self.hash ^= self.hash >> 32;
    }
}
