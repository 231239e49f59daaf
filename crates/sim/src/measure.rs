//! The figures of a run, by which strategies are compared.
//!
//! During a run a recorder stores the times of results; everything else is computed at the end. All
//! times are those at the clients: a request counts as sent when it leaves, and as accepted, refused
//! or failed when its client gets the result.
//!
//! A figure that does not apply is `None`: one that starts at 60 s in a run of 50 s, a recovery that
//! does not happen, fairness of a single client.

mod capacity;
mod figures;
mod series;

use std::time::Duration;

use policy::time::Timestamp;

pub use capacity::Capacity;
pub use figures::{
    FIGURES, FailureCost, Figures, Named, OutageFigures, StepFigures, Summary, Unit, is_count,
};
pub(crate) use series::SeriesRecorder;
pub use series::{Band, ClientSeries, Series, Slice};

use crate::client::AttemptEnd;
use crate::load::Load;
use crate::scenario::Scenario;
use crate::upstream::{Kind, UpstreamSettings};

/// Records the results of a run.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// When requests were sent, in order.
    sent: Vec<Timestamp>,
    early_after_hint: u64,
    /// When results arrived, in order.
    accepted: Vec<Timestamp>,
    /// Their costs, summed up, if a limit on cost binds.
    costs: Option<Vec<f64>>,
    refused: Vec<Timestamp>,
    failed: Vec<Timestamp>,
    /// Of accepted requests from [`SETTLED`] on.
    latencies: Vec<Duration>,
    /// By client, from [`FAIR`] on.
    accepted_by_client: Vec<u64>,
    sent_in_outage: Vec<u64>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptClass {
    /// 2xx or 3xx.
    Accepted,
    /// 429, 403 or 503.
    Refused,
    /// Everything else.
    Failed,
}

impl AttemptClass {
    pub(crate) fn of(end: &AttemptEnd) -> Self {
        match end {
            AttemptEnd::Response(response) if response.is_accepted() => Self::Accepted,
            AttemptEnd::Response(response) if matches!(response.status, 429 | 403 | 503) => {
                Self::Refused
            }
            AttemptEnd::Response(_) | AttemptEnd::Unreachable | AttemptEnd::TimedOut => {
                Self::Failed
            }
        }
    }
}

impl Recorder {
    pub(crate) fn new(scenario: &Scenario, clients: usize) -> Self {
        Self {
            sent: Vec::new(),
            early_after_hint: 0,
            accepted: Vec::new(),
            costs: scenario.binding_cost().map(|_| Vec::new()),
            refused: Vec::new(),
            failed: Vec::new(),
            latencies: Vec::new(),
            accepted_by_client: vec![0; clients],
            sent_in_outage: vec![0; scenario.upstream.outages.len()],
        }
    }

    /// Requests sent so far.
    pub(crate) fn sent_count(&self) -> u64 {
        self.sent.len() as u64
    }

    pub(crate) fn sent(&mut self, upstream: &UpstreamSettings, was_early: bool, now: Timestamp) {
        self.sent.push(now);
        self.early_after_hint += u64::from(was_early);
        let outage = upstream
            .outages
            .iter()
            .position(|outage| outage.contains(now));
        if let Some(outage) = outage {
            self.sent_in_outage[outage] += 1;
        }
    }

    pub(crate) fn ended(
        &mut self,
        client: usize,
        class: AttemptClass,
        latency: Duration,
        now: Timestamp,
    ) {
        match class {
            AttemptClass::Accepted => self.accept(client, latency, now),
            AttemptClass::Refused => self.refused.push(now),
            AttemptClass::Failed => self.failed.push(now),
        }
    }

    fn accept(&mut self, client: usize, latency: Duration, now: Timestamp) {
        self.accepted.push(now);
        if now >= SETTLED {
            self.latencies.push(latency);
        }
        if now >= FAIR {
            self.accepted_by_client[client] += 1;
        }
    }

    /// Records the cost of the accepted request that ended last.
    pub(crate) fn add_cost(&mut self, cost: Option<u32>) {
        if let Some(costs) = &mut self.costs {
            let before = costs.last().copied().unwrap_or(0.0);
            costs.push(before + f64::from(cost.unwrap_or(1)));
        }
    }

