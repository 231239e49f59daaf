//! Tokens and known limits of one gate, computed a second time.

use std::collections::VecDeque;

use policy::bucket::Pause;
use policy::gate::GateSettings;
use policy::limits::Limit;
use policy::rate::Strategy;
use policy::time::Timestamp;

/// The maximum of tokens that a gate may have, from its rate over time.
#[derive(Debug)]
pub(super) struct Tokens {
    rate: f64,
    tokens: f64,
    filled_at: Timestamp,
}

impl Tokens {
    pub(super) fn full(settings: &GateSettings) -> Self {
        let rate = settings.initial_rate();
        Self {
            rate,
            tokens: burst(settings, rate),
            filled_at: Timestamp::ZERO,
        }
    }

    /// Moves to `now`, up to which nothing was sent.
    pub(super) fn advance(&mut self, settings: &GateSettings, pause: Pause, now: Timestamp) {
        let max = burst(settings, self.rate);
        if self.filled_at < pause.until && pause.until <= now {
            self.fill(pause.until, max.max(pause.keep));
            self.tokens = self.tokens.min(pause.keep);
        }
        // Tokens saved during a pause are cut at its end; nothing is sent before.
        let max = if now < pause.until {
            max.max(pause.keep)
        } else {
            max
        };
        self.fill(now, max);
    }

    /// Takes the token of a request. `false` if there was none.
    pub(super) fn take(&mut self) -> bool {
        self.tokens -= 1.0;
        self.tokens >= -SLACK
    }

    pub(super) fn tokens(&self) -> f64 {
        self.tokens
    }

    /// Sets the rate. If it fell, saved tokens are cut to the new burst.
    pub(super) fn set_rate(&mut self, settings: &GateSettings, rate: f64) {
        if rate < self.rate {
            self.tokens = self.tokens.min(burst(settings, rate));
        }
        self.rate = rate;
    }

    fn fill(&mut self, at: Timestamp, max: f64) {
        if at > self.filled_at {
            let added = at.seconds_since(self.filled_at) * self.rate;
            self.tokens = (self.tokens + added).min(max.max(self.tokens));
            self.filled_at = at;
        }
    }
}

/// Larger than any rounding error, smaller than any part of a token that matters.
const SLACK: f64 = 1e-6;

/// The burst: one and 2 ms of the rate, because timers are late; in `aimd` its setting, but at most two
/// seconds of the rate.
fn burst(settings: &GateSettings, rate: f64) -> f64 {
    match settings.strategy() {
        Strategy::Adaptive | Strategy::Fixed => 1.0 + 0.002 * rate,
        Strategy::Aimd => settings.aimd().burst.min(2.0 * rate).max(1.0),
    }
}

/// The times of the last requests, as many as a known limit allows.
#[derive(Debug)]
pub(super) struct LimitLog {
    limit: Limit,
    sent: VecDeque<Timestamp>,
}

impl LimitLog {
    pub(super) fn new(limit: Limit) -> Self {
        Self {
            limit,
            sent: VecDeque::new(),
        }
    }

    /// Records a request. `false` if it exceeds the limit.
    pub(super) fn take(&mut self, now: Timestamp) -> bool {
        let is_full = self.sent.len() >= self.limit.count() as usize;
        let earliest = is_full.then(|| self.sent.pop_front()).flatten();
        self.sent.push_back(now);
        earliest.is_none_or(|at| at + self.limit.period() <= now)
    }
}
