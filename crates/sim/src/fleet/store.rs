//! The store of one fleet, and the network between it and the nodes.
//!
//! Randomness comes from a stream of its own, one delay and one chance of loss for each message, so
//! that a fleet does not change what other clients and the upstream draw.

use std::time::Duration;

use policy::fleet::{self, Call, Ledger, NodeId, Notice, Reply};
use policy::random::Random;
use policy::time::Timestamp;

use super::StoreSettings;
use crate::upstream::{lognormal, normal};

/// What the store of a fleet knows, and how messages reach it.
#[derive(Debug)]
pub(crate) struct Store {
    settings: StoreSettings,
    shared: fleet::FleetSettings,
    ledger: Option<Ledger>,
    /// When it loses everything, the next one last.
    losses: Vec<Timestamp>,
    random: Random,
    calls: u64,
}

/// What happens to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// It arrives then.
    At(Timestamp),
    /// It does not arrive.
    Lost,
}

impl Store {
    pub(crate) fn new(
        settings: &StoreSettings,
        shared: fleet::FleetSettings,
        random: Random,
    ) -> Self {
        let mut losses = settings.losses();
        losses.reverse();
        Self {
            settings: settings.clone(),
            shared,
            ledger: None,
            losses,
            random,
            calls: 0,
        }
    }

    /// Calls that reached it.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// What happens to a message between it and `node`, counted from 1, that leaves at `now`.
    pub(crate) fn deliver(&mut self, node: u32, now: Timestamp) -> Delivery {
        let values = &self.settings.values;
        let mean = values.latency.as_secs_f64() / 2.0;
        let seconds = lognormal(mean, values.latency_spread, normal(&mut self.random));
        let is_lost = self.random.unit() < values.loss;
        let at = now.after_seconds(seconds);
        let passes = |at| self.settings.reaches(node, at);
        if is_lost || !passes(now) || !passes(at) {
            return Delivery::Lost;
        }
        Delivery::At(at)
    }

    /// Handles a call; `None` if the store does not answer.
    pub(crate) fn handle(
        &mut self,
        node: NodeId,
        call: &Call,
        now: Timestamp,
    ) -> Option<(Reply, Option<Notice>)> {
        while self.losses.last().is_some_and(|at| *at <= now) {
            self.losses.pop();
            self.ledger = None;
        }
        if self.settings.outage_at(now).is_some() {
            return None;
        }
        self.calls += 1;
        let now = now + CLOCK;
        let shared = &self.shared;
        let ledger = self
            .ledger
            .get_or_insert_with(|| Ledger::new(shared, call.claim.as_ref(), now));
        Some(ledger.sync(shared, node, call, now))
    }
}

/// The store's clock shows this at the start of a run: what never happened was long ago, and it differs
/// from the clocks of nodes.
const CLOCK: Duration = Duration::from_secs(1_000_000);

/// A node gives up on a reply after this, as the real one does.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_millis(250);
