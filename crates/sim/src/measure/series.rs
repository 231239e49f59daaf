//! A run over time, for plots. Recording it has no effect on the run.

use std::time::Duration;

use policy::breaker::BreakerState;
use policy::rate::Phase;
use policy::time::Timestamp;

use super::AttemptClass;
use super::capacity::Capacity;
use crate::client::ControllerState;
use crate::whole;

/// A run over time, in slices of equal length.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The length of a slice.
    pub step: Duration,
    /// The slices, from the start of the run.
    pub slices: Vec<Slice>,
    /// Each client over time.
    pub clients: Vec<ClientSeries>,
}

/// Counts of one slice.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slice {
    /// Capacity per second.
    pub capacity: f64,
    /// Requests sent.
    pub sent: u32,
    /// Responses with 2xx or 3xx.
    pub accepted: u32,
    /// Responses with 429, 403 or 503.
    pub refused: u32,
    /// All other ends of attempts.
    pub failed: u32,
    /// Mean time from sending to response of accepted requests; `None` if there are none.
    pub latency_ms: Option<f64>,
}

/// One client over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientSeries {
    /// Its rate at the end of each slice, per second; `None` if it has no rate.
    pub rates: Vec<Option<f64>>,
    /// The limit that `adaptive` knows at the end of each slice, per second.
    pub ceilings: Vec<Option<f64>>,
    /// The phases of `adaptive`.
    pub phases: Vec<Band<Phase>>,
    /// Its accepted requests in each slice.
    pub accepted: Vec<u32>,
    /// Its holds, whether directed by the server or its own.
    pub holds: Vec<Band<()>>,
    /// When its breaker was not Closed.
    pub breaker: Vec<Band<BreakerState>>,
}

/// A period of one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band<T> {
    /// Its start.
    pub from: Timestamp,
    /// The first instant after it.
    pub to: Timestamp,
    /// The state.
    pub what: T,
}

/// Records a [`Series`].
#[derive(Debug)]
pub(crate) struct SeriesRecorder {
    series: Series,
    latencies: Vec<Duration>,
    /// The current band of each client's breaker.
    present: Vec<Option<(Timestamp, BreakerState)>>,
    end: Timestamp,
}

impl SeriesRecorder {
    pub(crate) fn new(
        step: Duration,
        duration: Duration,
        capacity: &Capacity,
        clients: usize,
    ) -> Self {
        let count = whole((duration.as_secs_f64() / step.as_secs_f64()).ceil());
        let step_s = step.as_secs_f64();
        let slices: Vec<Slice> = (0..count)
            .map(|index| {
                let from = Timestamp::ZERO.after_seconds(index as f64 * step_s);
                Slice {
                    capacity: capacity.between(from, from + step) / step_s,
                    ..Slice::default()
                }
            })
            .collect();
        let client = ClientSeries {
            accepted: vec![0; slices.len()],
            ..ClientSeries::default()
        };
        Self {
            latencies: vec![Duration::ZERO; slices.len()],
            present: vec![None; clients],
            series: Series {
                step,
                slices,
                clients: vec![client; clients],
            },
            end: Timestamp::ZERO + duration,
        }
    }

    pub(crate) fn step(&self) -> Duration {
        self.series.step
    }

    pub(crate) fn sent(&mut self, now: Timestamp) {
        let index = self.index(now);
        if let Some(slice) = self.series.slices.get_mut(index) {
            slice.sent += 1;
        }
    }

    pub(crate) fn ended(
        &mut self,
        client: usize,
        class: AttemptClass,
        latency: Duration,
        now: Timestamp,
    ) {
        let index = self.index(now);
        let Some(slice) = self.series.slices.get_mut(index) else {
            return;
        };
        match class {
            AttemptClass::Accepted => {
                slice.accepted += 1;
                self.latencies[index] += latency;
                self.series.clients[client].accepted[index] += 1;
            }
            AttemptClass::Refused => slice.refused += 1,
            AttemptClass::Failed => slice.failed += 1,
        }
    }

    /// Records a client's state at the end of a slice.
    pub(crate) fn sample(&mut self, client: usize, state: &ControllerState, now: Timestamp) {
        let samples = &mut self.series.clients[client];
        samples.rates.push(state.rate);
        let ceiling = state.learned.and_then(|learned| learned.ceiling);
        samples.ceilings.push(ceiling);
        self.record_state(client, state, now);
    }

    /// Records a client's state after an event.
    pub(crate) fn record_state(&mut self, client: usize, state: &ControllerState, now: Timestamp) {
        if let Some(until) = state.hold_until {
            self.hold(client, until.min(self.end), now);
        }
        if let Some(learned) = state.learned {
            self.enter_phase(client, learned.phase, now);
        }
        let breaker = state.breaker.filter(|state| *state != BreakerState::Closed);
        let before = self.present[client];
        if before.map(|(_, state)| state) != breaker {
            self.end_band(client, now);
            self.present[client] = breaker.map(|state| (now, state));
        }
    }

    fn enter_phase(&mut self, client: usize, phase: Phase, now: Timestamp) {
        let phases = &mut self.series.clients[client].phases;
        match phases.last_mut() {
            Some(last) if last.what == phase => last.to = now,
            last => {
                if let Some(last) = last {
                    last.to = now;
                }
                phases.push(Band {
                    from: now,
                    to: now,
                    what: phase,
                });
            }
        }
    }

    fn hold(&mut self, client: usize, until: Timestamp, now: Timestamp) {
        let holds = &mut self.series.clients[client].holds;
        match holds.last_mut() {
            Some(last) if last.to >= now => last.to = last.to.max(until),
            _ => holds.push(Band {
                from: now,
                to: until,
                what: (),
            }),
        }
    }

    fn end_band(&mut self, client: usize, now: Timestamp) {
        if let Some((from, what)) = self.present[client].take() {
            let band = Band {
                from,
                to: now,
                what,
            };
            self.series.clients[client].breaker.push(band);
        }
    }

    pub(crate) fn finish(mut self) -> Series {
        for client in 0..self.present.len() {
            self.end_band(client, self.end);
        }
        for (slice, sum) in self.series.slices.iter_mut().zip(&self.latencies) {
            let mean = sum.as_secs_f64() * 1e3 / f64::from(slice.accepted);
            slice.latency_ms = (slice.accepted > 0).then_some(mean);
        }
        self.series
    }

    fn index(&self, now: Timestamp) -> usize {
        let nanos = now.since(Timestamp::ZERO).as_nanos() / self.series.step.as_nanos().max(1);
        usize::try_from(nanos).unwrap_or(usize::MAX)
    }
}
