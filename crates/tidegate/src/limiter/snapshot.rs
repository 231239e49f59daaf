//! Snapshots of a limiter.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use policy::breaker::BreakerState;
use policy::fleet::MemberView;
use policy::gate::GateSnapshot;
use policy::rate::Strategy;

use super::Limiter;

/// The order of gates in a snapshot, highest first. Ties are ordered by key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sort {
    /// Permits granted. The default.
    #[default]
    Admitted,
    /// Waiting asks.
    Waiting,
    /// Attempts in flight.
    InFlight,
    /// The error rate.
    ErrorRate,
    /// The rate per second.
    Rate,
    /// The key, in alphabetical order.
    Key,
}

impl Sort {
    /// All orders.
    pub const ALL: &'static [Self] = &[
        Self::Admitted,
        Self::Waiting,
        Self::InFlight,
        Self::ErrorRate,
        Self::Rate,
        Self::Key,
    ];

    /// The name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Waiting => "waiting",
            Self::InFlight => "in_flight",
            Self::ErrorRate => "error_rate",
            Self::Rate => "rate",
            Self::Key => "key",
        }
    }

    /// The sort weight of a gate, before its key; higher comes first.
    fn weight(self, gate: &GateSnapshot) -> f64 {
        match self {
            Self::Admitted => f64::from(gate.admitted),
            Self::Waiting => f64::from(gate.waiting),
            Self::InFlight => f64::from(gate.in_flight),
            Self::ErrorRate => gate.window.error_rate(),
            Self::Rate => gate.rate,
            Self::Key => 0.0,
        }
    }
}

/// A snapshot of a limiter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Totals over all gates.
    pub totals: Totals,
    /// How many gates match; all of them unless some were left out.
    pub matching: usize,
    /// The first gates in the requested order.
    pub gates: Vec<GateView>,
}

/// Totals over all gates. Counters start when the limiter is built and include evicted gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Asks.
    pub requests: u64,
    /// Asks admitted after waiting longer than `throttled_after`.
    pub throttled: u64,
    /// Asks refused, at once or after waiting.
    pub denied: u64,
    /// Attempts that were retries.
    pub retries: u64,
    /// Second attempts made while the first had not been answered, see
    /// [`Call::hedge`](crate::Call::hedge).
    pub hedges: u64,
    /// Those that succeeded before the first.
    pub hedges_won: u64,
    /// Gates that are Open or Isolated now.
    pub open: u64,
    /// Gates that are HalfOpen now.
    pub half_open: u64,
    /// Gates that exist now.
    pub gates: u64,
    /// Gates evicted so far.
    pub evicted: u64,
    /// Attempts in flight now.
    pub in_flight: u64,
    /// Asks waiting in lines now.
    pub waiting: u64,
    /// Gates that are held now.
    pub held: u64,
    /// Gates that are Isolated now; `open` has them too.
    pub isolated: u64,
    /// Attempts that succeeded.
    pub accepted: u64,
    /// Attempts that the server refused because they came too fast, or because a quota is used up.
    pub refused: u64,
    /// Attempts that failed otherwise.
    pub failed: u64,
}

/// A snapshot of one gate.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GateView {
    /// The gate's key.
    pub key: String,
    /// Its rate strategy.
    pub strategy: Strategy,
    /// Its state.
    pub gate: GateSnapshot,
    /// What the fleet says of it, if its key is shared; the rate of `gate` is this node's part then.
    pub fleet: Option<MemberView>,
}

impl Limiter {
    /// Totals, and the first `limit` gates in the order of `sort`. Holds each lock for a few gates
    /// at a time, so traffic continues meanwhile.
    pub fn snapshot(&self, sort: Sort, limit: usize) -> Snapshot {
        self.select(0, limit, |_, gate| Some(sort.weight(gate)))
    }

