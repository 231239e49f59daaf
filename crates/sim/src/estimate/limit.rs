//! Which limit explains the answers in a log: a token bucket or a fixed window.
//!
//! Each candidate is judged by going through the answers in order, taking from it what was accepted,
//! and counting the answers that it would not have given: an acceptance when it was empty, a refusal
//! when it was not. The better of the best bucket and the best window is taken.
//!
//! Candidates come from the *blocked stretches* of the log: from a refusal behind an acceptance to the
//! next acceptance. At the beginning of two of them a bucket is empty, so what was accepted in between
//! is what it refilled. Windows begin where blocked stretches end, so these ends, modulo the period,
//! show its phase.

use std::fmt;

/// An answer of the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Response {
    /// When its request was sent, in seconds from the first.
    pub(super) at_s: f64,
    pub(super) is_accepted: bool,
}

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A token bucket.
    Bucket {
        /// Tokens per second.
        rate: f64,
        /// Tokens that it holds.
        burst: f64,
    },
    /// A fixed window.
    Window {
        /// Requests in a window.
        quota: u64,
        /// Its length in seconds.
        period_s: f64,
        /// How far into a window the log begins, in seconds.
        phase_s: f64,
    },
}

/// A limit, and how sure that is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitEstimate {
    /// The limit.
    pub limit: Limit,
    /// The share of answers that it explains; `None` if the log met no limit, and this is only the
    /// highest rate that was accepted.
    pub explained: Option<f64>,
}

impl fmt::Display for LimitEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(explained) = self.explained else {
            return f.write_str(
                "No limit was met: the rate is the highest that was accepted, and the real limit may be far above it.",
            );
        };
        let percent = (explained * 100.0).floor();
        match self.limit {
            Limit::Bucket { .. } => {
                write!(f, "A token bucket explains {percent} % of the answers.")
            }
            Limit::Window { .. } => {
                write!(f, "A fixed window explains {percent} % of the answers.")
            }
        }
    }
}

/// The limit that explains these answers best. They are in order of time.
pub(super) fn estimate(responses: &[Response]) -> LimitEstimate {
    let stretches = blocked_stretches(responses);
    if stretches.len() < MIN_STRETCHES {
        return LimitEstimate {
            limit: highest_rate(responses),
            explained: None,
        };
    }
    let buckets = bucket_candidates(responses, &stretches);
    let windows = window_candidates(responses, &stretches);
    let mut best: Option<(Limit, f64)> = None;
    // The likeliest comes first, and buckets, which are simpler, before windows: another one has to
    // explain clearly more.
    for limit in buckets.into_iter().chain(windows) {
        let explained = explained(limit, responses);
        if best.is_none_or(|(_, other)| explained > other + MIN_GAIN) {
            best = Some((limit, explained));
        }
    }
    match best {
        Some((limit, explained)) => LimitEstimate {
            limit,
            explained: Some(explained),
        },
        None => LimitEstimate {
            limit: highest_rate(responses),
            explained: None,
        },
    }
}

/// Less is noise: times in a log are those of the client.
const MIN_GAIN: f64 = 0.01;

/// Fewer say nothing about a limit: a server may refuse for other reasons.
const MIN_STRETCHES: usize = 2;

/// No limit was met, so it is at least what was accepted in the busiest ten seconds.
fn highest_rate(responses: &[Response]) -> Limit {
    const LENGTH_S: f64 = 10.0;
    let times: Vec<f64> = accepted(responses).collect();
    let mut first = 0;
    let mut most = 1;
    for (index, at) in times.iter().enumerate() {
        while at - times[first] >= LENGTH_S {
            first += 1;
        }
        most = most.max(index + 1 - first);
    }
    let span = times.last().zip(times.first());
    let span = span.map_or(LENGTH_S, |(last, first)| last - first);
    let most = most as f64;
    Limit::Bucket {
        rate: (most / span.clamp(1.0, LENGTH_S)).max(0.001),
        burst: most,
    }
}

fn accepted(responses: &[Response]) -> impl Iterator<Item = f64> {
    let accepted = responses.iter().filter(|response| response.is_accepted);
    accepted.map(|response| response.at_s)
}

