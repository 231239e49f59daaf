//! Reserved send times of one node at one key, in order.
//!
//! A reply reserves evenly spaced times, so they are kept as batches: first time, step and count. A
//! slot that is not used in time is lost. After a decrease only some of them are used, chosen by their
//! serial numbers so that the rest are spread evenly.

use std::time::Duration;

use super::DEFAULT_LATENESS;
use crate::fleet::SlotBatch;
use crate::time::{Timestamp, nanos, saturating_u64};

/// Reserved send times. At most [`Slots::MAX_BATCHES`] batches; more are dropped, and with them the
/// right to send then.
#[derive(Clone, Debug)]
pub struct Slots {
    batches: [Batch; Self::MAX_BATCHES],
    len: u8,
    /// Slots to skip, because attempts cost more than one.
    debt: u32,
    /// Slots that were not used, since this was last taken.
    skipped: u32,
    lateness: Duration,
}

/// One reserved send time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) epoch: u32,
    pub(crate) serial: u64,
}

#[derive(Clone, Copy, Debug)]
struct Batch {
    at: Timestamp,
    step: Duration,
    left: u32,
    epoch: u32,
    serial: u64,
    /// The share of slots that are used.
    keep: f64,
}

impl Slots {
    /// Three intervals ahead, with one call in each and some for waiting asks.
    pub const MAX_BATCHES: usize = 8;

    /// How late a slot may be used.
    pub(crate) fn set_lateness(&mut self, lateness: Duration) {
        self.lateness = lateness;
    }

    /// Whether there are none, used or not.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many can still be used at `now`.
    pub fn held(&mut self, now: Timestamp) -> u32 {
        self.drop_late(now);
        let left = self.present().iter().map(Batch::expected).sum::<f64>();
        let left = u32::try_from(saturating_u64(left.ceil())).unwrap_or(u32::MAX);
        left.saturating_sub(self.debt)
    }

    /// The time of the first one.
    pub fn next(&self) -> Option<Timestamp> {
        self.present().first().map(|batch| batch.at)
    }

    pub(super) fn add(&mut self, batch: &SlotBatch, epoch: u32, now: Timestamp) {
        let index = usize::from(self.len);
        if batch.count == 0 || index == Self::MAX_BATCHES {
            self.count_skipped(batch.count);
            return;
        }
        self.batches[index] = Batch {
            at: now + batch.first,
            step: batch.step,
            left: batch.count,
            epoch,
            serial: batch.serial,
            keep: 1.0,
        };
        self.len += 1;
    }

    /// Takes the first slot if it is due.
    #[inline]
    pub(super) fn take(&mut self, now: Timestamp) -> Option<Slot> {
        if self.len == 0 || self.batches[0].at > now {
            return None;
        }
        self.take_due(now)
    }

    fn take_due(&mut self, now: Timestamp) -> Option<Slot> {
        self.drop_late(now);
        loop {
            let batch = self.first()?;
            if batch.at > now {
                return None;
            }
            let slot = Slot {
                epoch: batch.epoch,
                serial: batch.serial,
            };
            batch.skip(1);
            let unused = batch.skip_unused();
            self.count_skipped(unused);
            self.drop_if_used_up();
            if self.debt == 0 {
                return Some(slot);
            }
            self.debt -= 1;
            self.count_skipped(1);
        }
    }

    /// The next slots pay for an attempt that cost more than one.
    #[inline]
    pub(super) fn add_debt(&mut self, slots: u32) {
        self.debt = self.debt.saturating_add(slots);
    }

    /// When the slot after `ahead` others is due; `None` if fewer are reserved.
    pub(super) fn nth(&self, ahead: u32, now: Timestamp) -> Option<Timestamp> {
        let mut ahead = f64::from(ahead) + f64::from(self.debt);
        for batch in self.present() {
            let late = batch.late(now, self.lateness);
            let expected = (f64::from(batch.left - late) * batch.keep).max(0.0);
            if ahead < expected {
                let steps = f64::from(late) + (ahead / batch.keep).floor();
                let at = batch.at.after_seconds(steps * batch.step.as_secs_f64());
                return Some(at.max(now));
            }
            ahead -= expected;
        }
        None
    }

