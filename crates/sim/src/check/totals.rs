//! Totals of a run: the counts behind the figures, and each client's share.

use policy::rate::Strategy;

use super::{Invariant, Violations};
use crate::client::Driver;
use crate::load::Backlog;
use crate::measure::{AttemptClass, Figures};
use crate::scenario::Scenario;
use crate::simulate::{ClientEvent, Observation};
use crate::upstream::Kind;

#[derive(Debug)]
pub(super) struct Totals {
    sent: u64,
    accepted: u64,
    refused: u64,
    failed: u64,
    in_flight: u64,
    accepted_by_client: Vec<u64>,
}

impl Totals {
    pub(super) fn new(clients: usize) -> Self {
        Self {
            sent: 0,
            accepted: 0,
            refused: 0,
            failed: 0,
            in_flight: 0,
            accepted_by_client: vec![0; clients],
        }
    }

    pub(super) fn add(&mut self, observation: &Observation<'_>) {
        match observation.event {
            ClientEvent::Waits { .. } => {}
            ClientEvent::Sent { .. } => {
                self.sent += 1;
                self.in_flight += 1;
            }
            ClientEvent::Ended { class, .. } => {
                self.in_flight -= 1;
                match class {
                    AttemptClass::Accepted => {
                        self.accepted += 1;
                        self.accepted_by_client[observation.client] += 1;
                    }
                    AttemptClass::Refused => self.refused += 1,
                    AttemptClass::Failed => self.failed += 1,
                }
            }
        }
    }

    pub(super) fn check_figures(&self, figures: &Figures, violations: &mut Violations) {
        let counted = [self.sent, self.accepted, self.refused, self.failed];
        let reported = [
            figures.sent,
            figures.accepted,
            figures.refused,
            figures.failed,
        ];
        violations.require(counted == reported, Invariant::FiguresMatchEvents, || {
            format!("sent, accepted, refused, failed were {counted:?}, figures say {reported:?}")
        });
        let ended = figures.accepted + figures.refused + figures.failed;
        violations.require(
            figures.sent == ended + self.in_flight,
            Invariant::FiguresMatchEvents,
            || {
                format!(
                    "{} sent, {ended} ended, {} in flight",
                    figures.sent, self.in_flight
                )
            },
        );
        let ratios = [figures.refused_ratio, figures.jain];
        let are_ratios = ratios
            .iter()
            .flatten()
            .all(|ratio| (0.0..=1.0 + 1e-9).contains(ratio));
        violations.require(are_ratios, Invariant::FiguresMatchEvents, || {
            format!("{ratios:?}")
        });
    }

    pub(super) fn check_shares(
        &self,
        scenario: &Scenario,
        figures: &Figures,
        violations: &mut Violations,
    ) {
        if figures.bans > 0 || !promises_shares(scenario) {
            return;
        }
        let accepted = &self.accepted_by_client;
        let mean = accepted.iter().sum::<u64>() as f64 / accepted.len() as f64;
        let min = accepted.iter().copied().min().unwrap_or_default() as f64;
        violations.require(
            mean < MIN_MEAN || min >= MIN_SHARE * mean,
            Invariant::NoStarvation,
            || format!("{min} accepted of one client, {mean:.1} on average"),
        );
    }
}

/// With fewer accepted requests per client, shares are not significant.
const MIN_MEAN: f64 = 100.0;
/// Of an equal share. Runs are short, and some clients start late.
const MIN_SHARE: f64 = 0.01;

/// Whether every client must get a share. Only clients with `adaptive` at a token bucket that gives
/// no hints and has room for one request of each client.
/// hints and has room for one request of each client.
///
/// Elsewhere single clients may get next to nothing in a run: if the server names waits of whole
/// seconds, at slots, and if there is room for only one or two requests. A refused client waits
/// while others take its place, and clients whose holds end at the same instant stay in the same
/// order. `fixed` does not slow down for others, and `aimd` opens its breaker when it is refused.
fn promises_shares(scenario: &Scenario) -> bool {
    let [clients] = &*scenario.clients else {
        return false;
    };
    let upstream = &scenario.upstream;
    let Kind::Bucket { burst, .. } = upstream.kind else {
        return false;
    };
    let gives_hints = upstream.retry_after || upstream.headers;
    let is_steady = upstream.steps.is_empty() && upstream.outages.is_empty();
    let is_endless = clients.backlog == Backlog::Endless;
    let is_adaptive = match &clients.driver {
        Driver::Gate(settings) => settings.strategy() == Strategy::Adaptive,
        _ => false,
    };
    let has_room = burst >= f64::from(clients.count.max(2));
    let is_alone = clients.fleet.is_none();
    is_adaptive && is_alone && is_endless && !gives_hints && is_steady && has_room
}
