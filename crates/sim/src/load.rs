//! What there is to send: without end, at a pace, or so many.

use std::time::Duration;

use policy::time::Timestamp;

use crate::number::whole;

/// How much there is to send, as it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Backlog {
    /// There is always more.
    #[default]
    Endless,
    /// So many arrive each second, evenly spaced, the first at the start.
    PerSecond(f64),
    /// So many are there at the start, and no more ever.
    Total(u64),
}

/// When a client begins: somewhere from the first to the second, drawn at random.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// At the earliest.
    pub from: Duration,
    /// Before this; if it is no later, exactly at `from`.
    pub to: Duration,
}

impl Start {
    /// The moment at `unit`, which runs over [0, 1).
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
    /// What was taken and did not come back.
    taken: u64,
    /// Is one thing sent over and over, even if it is accepted?
    repeats: bool,
}

impl Load {
    /// A backlog that begins at `start`.
    pub fn new(backlog: Backlog, start: Timestamp) -> Self {
        Self {
            backlog,
            start,
            taken: 0,
            repeats: false,
        }
    }

    /// The same, of things that are each sent many times, as the requests for a job's status are:
    /// nobody can say beforehand how many requests that makes.
    #[must_use]
    pub fn repeating(self) -> Self {
        Self {
            repeats: true,
            ..self
        }
    }

    /// When it begins.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// Is there anything to take at `now`?
    pub fn has(&self, now: Timestamp) -> bool {
        now >= self.start
            && match self.backlog {
                Backlog::Endless => true,
                Backlog::Total(total) => self.taken < total,
                Backlog::PerSecond(_) => self.arrival(self.taken) <= now,
            }
    }

    /// When there will be something to take if nothing comes back, now that there is nothing.
    pub fn next_arrival(&self) -> Option<Timestamp> {
        match self.backlog {
            Backlog::PerSecond(_) => Some(self.arrival(self.taken)),
            Backlog::Endless | Backlog::Total(_) => None,
        }
    }

    /// Takes one.
    pub fn take(&mut self) {
        self.taken += 1;
    }

    /// One that was taken is still to be sent.
    pub fn put_back(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    /// How many requests had arrived before `at`; `None` if there is no end, or nobody can say.
    pub fn arrived_before(&self, at: Timestamp) -> Option<u64> {
        if self.repeats {
            return None;
        }
        match self.backlog {
            Backlog::Endless => None,
            Backlog::Total(total) if at > self.start => Some(total),
            Backlog::Total(_) => Some(0),
            Backlog::PerSecond(rate) => {
                // A guess by one too low or too high at most, and then exactly.
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

    /// When number `index` arrives, counted from 0.
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
    fn arrivals_at_a_pace_are_evenly_spaced_from_the_start() {
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
    fn what_has_arrived_is_exact_at_any_pace() {
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
    fn a_total_is_there_at_the_start_and_ends() {
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
    fn an_endless_one_never_ends_and_a_start_is_spread() {
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
