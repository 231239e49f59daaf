//! Attempts by key.
//!
//! Which keys are shown by name is decided anew at each scrape, and still no count may go back,
//! because a drop of a counter reads as a restart. So an attempt counts where its key
//! is shown at that moment, in the key's own samples or in those of `_other`, and stays there:
//! every attempt is in one place, once.

use std::array;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use policy::outcome::Verdict;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use super::family::{self, Sample, histogram, observe};
use super::{Metrics, OTHER};

/// Where the attempts at one gate are counted.
#[derive(Debug)]
pub struct KeyMetrics {
    own: Attempts,
    other: Arc<Attempts>,
    is_shown: AtomicBool,
    /// All attempts, wherever they count: the rank of the key.
    total: AtomicU64,
}

impl KeyMetrics {
    fn new(other: Arc<Attempts>, is_shown: bool) -> Arc<Self> {
        Arc::new(Self {
            own: Attempts::default(),
            other,
            is_shown: AtomicBool::new(is_shown),
            total: AtomicU64::new(0),
        })
    }

    /// Counts an attempt: its verdict, and the time from sending to the head of the response or to
    /// the failure.
    pub fn attempt(&self, verdict: Option<Verdict>, latency: Duration) {
        self.total.fetch_add(1, Ordering::Relaxed);
        let attempts = match self.is_shown() {
            true => &self.own,
            false => &*self.other,
        };
        let index = verdict.map_or(VERDICTS - 1, |verdict| verdict as usize);
        attempts.by_verdict[index].inc();
        observe(&attempts.latency, latency);
    }

    fn is_shown(&self) -> bool {
        self.is_shown.load(Ordering::Relaxed)
    }
}

/// Attempts that are shown under one key.
#[derive(Debug)]
struct Attempts {
    /// In the order of [`Verdict::ALL`], then those without one.
    by_verdict: [Counter; VERDICTS],
    latency: Histogram,
}

const VERDICTS: usize = Verdict::ALL.len() + 1;

impl Attempts {
    fn is_empty(&self) -> bool {
        self.by_verdict.iter().all(|counter| counter.get() == 0)
    }
}

impl Default for Attempts {
    fn default() -> Self {
        Self {
            by_verdict: array::from_fn(|_| Counter::default()),
            latency: histogram(),
        }
    }
}

/// All keys.
#[derive(Debug)]
pub(super) struct Keys {
    keys: Mutex<BTreeMap<Box<str>, Arc<KeyMetrics>>>,
    /// For keys beyond the bound: never shown.
    beyond: Arc<KeyMetrics>,
}

impl Keys {
    pub(super) fn named(&self, key: &str) -> Arc<KeyMetrics> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(metrics) = keys.get(key) {
            return Arc::clone(metrics);
        }
        if keys.len() >= Metrics::MAX_KEYS || key == OTHER {
            return Arc::clone(&self.beyond);
        }
        let is_shown = keys.len() < Metrics::MAX_SHOWN;
        let metrics = KeyMetrics::new(Arc::clone(&self.beyond.other), is_shown);
        keys.insert(key.into(), Arc::clone(&metrics));
        metrics
    }
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            keys: Mutex::default(),
            beyond: KeyMetrics::new(Arc::default(), false),
        }
    }
}

impl Collector for Keys {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        rank(&keys);
        if keys.len() > Metrics::MAX_KEYS / 2 {
            keys.retain(|_, metrics| is_needed(metrics));
        }
        let shown = keys.iter().filter(|(_, metrics)| metrics.is_shown());
        let shown = shown.map(|(key, metrics)| (&**key, &metrics.own));
        let other = &*self.beyond.other;
        let other = (!other.is_empty()).then_some((OTHER, other));
        let shown: Vec<(&str, &Attempts)> = shown.chain(other).collect();

        let attempts = shown.iter().flat_map(|&(key, attempts)| {
            let verdicts = Verdict::ALL.iter().copied().map(Some).chain([None]);
            let counts = verdicts.zip(&attempts.by_verdict);
            counts.filter_map(move |(verdict, counter)| {
                let count = counter.get();
                // What never happened is left out, except success, so that every key is shown.
                let is_shown = count > 0 || verdict == Some(Verdict::Success);
                let word = verdict.map_or("none", Verdict::as_str);
                is_shown.then_some(([key, word], Sample::Number(count)))
            })
        });
        family::ATTEMPTS.encode(&mut encoder, attempts)?;
        let latencies = shown.iter();
        let latencies =
            latencies.map(|(key, attempts)| ([*key], Sample::Histogram(&attempts.latency)));
        family::LATENCY.encode(&mut encoder, latencies)
    }
}

/// Shows the keys with the most attempts; of equals those that are shown already, then by name.
fn rank(keys: &BTreeMap<Box<str>, Arc<KeyMetrics>>) {
    let mut all: Vec<&Arc<KeyMetrics>> = keys.values().collect();
    all.sort_by_cached_key(|metrics| {
        let total = metrics.total.load(Ordering::Relaxed);
        Reverse((total, metrics.is_shown()))
    });
    for (metrics, rank) in all.into_iter().zip(0..) {
        let is_shown = rank < Metrics::MAX_SHOWN;
        metrics.is_shown.store(is_shown, Ordering::Relaxed);
    }
}

/// Whether a count would be lost without it: what was counted in `_other` stays there.
fn is_needed(metrics: &Arc<KeyMetrics>) -> bool {
    Arc::strong_count(metrics) > 1 || metrics.is_shown() || !metrics.own.is_empty()
}
