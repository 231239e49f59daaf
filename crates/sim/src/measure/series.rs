//! A run over time, for plots: gathered only when somebody asks for it, and without any effect on
//! the run.

use std::time::Duration;

use policy::breaker::BreakerState;
use policy::time::Timestamp;

use super::Class;
use super::capacity::Capacity;
use crate::client::Standing;
use crate::number::whole;

/// A run over time, in slices of equal length.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The length of a slice.
    pub step: Duration,
    /// What happened in each, from the beginning of the run.
    pub slices: Vec<Slice>,
    /// What each client did.
    pub clients: Vec<ClientSeries>,
}

/// What happened in a slice of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slice {
    /// What could have been accepted, per second.
    pub capacity: f64,
    /// Requests that left.
    pub sent: u32,
    /// Answers that arrived, by what they were.
    pub accepted: u32,
    /// 429, 403 and 503.
    pub refused: u32,
    /// The rest.
    pub failed: u32,
    /// Mean time from sending to answer of those that were accepted; `None` if none was.
    pub latency_ms: Option<f64>,
}

/// What one client did over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientSeries {
    /// Requests per second that it allowed itself at the end of each slice; `None` if it has no
    /// rate.
    pub rates: Vec<Option<f64>>,
    /// What was accepted of it in each slice.
    pub accepted: Vec<u32>,
    /// When it was held, by a server's word or a step of its own.
    pub holds: Vec<Band<()>>,
    /// When its breaker was not Closed.
    pub breaker: Vec<Band<BreakerState>>,
}

/// A stretch of time in which something was so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band<T> {
    /// Its first instant.
    pub from: Timestamp,
    /// The first instant after it.
    pub to: Timestamp,
    /// What was so.
    pub what: T,
}

/// Gathers a [`Series`].
#[derive(Debug)]
pub(crate) struct SeriesRecorder {
    series: Series,
    latencies: Vec<Duration>,
    /// The band of each client's breaker that is still going on.
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

    pub(crate) fn ended(&mut self, client: usize, class: Class, latency: Duration, now: Timestamp) {
        let index = self.index(now);
        let Some(slice) = self.series.slices.get_mut(index) else {
            return;
        };
        match class {
            Class::Accepted => {
                slice.accepted += 1;
                self.latencies[index] += latency;
                self.series.clients[client].accepted[index] += 1;
            }
            Class::Refused => slice.refused += 1,
            Class::Failed => slice.failed += 1,
        }
    }

    /// A slice has ended: how a client stands.
    pub(crate) fn sample(&mut self, client: usize, standing: &Standing, now: Timestamp) {
        self.series.clients[client].rates.push(standing.rate);
        self.note(client, standing, now);
    }

    /// Something happened at a client: has a band begun or ended?
    pub(crate) fn note(&mut self, client: usize, standing: &Standing, now: Timestamp) {
        if let Some(until) = standing.hold_until {
            self.hold(client, until.min(self.end), now);
        }
        let state = standing
            .breaker
            .filter(|state| *state != BreakerState::Closed);
        let before = self.present[client];
        if before.map(|(_, state)| state) != state {
            self.end_band(client, now);
            self.present[client] = state.map(|state| (now, state));
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
