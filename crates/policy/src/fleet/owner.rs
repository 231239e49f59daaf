//! The owner of a key: the node that runs the controller for all.

use super::{Feedback, Ownership, RateDecision, Reply, SharedSettings};
use crate::gate::{Gate, Replayed};
use crate::time::Timestamp;

/// The controller of a key, and what it has decided but not written yet.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    /// Admits nothing; only its rate, hold and what it learned count.
    controller: Gate,
    fence: u32,
    seen: Feedback,
    seen_at: Timestamp,
    /// The hold as of the last reply.
    held_until: Timestamp,
    /// Whether the next decision begins an epoch.
    lowers: bool,
    /// Whether there is something to write.
    has_decided: bool,
}

impl Owner {
    /// The node has become the owner. It continues with what the owner before has written.
    pub(super) fn new(
        settings: &SharedSettings,
        ownership: &Ownership,
        reply: &Reply,
        now: Timestamp,
    ) -> Self {
        let settings = &settings.controller;
        let mut controller = match &ownership.record {
            Some(record) => Gate::restore(settings, record, now),
            None => Gate::new(settings, now),
        };
        controller.adopt_rate(settings, reply.rate);
        Self {
            controller,
            fence: ownership.fence,
            seen: ownership.feedback,
            seen_at: now,
            held_until: now + reply.hold_for,
            lowers: false,
            has_decided: false,
        }
    }

    pub(super) fn fence(&self) -> u32 {
        self.fence
    }

    pub(super) fn controller(&self) -> &Gate {
        &self.controller
    }

    /// Whether a decision should be written at once: others must slow down.
    pub(super) fn is_urgent(&self) -> bool {
        self.lowers
    }

    /// A person has overridden the key: the controller holds nothing any more.
    pub(super) fn release(&mut self, settings: &SharedSettings, now: Timestamp) {
        self.controller.release(&settings.controller, now);
        self.held_until = now;
        self.lowers = false;
        self.has_decided = false;
    }

    /// Keeps what was learned, and measures anew: of some time it is not known what was sent.
    pub(super) fn measure_anew(&mut self, settings: &SharedSettings, now: Timestamp) {
        let record = self.controller.record(now);
        self.controller = Gate::restore(&settings.controller, &record, now);
        self.seen_at = now;
    }

    pub(super) fn has_decided(&self) -> bool {
        self.has_decided
    }

    /// Learns from what was reported since.
    pub(super) fn learn(
        &mut self,
        settings: &SharedSettings,
        feedback: &Feedback,
        reply: &Reply,
        now: Timestamp,
    ) {
        if feedback.sent < self.seen.sent || feedback.accepted < self.seen.accepted {
            // The store has lost its totals, and counts anew.
            self.measure_anew(settings, now);
            self.seen = *feedback;
        }
        let rate = self.controller.rate();
        self.held_until = now + reply.hold_for;
        self.controller.follow_hold_until(self.held_until, now);
        let replayed = Replayed {
            before: &self.seen,
            after: feedback,
            since: self.seen_at,
        };
        self.lowers |= self.controller.replay(&settings.controller, &replayed, now);
        self.seen = *feedback;
        self.seen_at = now;
        let has_changed = self.controller.rate().to_bits() != rate.to_bits();
        let differs = (self.controller.rate() - reply.rate).abs() > 1e-9 * reply.rate;
        self.has_decided |= has_changed || self.lowers || differs;
    }

    /// What to write, if anything. If it gets lost, the next reply shows another rate, and there is
    /// something to write again.
    pub(super) fn decision(&mut self, now: Timestamp) -> Option<RateDecision> {
        if !std::mem::take(&mut self.has_decided) {
            return None;
        }
        let hold_until = self.controller.hold_until(now).unwrap_or(now);
        Some(RateDecision {
            fence: self.fence,
            rate: self.controller.rate(),
            lowers: std::mem::take(&mut self.lowers),
            refusals: self.seen.refusals,
            hold_for: match hold_until > self.held_until {
                true => hold_until.since(now),
                false => std::time::Duration::ZERO,
            },
            is_blind: self.controller.is_probing_blind(),
            record: self.controller.record(now),
        })
    }
}