    /// Drops the slots before `until`.
    pub(super) fn drop_before(&mut self, until: Timestamp) {
        self.skip_where(|batch| batch.due_before(until));
    }

    fn drop_late(&mut self, now: Timestamp) {
        let lateness = self.lateness;
        self.skip_where(|batch| batch.late(now, lateness));
    }

    /// Uses only a share of all slots.
    pub(super) fn thin_out(&mut self, share: f64) {
        if share >= 1.0 {
            return;
        }
        let len = usize::from(self.len);
        let mut unused = 0;
        for batch in &mut self.batches[..len] {
            batch.keep *= share.max(0.0);
            unused += batch.skip_unused();
        }
        self.count_skipped(unused);
        self.drop_if_used_up();
    }

    /// How many were not used since this was last called.
    pub(super) fn take_skipped(&mut self) -> u32 {
        std::mem::take(&mut self.skipped)
    }

    fn count_skipped(&mut self, count: u32) {
        self.skipped = self.skipped.saturating_add(count);
    }

    /// Skips slots at the front of each batch, until one has some left.
    fn skip_where(&mut self, count: impl Fn(&Batch) -> u32) {
        while let Some(batch) = self.first() {
            let late = count(batch);
            if late == 0 {
                return;
            }
            let skipped = batch.skip(late) + batch.skip_unused();
            let is_used_up = batch.left == 0;
            self.count_skipped(skipped);
            if !is_used_up {
                return;
            }
            self.drop_if_used_up();
        }
    }

    fn drop_if_used_up(&mut self) {
        let len = usize::from(self.len);
        let used_up = self.present().iter().take_while(|it| it.left == 0).count();
        if used_up > 0 {
            self.batches.copy_within(used_up..len, 0);
            self.len = u8::try_from(len - used_up).unwrap_or(0);
        }
    }

    fn first(&mut self) -> Option<&mut Batch> {
        match self.len {
            0 => None,
            _ => Some(&mut self.batches[0]),
        }
    }

    fn present(&self) -> &[Batch] {
        &self.batches[..usize::from(self.len)]
    }
}

impl Default for Slots {
    fn default() -> Self {
        const NONE: Batch = Batch {
            at: Timestamp::ZERO,
            step: Duration::ZERO,
            left: 0,
            epoch: 0,
            serial: 0,
            keep: 1.0,
        };
        Self {
            batches: [NONE; Self::MAX_BATCHES],
            len: 0,
            debt: 0,
            skipped: 0,
            lateness: DEFAULT_LATENESS,
        }
    }
}

impl Batch {
    /// Returns how many were skipped: no more than there are.
    fn skip(&mut self, count: u32) -> u32 {
        let count = count.min(self.left);
        self.at = self.at + self.step.saturating_mul(count);
        self.serial += u64::from(count);
        self.left -= count;
        count
    }

    /// Moves to the next slot that is used. Consecutive multiples of the golden ratio are spread
    /// evenly, so about each `1 / keep`-th serial number is.
    /// Returns how many are not.
    fn skip_unused(&mut self) -> u32 {
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        let mut skipped = 0;
        while self.keep < 1.0 && self.left > 0 && (self.serial as f64 * GOLDEN).fract() >= self.keep
        {
            skipped += self.skip(1);
        }
        skipped
    }

    fn expected(&self) -> f64 {
        f64::from(self.left) * self.keep
    }

    fn late(&self, now: Timestamp, lateness: Duration) -> u32 {
        match now.since(self.at) > lateness {
            true => self.due_before(Timestamp::from_nanos(now.as_nanos() - nanos(lateness))),
            false => 0,
        }
    }

    fn due_before(&self, until: Timestamp) -> u32 {
        let time = nanos(until.since(self.at));
        let step = nanos(self.step).max(1);
        let count = time.div_ceil(step);
        u32::try_from(count).map_or(self.left, |count| count.min(self.left))
    }
}
