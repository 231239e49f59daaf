//! What other nodes know about the key of a gate: an input beside the gate's own state.
//!
//! A gate whose key is shared by a fleet does not learn its rate; the fleet does. The gate admits by
//! *slots*, send times that were reserved for this node, or by this node's part of the fleet's rate.
//! Holds and the breaker of the fleet apply beside its own. A local gate has no `External` and pays
//! nothing for it.

mod admit;
mod learn;
mod numbers;
mod slots;

use std::time::Duration;

pub(crate) use learn::Replayed;
pub use slots::Slots;

use crate::bucket::{Bucket, Pause};
use crate::fleet::SlotBatch;
use crate::time::Timestamp;
use numbers::Numbers;

/// What the fleet allows this node at one key.
#[derive(Clone, Debug)]
pub struct External {
    /// Nothing is sent before; it only grows.
    pub hold_until: Timestamp,
    /// The breaker of the fleet.
    pub breaker: ExternalBreaker,
    /// Reserved send times.
    pub slots: Slots,
    /// Whether the node paces itself when it has no slots.
    has_cap: bool,
    bucket: Bucket,
    burst: f64,
    /// The epoch of the fleet.
    epoch: u32,
    /// The last attempt that was sent, and the last one before this epoch.
    last_number: u32,
    last_before_epoch: u32,
    counts: Counts,
    /// Whether an ask had to wait for a slot or a token.
    was_short: bool,
    /// The number of the probe of the fleet that is in flight.
    probe: Option<u32>,
    numbers: Numbers,
}

/// Asks and attempts since the last call to the store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) asked: u32,
    pub(crate) sent: u32,
    pub(crate) sent_freely: u32,
    /// Slots that were not used.
    pub(crate) skipped: u32,
}

/// The breaker of the fleet at one gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExternalBreaker {
    /// Only the gate's own breaker counts.
    #[default]
    Closed,
    /// Nothing is sent before `until`, and after that only a probe that the fleet allows.
    Open {
        /// The end of the open time.
        until: Timestamp,
    },
    /// The open time is over.
    HalfOpen {
        /// Whether this node may send the next probe.
        may_probe: bool,
    },
}

impl External {
    /// Nothing is allowed yet.
    pub fn new(now: Timestamp) -> Self {
        Self {
            hold_until: Timestamp::ZERO,
            breaker: ExternalBreaker::Closed,
            slots: Slots::default(),
            has_cap: false,
            bucket: Bucket::full(1.0, 0.0, now),
            burst: 1.0,
            epoch: 0,
            last_number: 0,
            last_before_epoch: 0,
            counts: Counts::default(),
            was_short: false,
            probe: None,
            numbers: Numbers::default(),
        }
    }

    /// Requests per second that this node may send without slots; `None`: slots only.
    pub fn rate_cap(&self) -> Option<f64> {
        self.has_cap.then(|| self.bucket.rate())
    }

    /// Lets the node pace itself: at `rate` per second, saving up to `burst` tokens.
    pub fn set_rate_cap(&mut self, rate: f64, burst: f64, now: Timestamp) {
        if !self.has_cap {
            self.bucket = Bucket::full(rate, 0.0, now);
        }
        self.bucket.refill(now, self.burst, Pause::NONE);
        self.bucket.set_rate(rate.max(MIN_RATE));
        self.burst = burst;
        self.has_cap = true;
    }

    /// The node needs slots from now on.
    pub fn clear_rate_cap(&mut self) {
        self.has_cap = false;
    }

    /// The node's pace by slots, to estimate waits that exceed the reserved ones.
    pub(crate) fn set_pace(&mut self, rate: f64) {
        if !self.has_cap {
            self.bucket.set_rate(rate.max(MIN_RATE));
        }
    }

    /// Takes back saved tokens, and `delay` of a token more.
    pub(crate) fn delay_tokens(&mut self, delay: f64) {
        self.bucket.cut_to(-delay);
    }

    /// Adds reserved send times, counted from `now`.
    pub fn add_slots(&mut self, batch: &SlotBatch, now: Timestamp) {
        self.slots.add(batch, self.epoch, now);
    }