/// From a refusal behind an acceptance to the next acceptance.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from_s: f64,
    /// `None` for the last one of a log.
    to_s: Option<f64>,
    /// How many requests were accepted before it, from the beginning of the log.
    accepted: usize,
}

fn blocked_stretches(responses: &[Response]) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    let (mut accepted, mut is_blocked) = (0, true);
    for response in responses {
        if response.is_accepted {
            accepted += 1;
            if let (true, Some(last)) = (is_blocked, stretches.last_mut()) {
                last.to_s = Some(response.at_s);
            }
            is_blocked = false;
        } else if !is_blocked {
            is_blocked = true;
            stretches.push(Stretch {
                from_s: response.at_s,
                to_s: None,
                accepted,
            });
        }
    }
    stretches
}

/// What was accepted from the beginning of one stretch to that of a later one is what a bucket
/// refilled meanwhile. If it overflowed it is less, so rates around that are tried, and more above.
fn bucket_candidates(responses: &[Response], stretches: &[Stretch]) -> Vec<Limit> {
    let Some(middle) = refill_rate(stretches) else {
        return Vec::new();
    };
    let rates = SHIFTS.iter().flat_map(|shift| [*shift, -shift]);
    let rates = rates.map(|shift| middle * (1.0 + shift));
    rates
        .flat_map(|rate| {
            let bursts = bursts_at(rate, responses);
            bursts.map(|burst| Limit::Bucket { rate, burst })
        })
        .collect()
}

/// How far from the middle rates are tried. Small steps first: at a rate that is off by a thousandth, a
/// bucket that is asked for more all the time is off by tokens after some minutes.
const SHIFTS: [f64; 14] = [
    0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3,
];

/// Acceptances per second between stretches, without times in which hardly anything was asked for.
fn refill_rate(stretches: &[Stretch]) -> Option<f64> {
    let mut gaps: Vec<(f64, f64)> = Vec::new();
    let mut first = *stretches.first()?;
    let last = stretches.last()?;
    for stretch in stretches {
        let count = stretch.accepted - first.accepted;
        let is_last = gaps.is_empty() && stretch.accepted == last.accepted;
        let time = stretch.from_s - first.from_s;
        if (count >= MIN_COUNT || is_last) && time > 0.0 {
            gaps.push((count as f64, time));
            first = *stretch;
        }
    }
    gaps.sort_by(|(count, time), (other, longer)| (count / time).total_cmp(&(other / longer)));
    let (count, time) = gaps.get(gaps.len() / 2)?;
    let usual = count / time;
    // One rate for all of them: single ones are off by chance, and more often upwards.
    let busy = gaps
        .iter()
        .filter(|(count, time)| count / time >= usual / 2.0);
    let (count, time) = busy.fold((0.0, 0.0), |(counts, times), (count, time)| {
        (counts + count, times + time)
    });
    Some(count / time)
}

/// Fewer acceptances give a rate that is off by more than a tenth.
const MIN_COUNT: usize = 10;

/// What a bucket of this rate may hold: what was taken from it beyond its rate when it refused. With
/// too low a rate that grows with time, so low values among them are tried before the middle.
fn bursts_at(rate: f64, responses: &[Response]) -> [f64; 3] {
    let (mut taken, mut last) = (0.0_f64, 0.0);
    let mut is_blocked = true;
    let mut at_refusals: Vec<f64> = Vec::new();
    for response in responses {
        taken = (taken - rate * (response.at_s - last)).max(0.0);
        last = response.at_s;
        if response.is_accepted {
            taken += 1.0;
        } else if !is_blocked {
            at_refusals.push(taken);
        }
        is_blocked = !response.is_accepted;
    }
    at_refusals.sort_by(f64::total_cmp);
    [1, 3, 5].map(|tenths| {
        let taken = at_refusals.get(at_refusals.len() * tenths / 10);
        taken.map_or(1.0, |taken| taken.ceil().max(1.0))
    })
}

/// Periods that servers have, in seconds.
const PERIODS_S: [f64; 11] = [
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 300.0, 600.0, 900.0, 3600.0,
];

fn window_candidates(responses: &[Response], stretches: &[Stretch]) -> Vec<Limit> {
    let span = responses.last().map_or(0.0, |last| last.at_s);
    // A window of which the log has not seen two says nothing.
    let periods = PERIODS_S.iter().filter(|period| span >= 2.0 * **period);
    periods
        .filter_map(|period| window_of(*period, responses, stretches))
        .collect()
}

