//! The breaker of `epochs` and `model`.
//!
//! It opens after five failures in a row, or when half of at least twenty results in ten seconds are
//! failures. The first probe is sent after one second, each following one after 1.6 times the last gap,
//! up to four seconds; probes do not wait for each other. After a success the next probe is sent at
//! once, and three successes close it. Results of attempts sent before it last opened or closed are
//! ignored.

use std::collections::VecDeque;
use std::time::Duration;

use policy::breaker::BreakerState;
use policy::random::Random;
use policy::time::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// `None`: calls pass.
    open: Option<Open>,
    /// When it last opened or closed.
    changed_at: Timestamp,
    consecutive: u32,
    /// Results of the last ten seconds: when, and whether they failed.
    window: VecDeque<(Timestamp, bool)>,
    /// How many of those failed.
    failed: usize,
    opened: u64,
}

#[derive(Debug)]
struct Open {
    probe_at: Timestamp,
    gap_s: f64,
    successes: u32,
    /// Whether any probe was sent.
    probing: bool,
}

/// What a result says about the server's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Good,
    /// It failed.
    Bad,
    /// It is overloaded: counts in the window, not in the row.
    Overloaded,
    /// It refused, which says nothing.
    Unknown,
}

impl Breaker {
    /// When the next probe may be sent; `None` if the breaker is closed.
    pub(super) fn probe_at(&self) -> Option<Timestamp> {
        self.open.as_ref().map(|open| open.probe_at)
    }

    /// Records a request, which is a probe if the breaker is not closed.
    pub(super) fn sent(&mut self, now: Timestamp, random: &mut Random) {
        if let Some(open) = &mut self.open {
            open.probing = true;
            open.probe_at = now.after_seconds(open.gap_s * random.between(0.9, 1.1));
            open.gap_s = (open.gap_s * GROWTH).min(MAX_GAP_S);
        }
    }

    /// Records the result of an attempt sent at `sent_at`. `true` if the breaker closes.
    pub(super) fn attempt_ended(
        &mut self,
        health: Health,
        sent_at: Timestamp,
        now: Timestamp,
        random: &mut Random,
    ) -> bool {
        if sent_at < self.changed_at {
            return false;
        }
        match &mut self.open {
            Some(open) => {
                open.record(health, now);
                let closes = open.successes >= TO_CLOSE;
                if closes {
                    self.close(now);
                }
                closes
            }
            None => {
                self.count(health, now);
                if self.trips() {
                    self.open(now, random);
                }
                false
            }
        }
    }

    pub(super) fn state(&self) -> BreakerState {
        match &self.open {
            None => BreakerState::Closed,
            Some(open) if open.probing => BreakerState::HalfOpen,
            Some(_) => BreakerState::Open,
        }
    }

    pub(super) fn opened(&self) -> u64 {
        self.opened
    }

    fn count(&mut self, health: Health, now: Timestamp) {
        match health {
            Health::Good => self.consecutive = 0,
            Health::Bad => self.consecutive += 1,
            Health::Overloaded => {}
            Health::Unknown => return,
        }
        let failed = health != Health::Good;
        self.window.push_back((now, failed));
        self.failed += usize::from(failed);
        while let Some((at, failed)) = self.window.front()
            && now.since(*at) > WINDOW
        {
            self.failed -= usize::from(*failed);
            self.window.pop_front();
        }
    }

    fn trips(&self) -> bool {
        let many = self.window.len() >= MIN_SAMPLES && 2 * self.failed >= self.window.len();
        many || self.consecutive >= MAX_CONSECUTIVE
    }

    fn open(&mut self, now: Timestamp, random: &mut Random) {
        self.open = Some(Open {
            probe_at: now.after_seconds(FIRST_GAP_S * random.between(0.9, 1.1)),
            gap_s: FIRST_GAP_S * GROWTH,
            successes: 0,
            probing: false,
        });
        self.opened += 1;
        self.change(now);
    }

    fn close(&mut self, now: Timestamp) {
        self.open = None;
        self.change(now);
    }

    fn change(&mut self, now: Timestamp) {
        self.changed_at = now;
        self.consecutive = 0;
        self.window.clear();
        self.failed = 0;
    }
}

impl Open {
    fn record(&mut self, health: Health, now: Timestamp) {
        match health {
            Health::Good => {
                self.successes += 1;
                self.probe_at = now;
            }
            Health::Bad | Health::Overloaded => self.successes = 0,
            // It said nothing, so another probe may be sent.
            Health::Unknown => self.probe_at = now,
        }
    }
}

const MAX_CONSECUTIVE: u32 = 5;
const MIN_SAMPLES: usize = 20;
const WINDOW: Duration = Duration::from_secs(10);
const FIRST_GAP_S: f64 = 1.0;
const GROWTH: f64 = 1.6;
const MAX_GAP_S: f64 = 4.0;
const TO_CLOSE: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn end(breaker: &mut Breaker, health: Health, sent: u64, now: u64) -> bool {
        let at = Timestamp::from_millis;
        breaker.attempt_ended(health, at(sent), at(now), &mut Random::from_seed(1))
    }

    #[test]
    fn opens_after_five_failures_and_closes_after_three_successes() {
        let mut breaker = Breaker::default();
        for now in 1..=5 {
            assert_eq!(breaker.state(), BreakerState::Closed);
            end(&mut breaker, Health::Bad, now, now);
        }
        assert_eq!(breaker.state(), BreakerState::Open);
        let probe_at = breaker.probe_at().unwrap().seconds_since(Timestamp::ZERO);
        assert!((0.9..1.2).contains(&probe_at));
        assert!(!end(&mut breaker, Health::Good, 4, 900), "sent before");
        breaker.sent(Timestamp::from_millis(1100), &mut Random::from_seed(1));
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        assert!(!end(&mut breaker, Health::Good, 1100, 1200));
        assert_eq!(breaker.probe_at(), Some(Timestamp::from_millis(1200)));
        assert!(!end(&mut breaker, Health::Good, 1200, 1300));
        assert!(end(&mut breaker, Health::Good, 1300, 1400));
        assert_eq!(
            (breaker.state(), breaker.opened()),
            (BreakerState::Closed, 1)
        );
    }

    #[test]
    fn opens_at_half_of_twenty_and_ignores_refusals() {
        let mut breaker = Breaker::default();
        for now in 1..20 {
            let health = if now % 2 == 0 {
                Health::Good
            } else {
                Health::Overloaded
            };
            end(&mut breaker, health, now, now);
            end(&mut breaker, Health::Unknown, now, now);
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
        end(&mut breaker, Health::Good, 20, 20);
        assert_eq!(breaker.state(), BreakerState::Open);
    }
}
