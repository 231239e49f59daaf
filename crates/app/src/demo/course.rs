//! How the answers of one upstream came over time, as much of it as is shown.

use std::collections::VecDeque;
use std::time::Duration;

/// Looked at every tenth of a second; whatever the length of the run, it stays small.
#[derive(Clone, Debug)]
pub(super) struct Course {
    /// A limit is kept over whole stretches of this length, so found rates are those of whole ones.
    period: Duration,
    /// The last second: when, and how many were accepted in all.
    recent: VecDeque<Mark>,
    /// When a second first carried nine tenths of what is possible.
    reached: Option<Duration>,
    /// The first border of two periods from then on, and the last.
    first: Option<Mark>,
    last: Option<Mark>,
}

/// So many were accepted until then, and so many could have been.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Mark {
    pub(super) at: Duration,
    pub(super) accepted: u64,
    pub(super) possible: f64,
}

impl Course {
    pub(super) fn new(period: Duration) -> Self {
        Self {
            period,
            recent: VecDeque::new(),
            reached: None,
            first: None,
            last: None,
        }
    }

    /// Takes a look. Did it just reach what is possible?
    pub(super) fn look(&mut self, mark: Mark) -> bool {
        let before = self.recent.back().copied().unwrap_or_default();
        self.recent.push_back(mark);
        while self.recent.len() > 2 && mark.at - self.recent[1].at >= SPAN {
            self.recent.pop_front();
        }
        let first = self.recent.front().copied().unwrap_or_default();
        let (accepted, possible) = between(first, mark);
        let is_long = mark.at - first.at >= SPAN;
        let is_new = self.reached.is_none() && is_long && accepted >= NEARLY * possible;
        if is_new {
            self.reached = Some(mark.at);
        }
        self.mark_border(before, mark);
        is_new
    }

    fn mark_border(&mut self, before: Mark, mark: Mark) {
        let period = self.period.as_nanos().max(1);
        let is_border = before.at.as_nanos() / period != mark.at.as_nanos() / period;
        if self.reached.is_some() && is_border {
            self.first.get_or_insert(mark);
            self.last = Some(mark);
        }
    }

    /// Accepted per second, over the last second.
    pub(super) fn pace(&self) -> f64 {
        match (self.recent.front(), self.recent.back()) {
            (Some(first), Some(last)) => between(*first, *last).0,
            _ => 0.0,
        }
    }

    /// When it first carried nearly all that is possible.
    pub(super) fn reached(&self) -> Option<Duration> {
        self.reached
    }

    /// Accepted per second from then on, and what was possible, over whole periods; of a run too
    /// short for one, over all of it.
    pub(super) fn found(&self) -> (f64, f64) {
        match (self.first, self.last) {
            (Some(first), Some(last)) if last.at > first.at => between(first, last),
            _ => between(
                Mark::default(),
                self.recent.back().copied().unwrap_or_default(),
            ),
        }
    }
}

/// Shorter would tell of bursts, longer of what was.
const SPAN: Duration = Duration::from_secs(1);

const NEARLY: f64 = 0.9;

/// Accepted per second, and possible.
fn between(first: Mark, last: Mark) -> (f64, f64) {
    let seconds = (last.at - first.at).as_secs_f64();
    if seconds <= 0.0 {
        return (0.0, 0.0);
    }
    let accepted = (last.accepted - first.accepted) as f64;
    let possible = last.possible - first.possible;
    (accepted / seconds, possible / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks ten times a second for so many seconds, at `rate` per second.
    fn look_on(course: &mut Course, from: u64, seconds: u64, rate: u64) -> Vec<u64> {
        let ticks = (from * 10 + 1)..=((from + seconds) * 10);
        let marks = ticks.map(|tick| Mark {
            at: Duration::from_millis(tick * 100),
            accepted: tick * rate / 10,
            possible: tick as f64 * 5.0,
        });
        marks
            .filter(|mark| course.look(*mark))
            .map(|mark| mark.at.as_millis().try_into().unwrap())
            .collect()
    }

    #[test]
    fn it_is_reached_once_by_a_whole_second_of_nearly_all() {
        let mut course = Course::new(Duration::from_secs(1));
        assert!(look_on(&mut course, 0, 3, 20).is_empty());
        let mut course = Course::new(Duration::from_secs(1));
        assert_eq!(look_on(&mut course, 0, 5, 46), [1100]);
        assert_eq!(course.reached(), Some(Duration::from_millis(1100)));
        let (found, possible) = course.found();
        assert!((course.pace() - 46.0).abs() < 1.0 && (found - 46.0).abs() < 1e-9);
        assert!((possible - 50.0).abs() < 1e-9);
    }

    #[test]
    fn what_was_found_is_measured_over_whole_periods() {
        let mut course = Course::new(Duration::from_secs(10));
        look_on(&mut course, 0, 34, 50);
        let marks = (course.first.unwrap().at, course.last.unwrap().at);
        assert_eq!(marks, (Duration::from_secs(10), Duration::from_secs(30)));
    }

    #[test]
    fn without_a_look_there_is_nothing() {
        let course = Course::new(Duration::from_secs(1));
        assert!(course.pace() + course.found().0 < f64::MIN_POSITIVE);
    }
}
