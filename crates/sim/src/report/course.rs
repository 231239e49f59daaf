//! Runs over time as numbers, for charts that are drawn elsewhere.

use std::time::Duration;

use policy::breaker::BreakerState;
use policy::time::Timestamp;

use super::StrategyRun;
use super::bins::width_s;
use crate::measure::{Band, ClientSeries, Slice};
use crate::whole;

/// A run over time, in steps of equal length; the last may be shorter.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// The length of a step.
    pub step_s: f64,
    /// Capacity per second.
    pub capacity: Vec<f64>,
    /// The rate of all clients together at the end of each step, per second; `None` if none has one.
    pub rate: Vec<Option<f64>>,
    /// Requests sent, per second.
    pub sent: Vec<f64>,
    /// Accepted, per second.
    pub accepted: Vec<f64>,
    /// Refused, per second.
    pub refused: Vec<f64>,
    /// All other ends of attempts, per second.
    pub failed: Vec<f64>,
    /// Mean latency of accepted requests; `None` in steps without any.
    pub latency_ms: Vec<Option<f64>>,
    /// When any client was held, or its breaker not Closed.
    pub bands: Vec<CourseBand>,
}

/// A period of one state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CourseBand {
    /// `held`, or the name of the breaker's state.
    pub state: &'static str,
    /// Its start.
    pub from_s: f64,
    /// Its end.
    pub to_s: f64,
}

/// Runs of a scenario of this duration over time, with the same steps: so long that some dozen
/// requests fall into each. There are at most 600 steps.
pub fn courses(runs: &[StrategyRun], duration: Duration) -> Vec<Course> {
    let end_s = duration.as_secs_f64();
    let width_s = width_s(runs, end_s);
    runs.iter().map(|run| course(run, width_s, end_s)).collect()
}

fn course(run: &StrategyRun, width_s: f64, end_s: f64) -> Course {
    let slices = &run.series.slices;
    let slice_s = run.series.step.as_secs_f64();
    let per_step = whole((width_s / slice_s).ceil()).max(1);
    let per_step = usize::try_from(per_step).unwrap_or(usize::MAX);
    let step_s = slice_s * per_step as f64;
    let per_second = |count: fn(&Slice) -> u32| {
        let steps = slices.chunks(per_step).enumerate();
        steps
            .map(|(index, step)| {
                let sum: f64 = step.iter().map(|slice| f64::from(count(slice))).sum();
                let length = step_s.min(end_s - index as f64 * step_s);
                sum / length.max(f64::MIN_POSITIVE)
            })
            .collect()
    };
    let steps = || slices.chunks(per_step);
    Course {
        step_s,
        capacity: steps().map(mean_capacity).collect(),
        rate: rates(&run.series.clients, slices.len(), per_step),
        sent: per_second(|slice| slice.sent),
        accepted: per_second(|slice| slice.accepted),
        refused: per_second(|slice| slice.refused),
        failed: per_second(|slice| slice.failed),
        latency_ms: steps().map(mean_latency_ms).collect(),
        bands: bands(&run.series.clients, end_s),
    }
}

fn mean_capacity(step: &[Slice]) -> f64 {
    let sum: f64 = step.iter().map(|slice| slice.capacity).sum();
    sum / step.len().max(1) as f64
}

fn mean_latency_ms(step: &[Slice]) -> Option<f64> {
    let accepted = step.iter().map(|slice| f64::from(slice.accepted));
    let count: f64 = accepted.clone().sum();
    let latencies = step
        .iter()
        .map(|slice| slice.latency_ms.unwrap_or_default());
    let sum: f64 = latencies
        .zip(accepted)
        .map(|(mean, count)| mean * count)
        .sum();
    (count > 0.0).then(|| sum / count)
}