    /// Computes the figures. `loads`: what each client had to send.
    pub(crate) fn figures(
        mut self,
        scenario: &Scenario,
        loads: &[&Load],
        at_end: FinalState,
    ) -> Figures {
        let evaluation = Evaluation {
            recorder: &self,
            capacity: Capacity::for_clients(scenario),
            mean_cost: scenario.binding_cost().map_or(1.0, |binding| binding.mean),
            loads,
            scenario,
            end: Timestamp::ZERO + scenario.duration,
        };
        let outages = evaluation.outages();
        let steps = evaluation.steps();
        let goodput_ratio = evaluation.goodput(Timestamp::ZERO);
        let goodput_ratio_settled = evaluation.goodput(SETTLED);
        let time_to_90_s = evaluation.seconds_to_90(Timestamp::ZERO, evaluation.end, |_, _| true);
        let peak_ratio = evaluation.peak();
        let refused = self.refused.len() as u64;
        let sent = self.sent_count();
        Figures {
            goodput_ratio,
            goodput_ratio_settled,
            sent,
            accepted: self.accepted.len() as u64,
            refused,
            failed: self.failed.len() as u64,
            refused_ratio: ratio(refused as f64, sent as f64),
            early_after_hint: self.early_after_hint,
            bans: at_end.bans,
            max_client_bans: at_end.max_client_bans,
            breaker_opened: at_end.breaker_opened,
            max_queue: at_end.max_queue,
            time_to_90_s,
            outages,
            steps,
            failure_cost: at_end.failure_cost,
            mean_latency_ms: self.mean_latency_ms(),
            p99_latency_ms: self.p99_latency_ms(),
            jain: jain(&self.accepted_by_client),
            peak_ratio,
            store_calls_per_request: at_end
                .store_calls
                .and_then(|calls| ratio(calls as f64, sent as f64)),
            explanations: at_end.explanations,
        }
    }

    fn mean_latency_ms(&self) -> Option<f64> {
        let sum: f64 = self.latencies.iter().map(Duration::as_secs_f64).sum();
        ratio(sum * 1e3, self.latencies.len() as f64)
    }

    /// By nearest rank.
    fn p99_latency_ms(&mut self) -> Option<f64> {
        let rank = (self.latencies.len() * 99).div_ceil(100);
        let index = rank.checked_sub(1)?;
        let (_, latency, _) = self.latencies.select_nth_unstable(index);
        Some(latency.as_secs_f64() * 1e3)
    }
}

/// What the upstream and the clients know at the end.
#[derive(Clone, Debug)]
pub(crate) struct FinalState {
    pub(crate) bans: u64,
    pub(crate) max_client_bans: u64,
    pub(crate) breaker_opened: u64,
    pub(crate) max_queue: Option<u64>,
    pub(crate) failure_cost: FailureCost,
    /// Calls that the stores of fleets answered; `None` without fleets.
    pub(crate) store_calls: Option<u64>,
    /// What each client does and why.
    pub(crate) explanations: Vec<Option<String>>,
}

/// By then a strategy should have learned the limit.
const SETTLED: Timestamp = Timestamp::from_secs(60);
/// By then clients that started late should have their share too.
const FAIR: Timestamp = Timestamp::from_secs(100);

/// Jain's fairness index: 1 if all clients get the same, 1/n if one gets everything. `None` for fewer
/// than two clients and if nothing was accepted.
fn jain(accepted: &[u64]) -> Option<f64> {
    if accepted.len() < 2 {
        return None;
    }
    let counts = accepted.iter().map(|count| *count as f64);
    let sum: f64 = counts.clone().sum();
    let squares: f64 = counts.map(|count| count * count).sum();
    ratio(sum * sum, accepted.len() as f64 * squares)
}

fn ratio(part: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| part / of)
}

/// Compares accepted requests with the capacity.
struct Evaluation<'a> {
    recorder: &'a Recorder,
    capacity: Capacity,
    /// The mean cost, if a limit on cost binds.
    mean_cost: f64,
    loads: &'a [&'a Load],
    scenario: &'a Scenario,
    end: Timestamp,
}

