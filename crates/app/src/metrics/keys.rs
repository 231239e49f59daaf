//! Attempts by key.
//!
//! Who is shown by name may change from one look to the next, and still no count may ever go back:
//! to whoever computes rates, that would be a restart. So what was counted between two looks goes
//! either to the key's own samples or to those of `_other`, and stays there: every attempt is in
//! one place, once.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use policy::outcome::Verdict;

use super::counter::Counter;
use super::family;
use super::histogram::{Histogram, Measured};
use super::text::Exposition;
use super::{Metrics, OTHER};

/// Where the attempts at one gate are counted.
#[derive(Debug, Default)]
pub struct KeyMetrics {
    /// In the order of [`Verdict::ALL`], then those without one.
    attempts: [Counter; VERDICTS],
    latency: Histogram,
}

const VERDICTS: usize = Verdict::ALL.len() + 1;

impl KeyMetrics {
    /// Counts an attempt: what came of it, and from sending to the answer's head or the failure.
    pub fn attempt(&self, verdict: Option<Verdict>, latency: Duration) {
        let index = verdict.map_or(VERDICTS - 1, |verdict| verdict as usize);
        self.attempts[index].increment();
        self.latency.observe(latency);
    }

    fn total(&self) -> u64 {
        self.attempts.iter().map(Counter::value).sum()
    }

    fn counted(&self) -> Counted {
        Counted {
            attempts: std::array::from_fn(|index| self.attempts[index].value()),
            latency: self.latency.measured(),
        }
    }
}

/// What was counted up to one moment.
#[derive(Clone, Debug, Default)]
struct Counted {
    attempts: [u64; VERDICTS],
    latency: Measured,
}

impl Counted {
    fn total(&self) -> u64 {
        self.attempts.iter().sum()
    }

    fn add_between(&mut self, before: &Self, after: &Self) {
        for (index, count) in self.attempts.iter_mut().enumerate() {
            *count += after.attempts[index] - before.attempts[index];
        }
        self.latency.add_between(&before.latency, &after.latency);
    }
}

/// All keys.
#[derive(Debug, Default)]
pub(super) struct Keys(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    keys: BTreeMap<Box<str>, Entry>,
    /// Where those count that found no room.
    crowd: Entry,
    /// What belongs to `_other`.
    other: Counted,
}

#[derive(Debug, Default)]
struct Entry {
    metrics: Arc<KeyMetrics>,
    /// At the last look.
    seen: Counted,
    /// What was counted between two looks of which the second showed it by name.
    shown: Counted,
    is_shown: bool,
    /// May somebody still count here?
    is_held: bool,
}

impl Keys {
    pub(super) fn named(&self, key: &str) -> Arc<KeyMetrics> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = state.keys.get(key) {
            return Arc::clone(&entry.metrics);
        }
        let is_full = state.keys.len() >= Metrics::MOST_KEYS;
        let entry = match is_full || key == OTHER {
            true => &state.crowd,
            false => state.keys.entry(key.into()).or_default(),
        };
        Arc::clone(&entry.metrics)
    }

    pub(super) fn render(&self, out: &mut Exposition) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.look();
        let shown = state.shown();
        let mut attempts = out.family(&family::ATTEMPTS);
        for (key, counted) in &shown {
            let words = Verdict::ALL.iter().map(|verdict| verdict.as_str());
            for (word, count) in words.chain(["none"]).zip(counted.attempts) {
                // What never happened is left out, but for success, so that a key can be seen.
                if count > 0 || word == Verdict::Success.as_str() {
                    attempts.number(&[key, word], count);
                }
            }
        }
        let mut latency = out.family(&family::LATENCY);
        for (key, counted) in &shown {
            latency.histogram(&[key], &counted.latency);
        }
    }
}

impl State {
    /// Decides who is shown, and to whom what was counted since the last look belongs.
    fn look(&mut self) {
        let mut entries: Vec<&mut Entry> = self.keys.values_mut().collect();
        // The keys come in order, so that of equals the first stays first.
        entries.sort_by_cached_key(|entry| Reverse(entry.metrics.total()));
        for (entry, rank) in entries.into_iter().zip(0..) {
            entry.look(rank < Metrics::MOST_SHOWN, &mut self.other);
        }
        self.crowd.look(false, &mut self.other);
        if self.keys.len() > Metrics::MOST_KEYS / 2 {
            self.keys.retain(|_, entry| entry.is_needed());
        }
    }

    /// What is shown, by key.
    fn shown(&self) -> Vec<(&str, &Counted)> {
        let entries = self.keys.iter().filter(|(_, entry)| entry.is_shown);
        let other = (self.other.total() > 0).then_some((OTHER, &self.other));
        entries
            .map(|(key, entry)| (&**key, &entry.shown))
            .chain(other)
            .collect()
    }
}

impl Entry {
    fn look(&mut self, is_shown: bool, other: &mut Counted) {
        // Asked first: whoever holds it may go on counting while it is read.
        self.is_held = Arc::strong_count(&self.metrics) > 1;
        self.is_shown = is_shown;
        let now = self.metrics.counted();
        let owner = if is_shown { &mut self.shown } else { other };
        owner.add_between(&self.seen, &now);
        self.seen = now;
    }

    /// Would anything be lost without it? What others were never shown is in `_other` by now.
    fn is_needed(&self) -> bool {
        self.is_held || self.is_shown || self.shown.total() > 0
    }
}