/// An acceptance at the very beginning of a window is in it, whatever computing with fractions makes of
/// it. Far below the unit of a log.
const ROUNDING_S: f64 = 1e-6;

fn window_of(period: f64, responses: &[Response], stretches: &[Stretch]) -> Option<Limit> {
    let begin = begin_of_windows(period, stretches)?;
    let number = |at: f64| ((at - begin + ROUNDING_S) / period).floor();
    let mut quotas: Vec<u64> = Vec::new();
    let (mut window, mut count, mut is_blocked) = (f64::NEG_INFINITY, 0_u64, false);
    for response in responses {
        if number(response.at_s) > window {
            window = number(response.at_s);
            (count, is_blocked) = (0, false);
        }
        if response.is_accepted {
            count += 1;
        } else if !is_blocked {
            is_blocked = true;
            quotas.push(count);
        }
    }
    quotas.sort_unstable();
    let quota = quotas
        .get(quotas.len() / 2)
        .copied()
        .filter(|quota| *quota > 0)?;
    Some(Limit::Window {
        quota,
        period_s: period,
        phase_s: (period - begin).rem_euclid(period),
    })
}

/// When windows of this length begin, from 0 to `period`: where the ends of blocked stretches begin
/// behind the longest time of the period in which none ends.
fn begin_of_windows(period: f64, stretches: &[Stretch]) -> Option<f64> {
    let ends = stretches.iter().filter_map(|stretch| stretch.to_s);
    let mut ends: Vec<f64> = ends.map(|end| end.rem_euclid(period)).collect();
    ends.sort_by(f64::total_cmp);
    let last = *ends.last()?;
    let before = [last - period].into_iter().chain(ends.iter().copied());
    let gaps = ends
        .iter()
        .zip(before)
        .map(|(end, before)| (end - before, *end));
    let (_, begin) = gaps.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    Some(begin)
}

/// The share of answers that a limit would have given too: the mean of that of acceptances and that
/// of refusals, for there may be a thousand of one for each of the other.
fn explained(limit: Limit, responses: &[Response]) -> f64 {
    let mut state = LimitState::new(limit);
    let (mut right, mut all) = ([0.0, 0.0], [0.0, 0.0]);
    for response in responses {
        let left = state.left_at(response.at_s);
        let kind = usize::from(response.is_accepted);
        // Times in a log are those of the client, so one more or less is no contradiction.
        let slack = state.slack;
        let is_right = match response.is_accepted {
            true => left >= 1.0 - slack,
            false => left < 1.0 + slack,
        };
        all[kind] += 1.0;
        right[kind] += f64::from(u8::from(is_right));
        if response.is_accepted {
            state.taken += 1.0;
        }
    }
    let share = |kind: usize| {
        if all[kind] > 0.0 {
            right[kind] / all[kind]
        } else {
            1.0
        }
    };
    f64::midpoint(share(0), share(1))
}

/// What is taken from a limit.
struct LimitState {
    limit: Limit,
    taken: f64,
    last: f64,
    slack: f64,
}

impl LimitState {
    fn new(limit: Limit) -> Self {
        let slack = match limit {
            Limit::Bucket { .. } => 0.75,
            Limit::Window { quota, .. } => 0.75 + quota as f64 * 0.01,
        };
        Self {
            limit,
            taken: 0.0,
            last: 0.0,
            slack,
        }
    }

    /// How many requests it would accept at this time.
    fn left_at(&mut self, at: f64) -> f64 {
        let left = match self.limit {
            Limit::Bucket { rate, burst } => {
                // What a wrong candidate let through too much is not owed for ever.
                let refilled = rate * (at - self.last);
                self.taken = (self.taken - refilled).clamp(0.0, burst);
                burst - self.taken
            }
            Limit::Window {
                quota,
                period_s,
                phase_s,
            } => {
                let number = |at: f64| ((at + phase_s + ROUNDING_S) / period_s).floor();
                if number(at) > number(self.last) {
                    self.taken = 0.0;
                }
                quota as f64 - self.taken
            }
        };
        self.last = at;
        left
    }
}
