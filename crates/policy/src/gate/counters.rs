//! The number of attempts in flight and the epoch, in one word.

use std::fmt;

/// Attempts in flight, attempts without a response, and the epoch: 20, 20 and 24 bits of one word,
/// because every admitted ask reads and writes them and a gate has no byte to spare.
///
/// An attempt is in flight until the end of the response body, and unanswered until its head.
/// Neither count exceeds [`Counters::MAX_IN_FLIGHT`]. The epoch wraps around after 16 million, so a
/// permit that old is mistaken for a current one with that probability.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counters(u64);

impl Counters {
    /// No gate has more attempts in flight, whatever its settings.
    pub(super) const MAX_IN_FLIGHT: u32 = (1 << COUNT_BITS) - 1;

    #[inline]
    pub(super) const fn in_flight(self) -> u32 {
        (self.0 & COUNT) as u32
    }

    #[inline]
    pub(super) const fn unanswered(self) -> u32 {
        (self.0 >> COUNT_BITS & COUNT) as u32
    }

    #[inline]
    pub(super) const fn epoch(self) -> u32 {
        (self.0 >> (2 * COUNT_BITS)) as u32
    }

    /// Starts an attempt. Changes nothing at the bound.
    #[inline]
    pub(super) fn admit(&mut self) {
        // Never more are unanswered than in flight, so one bound is enough.
        if self.in_flight() < Self::MAX_IN_FLIGHT {
            self.0 += IN_FLIGHT + UNANSWERED;
        }
    }

    /// Ends an attempt.
    #[inline]
    pub(super) fn end(&mut self) {
        if self.unanswered() > 0 {
            self.0 -= IN_FLIGHT + UNANSWERED;
        }
    }

    /// Records that the head of a response arrived, or never will.
    #[inline]
    pub(super) fn answer(&mut self) {
        if self.unanswered() > 0 {
            self.0 -= UNANSWERED;
        }
    }

    /// Records the end of a response body.
    #[inline]
    pub(super) fn finish(&mut self) {
        if self.in_flight() > self.unanswered() {
            self.0 -= IN_FLIGHT;
        }
    }

    #[inline]
    pub(super) fn begin_epoch(&mut self) {
        self.0 = self.0.wrapping_add(EPOCH);
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters")
            .field("in_flight", &self.in_flight())
            .field("unanswered", &self.unanswered())
            .field("epoch", &self.epoch())
            .finish()
    }
}

const COUNT_BITS: u32 = 20;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
const IN_FLIGHT: u64 = 1;
const UNANSWERED: u64 = 1 << COUNT_BITS;
const EPOCH: u64 = 1 << (2 * COUNT_BITS);

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(counters: Counters) -> (u32, u32, u32) {
        (
            counters.in_flight(),
            counters.unanswered(),
            counters.epoch(),
        )
    }

    #[test]
    fn counts_and_epoch_are_independent() {
        let mut counters = Counters::default();
        counters.answer();
        counters.finish();
        assert_eq!(parts(counters), (0, 0, 0));
        counters.admit();
        counters.admit();
        counters.answer();
        counters.begin_epoch();
        assert_eq!(parts(counters), (2, 1, 1));
        counters.finish();
        counters.finish();
        assert_eq!(parts(counters), (1, 1, 1));
        counters.end();
        counters.end();
        assert_eq!(parts(counters), (0, 0, 1));
    }

    #[test]
    fn counts_saturate_and_epoch_wraps() {
        let mut counters = Counters(u64::MAX);
        counters.admit();
        let full = Counters::MAX_IN_FLIGHT;
        assert_eq!(parts(counters), (full, full, (1 << 24) - 1));
        counters.begin_epoch();
        assert_eq!(parts(counters), (full, full, 0));
        counters.answer();
        counters.finish();
        counters.end();
        assert_eq!(parts(counters), (full - 2, full - 2, 0));
    }
}
