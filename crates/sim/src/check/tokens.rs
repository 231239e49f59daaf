//! Tokens and known limits, kept a second time.

use std::collections::VecDeque;

use policy::bucket::Pause;
use policy::gate::GateSettings;
use policy::limits::Limit;
use policy::rate::Strategy;
use policy::time::Timestamp;

/// The most that a gate's bucket may hold, from its rate over time.
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

    /// Time has passed, in which nothing left.
    pub(super) fn pass(&mut self, settings: &GateSettings, pause: Pause, now: Timestamp) {
        let most = burst(settings, self.rate);
        if self.filled_at < pause.until && pause.until <= now {
            self.fill(pause.until, most.max(pause.keep));
            self.tokens = self.tokens.min(pause.keep);
        }
        // What is saved during a pause is cut at its end, and nothing leaves before.
        let most = if now < pause.until {
            most.max(pause.keep)
        } else {
            most
        };
        self.fill(now, most);
    }

    /// A request has left. `false` if there was no token for it.
    pub(super) fn take(&mut self) -> bool {
        self.tokens -= 1.0;
        self.tokens >= -SLACK
    }

    pub(super) fn tokens(&self) -> f64 {
        self.tokens
    }

    /// The gate has another rate now; if it fell, what was saved falls with it.
    pub(super) fn set_rate(&mut self, settings: &GateSettings, rate: f64) {
        if rate < self.rate {
            self.tokens = self.tokens.min(burst(settings, rate));
        }
        self.rate = rate;
    }

    fn fill(&mut self, at: Timestamp, most: f64) {
        if at > self.filled_at {
            let came = at.seconds_since(self.filled_at) * self.rate;
            self.tokens = (self.tokens + came).min(most.max(self.tokens));
            self.filled_at = at;
        }
    }
}

/// Sums of fractions in another order differ by far less, and no request passes for it.
const SLACK: f64 = 1e-6;

/// What may be saved: two milliseconds' worth and one, for timers are late; in `aimd` its burst, but
/// no more than comes in two seconds.
fn burst(settings: &GateSettings, rate: f64) -> f64 {
    match settings.strategy() {
        Strategy::Adaptive | Strategy::Fixed => 1.0 + 0.002 * rate,
        Strategy::Aimd => settings.aimd().burst.min(2.0 * rate).max(1.0),
    }
}

/// When the last requests left, as many as a known limit allows.
#[derive(Debug)]
pub(super) struct Stretch {
    limit: Limit,
    left: VecDeque<Timestamp>,
}

impl Stretch {
    pub(super) fn new(limit: Limit) -> Self {
        Self {
            limit,
            left: VecDeque::new(),
        }
    }

    /// A request leaves. `false` if it is one too many.
    pub(super) fn take(&mut self, now: Timestamp) -> bool {
        let is_full = self.left.len() >= self.limit.count() as usize;
        let earliest = is_full.then(|| self.left.pop_front()).flatten();
        self.left.push_back(now);
        earliest.is_none_or(|at| at + self.limit.period() <= now)
    }
}