    /// Totals, and `limit` gates after the first `offset` of those that `weigh` gives a weight:
    /// highest first, ties by key. Holds each lock for a few gates at a time; `weigh` is called with
    /// a lock held, so it has to be quick.
    pub fn select(
        &self,
        offset: usize,
        limit: usize,
        mut weigh: impl FnMut(&str, &GateSnapshot) -> Option<f64>,
    ) -> Snapshot {
        let mut totals = self.counted();
        let mut first = First::new(if offset == 0 { limit } else { 0 });
        let mut ranks = Vec::new();
        let mut matching = 0;
        self.each_gate(|shard, index, now| {
            totals.gates += 1;
            let seen = shard.look(index, now);
            let fleet = shard.member_view(index, now);
            let key = shard.key(index);
            totals.in_flight += u64::from(seen.in_flight);
            totals.waiting += u64::from(seen.waiting);
            match seen.breaker {
                BreakerState::Open => totals.open += 1,
                BreakerState::Isolated => {
                    totals.open += 1;
                    totals.isolated += 1;
                }
                BreakerState::HalfOpen => totals.half_open += 1,
                BreakerState::Closed => {}
            }
            totals.held += u64::from(seen.hold.is_some());
            totals.accepted += u64::from(seen.succeeded);
            totals.refused += u64::from(seen.throttled);
            totals.failed += u64::from(seen.failed);
            if let Some(weight) = weigh(key, &seen) {
                matching += 1;
                match offset {
                    0 => first.offer(weight, key, || view(key, seen, fleet)),
                    _ => ranks.push(Rank::new(weight, key)),
                }
            }
        });
        let gates = match offset {
            0 => first.views.into_values().collect(),
            // Only the page is sorted and looked at again.
            _ => {
                let page = page(&mut ranks, offset, limit).iter();
                page.filter_map(|rank| self.gate(&rank.key)).collect()
            }
        };
        Snapshot {
            totals,
            matching,
            gates,
        }
    }

    /// A snapshot of one gate.
    pub fn gate(&self, key: &str) -> Option<GateView> {
        let now = self.inner.clock.now();
        let (mut shard, location) = self.known_gate(key)?;
        let seen = shard.look(location.slot, now);
        let fleet = shard.member_view(location.slot, now);
        Some(view(shard.key(location.slot), seen, fleet))
    }

    fn counted(&self) -> Totals {
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        let mut totals = Totals {
            retries: load(&self.inner.retries),
            hedges: load(&self.inner.hedges),
            hedges_won: load(&self.inner.hedges_won),
            ..Totals::default()
        };
        for number in 0..self.inner.registry.shards() {
            let counts = self.inner.registry.lock(number).counts;
            totals.requests += counts.requests;
            totals.throttled += counts.throttled;
            totals.denied += counts.denied;
            totals.evicted += counts.evicted;
            let [accepted, refused, failed] = counts.evicted_results;
            totals.accepted += accepted;
            totals.refused += refused;
            totals.failed += failed;
        }
        totals
    }
}

fn view(key: &str, gate: GateSnapshot, fleet: Option<MemberView>) -> GateView {
    GateView {
        key: key.to_owned(),
        strategy: gate.strategy,
        gate,
        fleet,
    }
}

/// Selects the first few of many without storing the rest.
struct First {
    limit: usize,
    views: BTreeMap<Rank, GateView>,
}

impl First {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            views: BTreeMap::new(),
        }
    }

    fn offer(&mut self, weight: f64, key: &str, view: impl FnOnce() -> GateView) {
        let is_full = self.views.len() >= self.limit;
        let ranks_after_last = self.views.last_key_value().is_none_or(|(last, _)| {
            last.weight
                .total_cmp(&weight)
                .then_with(|| key.cmp(&last.key))
                != Ordering::Less
        });
        if is_full && ranks_after_last {
            return;
        }
        self.views.insert(Rank::new(weight, key), view());
        if self.views.len() > self.limit {
            self.views.pop_last();
        }
    }
}

/// A gate's position in the order: highest weight first, ties by key.
#[derive(Clone, Debug, PartialEq)]
struct Rank {
    weight: f64,
    key: String,
}

impl Rank {
    fn new(weight: f64, key: &str) -> Self {
        let key = key.to_owned();
        Self { weight, key }
    }
}

/// The ranks from `offset` on, at most `limit`, in order.
fn page(ranks: &mut [Rank], offset: usize, limit: usize) -> &[Rank] {
    if offset >= ranks.len() {
        return &[];
    }
    ranks.select_nth_unstable(offset);
    let rest = &mut ranks[offset..];
    let limit = limit.min(rest.len());
    if limit < rest.len() {
        rest.select_nth_unstable(limit);
    }
    let page = &mut rest[..limit];
    page.sort_unstable();
    page
}

impl Eq for Rank {}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_weight = other.weight.total_cmp(&self.weight);
        by_weight.then_with(|| self.key.cmp(&other.key))
    }
}
