//! What a client has to send: an endless backlog, a rate, or a total.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use policy::duration::{self, Exact};
use policy::setting;
use policy::time::Timestamp;

use crate::whole;

/// How much there is to send.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Backlog {
    /// There is always more.
    #[default]
    Endless,
    /// Requests per second, evenly spaced, the first at the start.
    PerSecond(f64),
    /// This many at the start and no more.
    Total(u64),
}

impl FromStr for Backlog {
    type Err = &'static str;

    /// Reads `endless`, `30/s` or a total.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        /// More than anyone waits for.
        const MAX_REQUESTS: u64 = 1_000_000_000;
        const EXPECTED: &str =
            "`endless`, requests per second such as `30/s`, or a total such as `1000`";
        if text == "endless" {
            return Ok(Self::Endless);
        }
        if let Some(rate) = text.strip_suffix("/s") {
            let rate = setting::number(rate.trim()).filter(|rate| *rate > 0.0 && *rate <= 1e6);
            return rate.map(Self::PerSecond).ok_or(EXPECTED);
        }
        let total = setting::number(text).filter(|total| (1..=MAX_REQUESTS).contains(total));
        total.map(Self::Total).ok_or(EXPECTED)
    }
}

impl fmt::Display for Backlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endless => f.write_str("endless"),
            Self::PerSecond(rate) => write!(f, "{rate}/s"),
            Self::Total(total) => write!(f, "{total}"),
        }
    }
}

/// When a client starts: at random between two times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// The earliest start.
    pub from: Duration,
    /// The start is before this; if it is not after `from`, the start is `from`.
    pub to: Duration,
}

impl FromStr for Start {
    type Err = &'static str;

    /// Reads one time, or two separated by `..`.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "a duration such as `5s`, or two such as `0s..20s`";
        let moment = |text: &str| duration::parse(text.trim()).map_err(|_| EXPECTED);
        let (from, to) = text.split_once("..").unwrap_or((text, text));
        let (from, to) = (moment(from)?, moment(to)?);
        if to < from {
            return Err("two durations of which the second is no shorter than the first");
        }
        Ok(Self { from, to })
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", Exact(self.from), Exact(self.to))
    }
}

policy::setting_values!(Backlog, Start);

impl Start {
    /// The start for a random `unit` in [0, 1).
    pub fn at(&self, unit: f64) -> Timestamp {
        let spread = self.to.saturating_sub(self.from);
        (Timestamp::ZERO + self.from).after_seconds(spread.as_secs_f64() * unit)
    }
}

/// What a client has to send.
#[derive(Clone, Debug)]
pub struct Load {
    backlog: Backlog,
    start: Timestamp,
    /// Requests taken and not put back.
    taken: u64,
    /// Whether each request is sent many times, even if it is accepted.
    repeats: bool,
}

impl Load {
    /// A backlog that starts at `start`.
    pub fn new(backlog: Backlog, start: Timestamp) -> Self {
        Self {
            backlog,
            start,
            taken: 0,
            repeats: false,
        }
    }

    /// Makes each request be sent many times, like the polls of a job. The number of requests is
    /// then not known in advance.
    #[must_use]
    pub fn repeating(self) -> Self {
        Self {
            repeats: true,
            ..self
        }
    }

    /// When it starts.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// Whether there is a request at `now`.
    pub fn has(&self, now: Timestamp) -> bool {
        now >= self.start
            && match self.backlog {
                Backlog::Endless => true,
                Backlog::Total(total) => self.taken < total,
                Backlog::PerSecond(_) => self.arrival(self.taken) <= now,
            }
    }

    /// When the next request arrives, if the backlog is empty and nothing is put back.
    pub fn next_arrival(&self) -> Option<Timestamp> {
        match self.backlog {
            Backlog::PerSecond(_) => Some(self.arrival(self.taken)),
            Backlog::Endless | Backlog::Total(_) => None,
        }
    }

    /// Takes a request.
    pub fn take(&mut self) {
        self.taken += 1;
    }

    /// Puts a request back.
    pub fn put_back(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    /// How many requests arrived before `at`; `None` if they are endless or not known in advance.
    pub fn arrived_before(&self, at: Timestamp) -> Option<u64> {
        if self.repeats {
            return None;
        }
        match self.backlog {
            Backlog::Endless => None,
            Backlog::Total(total) if at > self.start => Some(total),
            Backlog::Total(_) => Some(0),
            Backlog::PerSecond(rate) => {
                // Rounding makes the estimate off by at most one.
                let mut count = whole(at.seconds_since(self.start) * rate);
                while count > 0 && self.arrival(count - 1) >= at {
                    count -= 1;
                }
                while self.arrival(count) < at {
                    count += 1;
                }
                Some(count)
            }
        }
    }

    /// When request `index`, counted from 0, arrives.
    fn arrival(&self, index: u64) -> Timestamp {
        match self.backlog {
            Backlog::PerSecond(rate) => self.start.after_seconds(index as f64 / rate),
            Backlog::Endless | Backlog::Total(_) => self.start,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(10);

    #[test]
    fn arrivals_per_second_are_evenly_spaced_from_the_start() {
        let mut load = Load::new(Backlog::PerSecond(4.0), START);
        let mut arrivals = Vec::new();
        for _ in 0..4 {
            let at = load.next_arrival().unwrap();
            assert!(load.has(at) && !load.has(Timestamp::from_nanos(at.as_nanos() - 1)));
            arrivals.push(at.as_nanos() / 1_000_000);
            load.take();
        }
        assert_eq!(arrivals, [10_000, 10_250, 10_500, 10_750]);
        load.put_back();
        assert_eq!(load.next_arrival(), Some(Timestamp::from_millis(10_750)));
        let arrived = [9_000, 10_000, 10_001, 10_500, 10_501, 20_000]
            .map(|millis| load.arrived_before(Timestamp::from_millis(millis)).unwrap());
        assert_eq!(arrived, [0, 0, 1, 2, 3, 40]);
    }

    #[test]
    fn counts_arrivals_exactly_at_any_rate() {
        for rate in [0.3, 3.0, 7.7, 333.3] {
            let load = Load::new(Backlog::PerSecond(rate), START);
            for index in 0..1000 {
                let at = load.arrival(index);
                assert_eq!(load.arrived_before(at), Some(index), "{rate}");
                assert_eq!(
                    load.arrived_before(at + Duration::from_nanos(1)),
                    Some(index + 1)
                );
            }
        }
    }

    #[test]
    fn total_is_available_at_the_start_and_ends() {
        let mut load = Load::new(Backlog::Total(2), START);
        assert!(!load.has(Timestamp::from_secs(9)) && load.has(START));
        load.take();
        load.take();
        assert!(!load.has(START));
        load.put_back();
        assert!(load.has(START));
        assert_eq!(load.next_arrival(), None);
        assert_eq!(load.arrived_before(START), Some(0));
        assert_eq!(load.arrived_before(Timestamp::from_secs(11)), Some(2));
    }

    #[test]
    fn endless_load_never_ends_and_start_is_spread() {
        let mut load = Load::new(Backlog::Endless, START);
        load.take();
        assert!(load.has(START) && load.arrived_before(START).is_none());
        let start = Start {
            from: Duration::from_secs(5),
            to: Duration::from_secs(20),
        };
        assert_eq!(start.at(0.0), Timestamp::from_secs(5));
        assert_eq!(start.at(0.5), Timestamp::from_millis(12_500));
        assert_eq!(Start::default().at(0.9), Timestamp::ZERO);
    }
}