    /// Extends the hold, and drops the slots before its end.
    pub fn hold(&mut self, until: Timestamp) {
        if until > self.hold_until {
            self.hold_until = until;
            self.slots.drop_before(until);
            self.bucket.cut_to(0.0);
        }
    }

    /// A person has overridden the key: hold and breaker of the fleet end, and no slot counts any more.
    pub(crate) fn release(&mut self) {
        self.hold_until = Timestamp::ZERO;
        self.breaker = ExternalBreaker::Closed;
        self.slots.drop_before(Timestamp::MAX);
        self.probe = None;
    }

    /// The rate of the fleet has changed with a new epoch: slots that were reserved at a higher rate are
    /// thinned out.
    pub(crate) fn begin_epoch(&mut self, epoch: u32, rate_ratio: f64) {
        self.epoch = epoch;
        self.last_before_epoch = self.last_number;
        self.slots.thin_out(rate_ratio);
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The epoch in which attempt `number` of the gate was sent: that of its slot.
    pub(crate) fn epoch_of(&self, number: u32) -> u32 {
        self.numbers.epoch_of(number)
    }

    /// Whether attempt `number` was sent in the present epoch, perhaps with a slot of an earlier one.
    /// Those are thinned out, so that it was sent at the present rate.
    pub(crate) fn is_sent_in_epoch(&self, number: u32) -> bool {
        let since = number.wrapping_sub(self.last_before_epoch);
        (1..u32::MAX / 2).contains(&since)
    }

    /// The serial number of its slot; zero if that is not known.
    pub(crate) fn serial_of(&self, number: u32) -> u64 {
        self.numbers.serial_of(number)
    }

    /// Whether attempt `number` is a probe of the fleet; it is over then.
    pub(crate) fn end_probe(&mut self, number: u32) -> bool {
        let is_probe = self.probe == Some(number);
        if is_probe {
            self.probe = None;
        }
        is_probe
    }

    pub(crate) fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn take_counts(&mut self) -> Counts {
        let skipped = self.slots.take_skipped();
        Counts {
            skipped,
            ..std::mem::take(&mut self.counts)
        }
    }

    /// Whether an ask had to wait for a slot or a token since this was last cleared.
    pub(crate) fn was_short(&self) -> bool {
        self.was_short
    }

    pub(crate) fn clear_short(&mut self) {
        self.was_short = false;
    }

    /// Takes a slot, or tokens, for attempt `number`.
    #[inline]
    fn take(&mut self, cost: u32, number: u32, now: Timestamp) -> bool {
        if let Some(slot) = self.slots.take(now) {
            self.slots.add_debt(cost - 1);
            self.numbers.record(number, slot.epoch, slot.serial);
        } else if self.has_cap && self.slots.is_empty() {
            self.bucket.refill_unpaused(now, self.burst);
            if !self.bucket.take(f64::from(cost), self.burst) {
                return false;
            }
            self.numbers.record(number, self.epoch, 0);
            self.counts.sent_freely = self.counts.sent_freely.saturating_add(1);
        } else {
            return false;
        }
        self.last_number = number;
        self.counts.sent = self.counts.sent.saturating_add(1);
        true
    }

    /// When an ask leaves that has `ahead` units before it; `None` if that depends on the store.
    fn leaves_at(&self, ahead: u64, now: Timestamp) -> Option<Timestamp> {
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        if let Some(at) = self.slots.nth(ahead, now) {
            return Some(at);
        }
        if self.has_cap && self.slots.is_empty() {
            let mut bucket = self.bucket;
            bucket.refill(now, self.burst, Pause::NONE);
            return Some(bucket.ready_at(f64::from(ahead), 1.0, self.burst, Pause::NONE));
        }
        None
    }
}

/// Never zero, so that times can be computed.
const MIN_RATE: f64 = 1e-6;

/// A slot that was not used is kept for this long: two intervals by default.
pub(crate) const DEFAULT_LATENESS: Duration = Duration::from_millis(200);