impl Evaluation<'_> {
    /// Accepted from `from` to the end, over what was possible.
    fn goodput(&self, from: Timestamp) -> Option<f64> {
        ratio(self.accepted(from, self.end), self.possible(from, self.end))
    }

    /// Accepted requests; if a limit on cost binds, their cost over the mean cost.
    fn accepted(&self, from: Timestamp, to: Timestamp) -> f64 {
        let times = &self.recorder.accepted;
        let Some(costs) = &self.recorder.costs else {
            return count(times, from, to) as f64;
        };
        let before = |at: Timestamp| {
            let index = times.partition_point(|time| *time < at);
            index.checked_sub(1).map_or(0.0, |last| costs[last])
        };
        (before(to) - before(from)).max(0.0) / self.mean_cost
    }

    /// The requests that could be accepted: the capacity, but at most what there was to send.
    fn possible(&self, from: Timestamp, to: Timestamp) -> f64 {
        let capacity = self.capacity.between(from, to);
        match self.offered(from, to) {
            Some(offered) => capacity.min(offered as f64),
            None => capacity,
        }
    }

    /// The requests there were to send: those left at `from` and those that arrived since; `None` if
    /// any client has an endless backlog.
    fn offered(&self, from: Timestamp, to: Timestamp) -> Option<u64> {
        let arrived = self
            .loads
            .iter()
            .map(|load| load.arrived_before(to))
            .sum::<Option<u64>>()?;
        let done = count(&self.recorder.accepted, Timestamp::ZERO, from);
        Some(arrived.saturating_sub(done))
    }

    /// The most that was sent in [`PEAK`] from [`SETTLED`] on, over what a bucket accepts meanwhile;
    /// `None` for other limits, because a window accepts its whole quota at once.
    fn peak(&self) -> Option<f64> {
        let Kind::Bucket { .. } = self.scenario.limit_at(Timestamp::ZERO) else {
            return None;
        };
        let sent = &self.recorder.sent;
        let last = self.end.since(SETTLED).checked_sub(PEAK)?;
        let tenths = 0..=u32::try_from(last.as_millis() / 100).ok()?;
        let ratios = tenths.filter_map(|tenths| {
            let from = SETTLED + GRID * tenths;
            // The limit before a step down: a client cannot know of the step yet.
            let limit = self
                .scenario
                .rate_at(from)
                .max(self.scenario.rate_at(from + PEAK));
            let sent = count(sent, from, from + PEAK) as f64;
            ratio(sent, limit * PEAK.as_secs_f64())
        });
        ratios.reduce(f64::max)
    }

    fn outages(&self) -> Vec<OutageFigures> {
        let outages = &self.scenario.upstream.outages;
        let nexts = outages.iter().skip(1).map(|next| next.from);
        let until = nexts.chain(std::iter::once(self.end));
        let rows = outages.iter().zip(until).zip(&self.recorder.sent_in_outage);
        rows.map(|((outage, until), sent)| OutageFigures {
            sent: *sent,
            recovery_s: self.seconds_to_90(outage.to, until, |_, _| true),
        })
        .collect()
    }

    fn steps(&self) -> Vec<StepFigures> {
        let upstream = &self.scenario.upstream;
        let nexts = upstream.steps.iter().skip(1).map(|next| next.at);
        let until = nexts.chain(std::iter::once(self.end));
        let mut before = upstream.rate_at(Timestamp::ZERO);
        let mut rows = Vec::new();
        for (step, until) in upstream.steps.iter().zip(until) {
            let rate = upstream.rate_at(step.at);
            let is_down = rate < before;
            before = rate;
            let settle_s = self.seconds_to_90(step.at, until, |from, to| {
                !is_down || self.refused_share(from, to) <= 0.1
            });
            rows.push(StepFigures {
                at_s: step.at.seconds_since(Timestamp::ZERO),
                settle_s,
            });
        }
        rows
    }

    fn refused_share(&self, from: Timestamp, to: Timestamp) -> f64 {
        let of = |times: &[Timestamp]| count(times, from, to) as f64;
        let Recorder {
            accepted,
            refused,
            failed,
            ..
        } = self.recorder;
        let refused = of(refused);
        let all = refused + of(accepted) + of(failed);
        ratio(refused, all).unwrap_or(0.0)
    }

    /// Seconds from `from` to the first interval with 90 % of what is possible for which also `holds`
    /// is true. Intervals start every 0.1 s and end by `until`.
    fn seconds_to_90(
        &self,
        from: Timestamp,
        until: Timestamp,
        holds: impl Fn(Timestamp, Timestamp) -> bool,
    ) -> Option<f64> {
        let width = interval(self.scenario, from);
        let is_reached = |begin: Timestamp| {
            let end = begin + width;
            let possible = self.possible(begin, end);
            let accepted = self.accepted(begin, end);
            possible > 0.0 && accepted >= 0.9 * possible && holds(begin, end)
        };
        let last = until.min(self.end).since(from).checked_sub(width)?;
        let tenths = 0..=last.as_millis() / 100;
        let tenths = tenths.filter_map(|tenths| u32::try_from(tenths).ok());
        let found = tenths
            .into_iter()
            .find(|tenths| is_reached(from + GRID * *tenths))?;
        Some(f64::from(found) / 10.0)
    }
}

/// Shorter than this, a burst is within what servers allow.
const PEAK: Duration = Duration::from_secs(10);
const GRID: Duration = Duration::from_millis(100);

/// The length of an interval: 5 s, at least a whole window, and 40 s below one request per second.
fn interval(scenario: &Scenario, at: Timestamp) -> Duration {
    let usual = Duration::from_secs(5);
    let period = match scenario.limit_at(at) {
        Kind::Window { period, .. } => period,
        Kind::Bucket { .. } | Kind::Slots { .. } => usual,
    };
    let rare = if scenario.rate_at(at) < 1.0 {
        Duration::from_secs(40)
    } else {
        usual
    };
    period.max(rare).max(usual)
}

/// How many of these sorted times are in [`from`, `to`).
fn count(times: &[Timestamp], from: Timestamp, to: Timestamp) -> u64 {
    let before = |at: Timestamp| times.partition_point(|time| *time < at);
    before(to).saturating_sub(before(from)) as u64
}

#[cfg(test)]
mod tests;