fn rates(clients: &[ClientSeries], slices: usize, per_step: usize) -> Vec<Option<f64>> {
    let last_of_step = (0..slices)
        .step_by(per_step)
        .map(|first| (first + per_step).min(slices) - 1);
    last_of_step
        .map(|slice| {
            let rates = clients.iter();
            let rates = rates.filter_map(|client| client.rates.get(slice).copied().flatten());
            rates.fold(None, |sum: Option<f64>, rate| {
                Some(sum.unwrap_or_default() + rate)
            })
        })
        .collect()
}

fn bands(clients: &[ClientSeries], end_s: f64) -> Vec<CourseBand> {
    let holds = clients.iter().flat_map(|client| &client.holds);
    let breakers = clients.iter().flat_map(|client| &client.breaker);
    let held = holds.map(|band| course_band(band, "held", end_s));
    let states = breakers.map(|band| course_band(band, state(band.what), end_s));
    let mut all: Vec<CourseBand> = held.chain(states).collect();
    all.sort_by(|one, other| one.from_s.total_cmp(&other.from_s));
    let min_gap_s = end_s / MAX_BANDS;
    let mut joined: Vec<CourseBand> = Vec::new();
    for band in all {
        // Gaps that cannot be seen are closed, which bounds how many there are.
        let last = joined
            .iter_mut()
            .rev()
            .find(|last| last.state == band.state);
        match last.filter(|last| band.from_s - last.to_s < min_gap_s) {
            Some(last) => last.to_s = last.to_s.max(band.to_s),
            None => joined.push(band),
        }
    }
    joined
}

/// More cannot be told apart.
const MAX_BANDS: f64 = 400.0;

fn course_band<T>(band: &Band<T>, state: &'static str, end_s: f64) -> CourseBand {
    let seconds = |at: Timestamp| at.seconds_since(Timestamp::ZERO);
    CourseBand {
        state,
        from_s: seconds(band.from),
        to_s: seconds(band.to).min(end_s),
    }
}

const fn state(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::Open => "open",
        BreakerState::HalfOpen => "half_open",
        BreakerState::Isolated => "isolated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::step_for;
    use crate::scenario::Shipped;
    use crate::simulate::simulate_with_series;

    fn run(name: &str) -> (StrategyRun, Duration) {
        let scenario = Shipped::find(name).unwrap().scenario();
        let step = step_for(scenario.duration);
        let (figures, series) = simulate_with_series(&scenario, 1, step);
        let run = StrategyRun {
            strategy: "adaptive".to_owned(),
            figures,
            series,
        };
        (run, scenario.duration)
    }

    #[test]
    fn a_course_has_all_requests_of_its_run() {
        for name in ["o1", "o7", "o8", "o9"] {
            let (run, duration) = run(name);
            let course = courses(std::slice::from_ref(&run), duration).remove(0);
            let count = course.sent.len();
            assert!((10..=600).contains(&count), "{name}: {count}");
            let lengths = [
                course.capacity.len(),
                course.rate.len(),
                course.accepted.len(),
                course.refused.len(),
                course.failed.len(),
                course.latency_ms.len(),
            ];
            assert_eq!(lengths, [count; 6], "{name}");
            let end_s = duration.as_secs_f64();
            let sum: f64 = (0..count)
                .map(|index| {
                    let length = course.step_s.min(end_s - index as f64 * course.step_s);
                    course.sent[index] * length
                })
                .sum();
            assert!(
                (sum - run.figures.sent as f64).abs() < 1e-6,
                "{name}: {sum}"
            );
        }
    }

    #[test]
    fn bands_are_in_order_and_within_the_run() {
        let (run, duration) = run("o7");
        let course = courses(std::slice::from_ref(&run), duration).remove(0);
        let opened = course.bands.iter().find(|band| band.state == "open");
        assert!((60.0..90.0).contains(&opened.unwrap().from_s));
        let is_within = |band: &CourseBand| band.from_s <= band.to_s && band.to_s <= 300.0;
        assert!(course.bands.iter().all(is_within));
        assert!(course.bands.is_sorted_by_key(|band| band.from_s.to_bits()));
    }
}
