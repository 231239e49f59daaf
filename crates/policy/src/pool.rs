//! Pools: interchangeable endpoints, and which of them gets the next request.
//!
//! A pool owns the [ladders](crate::ladder) of its endpoints and counts the requests in flight at
//! each. It does not own gates: the caller of [`Pool::choose`] supplies when each gate admits a
//! request, and gets an endpoint that is enabled, not paused and admitted by its gate, or the
//! earliest time at which there will be one.
//!
//! An endpoint whose pause has ended is *recovering*: it gets one request at a time until one
//! succeeds, because the whole backlog would overload it again. Requests sent before the pause do
//! not count for this: they may hang, and say nothing about the endpoint now. A request without a
//! result counts as lost after two minutes, so that it cannot block the endpoint.
//!
//! Choosing checks every endpoint once; [`Pool::MAX_ENDPOINTS`] bounds the work.

mod choice;

use std::time::Duration;

pub use choice::{Choice, GateState, Lease, Unusable};

use crate::ladder::{EndpointResult, Ladder, LadderRecord, LadderSettings, LadderStep};
use crate::time::Timestamp;

/// How a pool chooses among usable endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// The endpoint with the fewest requests in flight; on a tie, the least recently chosen. The
    /// default.
    #[default]
    LeastLoaded,
    /// The least recently chosen endpoint.
    RoundRobin,
    /// The first usable endpoint of the list.
    First,
}

crate::words! {
    pub Balance { LeastLoaded = "least_loaded", RoundRobin = "round_robin", First = "first" }
}

/// Identifies an endpoint of one pool; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(u64);

/// Interchangeable endpoints, each with the caller's data `D`.
///
/// ```
/// use tidegate_policy::ladder::{EndpointResult, LadderSettings};
/// use tidegate_policy::pool::{Balance, Choice, Pool};
/// use tidegate_policy::time::Timestamp;
///
/// let settings = LadderSettings::default();
/// let mut pool = Pool::new(Balance::LeastLoaded);
/// let a = pool.add("a").unwrap();
/// let b = pool.add("b").unwrap();
/// let now = Timestamp::ZERO;
/// let Choice::Send(lease) = pool.choose(&settings, now, |_| now) else { unreachable!() };
/// assert_eq!(lease.endpoint(), a);
/// pool.settle(&settings, lease, &EndpointResult::status(429), now);
/// // The first is paused, so the other gets the request.
/// let Choice::Send(lease) = pool.choose(&settings, now, |_| now) else { unreachable!() };
/// assert_eq!(lease.endpoint(), b);
/// pool.abandon(lease);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Pool<D = ()> {
    balance: Balance,
    endpoints: Vec<Endpoint<D>>,
    /// The number of endpoints ever added: the next id.
    added: u64,
    /// The number of choices so far.
    choices: u64,
}

/// One member of a pool. What every choice reads comes first, so that small data shares its cache
/// line.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Endpoint<D = ()> {
    /// That of the ladder, which is not read for endpoints without errors.
    is_clear: bool,
    in_flight: u32,
    /// The number of the last choice of this endpoint; zero if never chosen.
    last_choice: u64,
    id: EndpointId,
    data: D,
    /// When the last request was sent.
    sent_at: Timestamp,
    /// Requests in flight that were sent in the ladder's current epoch. Means nothing while the
    /// ladder is clear: an error starts a new epoch.
    in_epoch: u32,
    ladder: Ladder,
    name: Box<str>,
}

impl Pool {
    /// Few enough to check all of them for every request.
    pub const MAX_ENDPOINTS: usize = 1000;

    /// Appends an endpoint without data; `None` if the name is taken or the pool is full.
    pub fn add(&mut self, name: &str) -> Option<EndpointId> {
        self.restore(name, LadderRecord::default(), Timestamp::ZERO)
    }

    /// Appends an endpoint without data, with its state from before a restart.
    pub fn restore(
        &mut self,
        name: &str,
        record: LadderRecord,
        now: Timestamp,
    ) -> Option<EndpointId> {
        self.insert_with(name, record, now, |_| ())
    }
}

impl<D> Pool<D> {
    /// An empty pool.
    pub const fn new(balance: Balance) -> Self {
        Self {
            balance,
            endpoints: Vec::new(),
            added: 0,
            choices: 0,
        }
    }

    /// How it chooses among usable endpoints.
    pub fn balance(&self) -> Balance {
        self.balance
    }

    /// Changes how it chooses.
    pub fn set_balance(&mut self, balance: Balance) {
        self.balance = balance;
    }

    /// Moves the endpoints with these names to the front, in this order; the others keep their
    /// order.
    pub fn reorder(&mut self, names: &[&str]) {
        let position =
            |endpoint: &Endpoint<D>| names.iter().position(|name| *name == &*endpoint.name);
        self.endpoints
            .sort_by_key(|endpoint| position(endpoint).unwrap_or(usize::MAX));
    }

    /// Appends an endpoint with its state, for example from before a restart, and the data that
    /// `data` returns for its id; `None` if the name is taken or the pool is full.
    pub fn insert_with(
        &mut self,
        name: &str,
        record: LadderRecord,
        now: Timestamp,
        data: impl FnOnce(EndpointId) -> D,
    ) -> Option<EndpointId> {
        if self.endpoints.len() >= Pool::MAX_ENDPOINTS || self.find(name).is_some() {
            return None;
        }
        let id = EndpointId(self.added);
        self.added += 1;
        let ladder = Ladder::restore(record, now);
        self.endpoints.push(Endpoint {
            is_clear: ladder.is_clear(),
            in_flight: 0,
            last_choice: 0,
            id,
            data: data(id),
            sent_at: Timestamp::ZERO,
            in_epoch: 0,
            ladder,
            name: name.into(),
        });
        Some(id)
    }

    /// Removes an endpoint. Results of its requests in flight are ignored.
    pub fn remove(&mut self, id: EndpointId) -> bool {
        let before = self.endpoints.len();
        self.endpoints.retain(|endpoint| endpoint.id != id);
        self.endpoints.len() < before
    }

    /// Enables an endpoint on behalf of a person and clears its error state.
    pub fn enable(&mut self, id: EndpointId) -> bool {
        self.override_ladder(id, Ladder::enable)
    }

    /// Disables an endpoint until a person enables it.
    pub fn disable(&mut self, id: EndpointId, now: Timestamp) -> bool {
        self.override_ladder(id, |ladder| ladder.disable(now))
    }

    /// Takes the state of an endpoint that another node has written. Returns whether it differs.
    pub fn adopt(&mut self, id: EndpointId, record: LadderRecord, now: Timestamp) -> bool {
        let Some(endpoint) = self.get_mut(id) else {
            return false;
        };
        let is_changed = endpoint.ladder.adopt(record, now);
        endpoint.is_clear = endpoint.ladder.is_clear();
        if is_changed {
            endpoint.in_epoch = 0;
        }
        is_changed
    }

    fn override_ladder(&mut self, id: EndpointId, act: impl FnOnce(&mut Ladder)) -> bool {
        let Some(endpoint) = self.get_mut(id) else {
            return false;
        };
        act(&mut endpoint.ladder);
        endpoint.is_clear = endpoint.ladder.is_clear();
        endpoint.in_epoch = 0;
        true
    }

    /// The endpoints, in list order.
    pub fn endpoints(&self) -> &[Endpoint<D>] {
        &self.endpoints
    }

    /// The endpoint with this id, if it still exists.
    #[inline]
    pub fn get(&self, id: EndpointId) -> Option<&Endpoint<D>> {
        self.position(id).map(|index| &self.endpoints[index])
    }

    /// The endpoint with this name.
    pub fn find(&self, name: &str) -> Option<&Endpoint<D>> {
        self.endpoints
            .iter()
            .find(|endpoint| *endpoint.name == *name)
    }

    /// Why an endpoint is unusable at `now`, regardless of its gate; `None` if it is usable.
    pub fn unusable(
        &self,
        settings: &LadderSettings,
        id: EndpointId,
        now: Timestamp,
    ) -> Option<Unusable> {
        let protects = settings.protects(self.endpoints.len());
        self.get(id)?.unusable(protects, now)
    }

    /// Chooses the endpoint for the next request. `gate_of` returns the state of an endpoint's
    /// gate, or just when it would admit a request.
    ///
    /// Return the [`Lease`] with [`Pool::settle`] or [`Pool::abandon`].
    #[inline]
    pub fn choose<G: Into<GateState>>(
        &mut self,
        settings: &LadderSettings,
        now: Timestamp,
        mut gate_of: impl FnMut(&Endpoint<D>) -> G,
    ) -> Choice {
        let protects = settings.protects(self.endpoints.len());
        let mut best: Option<(Rank, usize)> = None;
        let mut earliest: Option<(Timestamp, usize)> = None;
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let (until, in_flight) = match endpoint.unusable(protects, now) {
                None => {
                    let gate = gate_of(endpoint).into();
                    (gate.opens_at, gate.in_flight)
                }
                Some(Unusable::Disabled(_)) => continue,
                Some(Unusable::Paused { until }) => {
                    (until.max(gate_of(endpoint).into().opens_at), None)
                }
                Some(Unusable::Recovering) => (Timestamp::MAX, None),
            };
            if until <= now {
                let rank = endpoint.rank(self.balance, in_flight);
                if best.is_none_or(|(least, _)| rank < least) {
                    best = Some((rank, index));
                }
            } else if earliest.is_none_or(|(first, _)| until < first) {
                earliest = Some((until, index));
            }
        }
        match (best, earliest) {
            (Some((_, index)), _) => Choice::Send(self.lease(index, now)),
            (None, Some((until, index))) => self.wait(protects, index, until, now),
            (None, None) => Choice::NoEndpoint,
        }
    }

    #[inline]
    fn lease(&mut self, index: usize, now: Timestamp) -> Lease {
        self.choices += 1;
        let endpoint = &mut self.endpoints[index];
        endpoint.last_choice = self.choices;
        endpoint.in_flight = endpoint.in_flight.saturating_add(1);
        endpoint.in_epoch = endpoint.in_epoch.saturating_add(1);
        endpoint.sent_at = now;
        Lease {
            endpoint: endpoint.id,
            epoch: endpoint.ladder.epoch(),
        }
    }

    fn wait(&self, protects: bool, index: usize, until: Timestamp, now: Timestamp) -> Choice {
        let endpoint = &self.endpoints[index];
        Choice::Wait {
            endpoint: endpoint.id,
            until: (until < Timestamp::MAX).then_some(until),
            reason: endpoint.unusable(protects, now),
        }
    }

    /// Returns a lease with the result of its attempt, and what that changed.
    ///
    /// A rejected credential counts only if there is another endpoint to use instead.
    pub fn settle(
        &mut self,
        settings: &LadderSettings,
        lease: Lease,
        result: &EndpointResult<'_>,
        now: Timestamp,
    ) -> LadderStep {
        let Some(index) = self.position(lease.endpoint) else {
            return LadderStep::Late;
        };
        self.endpoints[index].give_back(lease.epoch);
        self.climb(settings, index, lease.epoch, result, now)
    }

    /// Returns this many leases of an endpoint with successes that changed nothing else: its ladder
    /// [was clear](Ladder::is_clear) when they came. Unlike [`Pool::settle`], it can be called later
    /// and for several at once.
    pub fn settle_successes(&mut self, id: EndpointId, count: u32) {
        if let Some(endpoint) = self.get_mut(id) {
            endpoint.in_flight = endpoint.in_flight.saturating_sub(count);
            endpoint.in_epoch = endpoint.in_epoch.saturating_sub(count);
            endpoint.ladder.count_successes(count);
        }
    }

    /// Counts the credential of an endpoint as rejected by an attempt whose lease, of this `epoch`,
    /// was returned before that was known, as when a refresh fails.
    pub fn reject_credential(
        &mut self,
        settings: &LadderSettings,
        id: EndpointId,
        epoch: u32,
        result: &EndpointResult<'_>,
        now: Timestamp,
    ) -> LadderStep {
        let Some(index) = self.position(id) else {
            return LadderStep::Late;
        };
        let result = result.with_credential_rejected(true);
        self.climb(settings, index, epoch, &result, now)
    }

    fn climb(
        &mut self,
        settings: &LadderSettings,
        index: usize,
        epoch: u32,
        result: &EndpointResult<'_>,
        now: Timestamp,
    ) -> LadderStep {
        let endpoints = self.endpoints.len();
        if !settings.protects(endpoints) {
            return LadderStep::Unchanged;
        }
        let is_rejected = result.is_credential_rejected && endpoints >= 2;
        let result = result.with_credential_rejected(is_rejected);
        let endpoint = &mut self.endpoints[index];
        let before = endpoint.ladder.epoch();
        let step = endpoint.ladder.settle(settings, epoch, &result, now);
        endpoint.is_clear = endpoint.ladder.is_clear();
        if endpoint.ladder.epoch() != before {
            endpoint.in_epoch = 0;
        }
        step
    }

    /// Returns a lease whose attempt was not made or whose result is unknown.
    pub fn abandon(&mut self, lease: Lease) {
        if let Some(index) = self.position(lease.endpoint) {
            self.endpoints[index].give_back(lease.epoch);
        }
    }

    /// The data of an endpoint.
    pub fn data_mut(&mut self, id: EndpointId) -> Option<&mut D> {
        self.get_mut(id).map(|endpoint| &mut endpoint.data)
    }

    /// The place of an endpoint in the list: that in which it was added, unless others were removed
    /// or moved.
    #[inline]
    fn position(&self, id: EndpointId) -> Option<usize> {
        let has_id = |endpoint: &Endpoint<D>| endpoint.id == id;
        let added = usize::try_from(id.0).ok()?;
        if self.endpoints.get(added).is_some_and(has_id) {
            return Some(added);
        }
        self.endpoints.iter().position(has_id)
    }

    fn get_mut(&mut self, id: EndpointId) -> Option<&mut Endpoint<D>> {
        self.position(id).map(|index| &mut self.endpoints[index])
    }
}

impl<D> Endpoint<D> {
    /// Its id in the pool.
    pub fn id(&self) -> EndpointId {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The caller's data.
    pub fn data(&self) -> &D {
        &self.data
    }

    /// Its error state.
    pub fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// Requests in flight at this endpoint.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    #[inline]
    fn unusable(&self, protects: bool, now: Timestamp) -> Option<Unusable> {
        if self.is_clear {
            return None;
        }
        self.unusable_by_ladder(protects, now)
    }

    fn unusable_by_ladder(&self, protects: bool, now: Timestamp) -> Option<Unusable> {
        if let Some(reason) = self.ladder.disabled() {
            return Some(Unusable::Disabled(reason));
        }
        if !protects {
            return None;
        }
        let paused_until = self.ladder.paused_until().filter(|&until| now < until);
        if let Some(until) = paused_until {
            return Some(Unusable::Paused { until });
        }
        let has_request = self.in_epoch > 0 && now.since(self.sent_at) < LOST_AFTER;
        (self.ladder.is_recovering(now) && has_request).then_some(Unusable::Recovering)
    }

    /// The endpoint with the lowest rank is chosen.
    #[inline]
    fn rank(&self, balance: Balance, in_flight: Option<u32>) -> Rank {
        match balance {
            Balance::LeastLoaded => (in_flight.unwrap_or(self.in_flight), self.last_choice),
            Balance::RoundRobin => (0, self.last_choice),
            Balance::First => (0, 0),
        }
    }

    fn give_back(&mut self, epoch: u32) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if epoch == self.ladder.epoch() {
            self.in_epoch = self.in_epoch.saturating_sub(1);
        }
    }
}

type Rank = (u32, u64);

/// Longer than the usual timeouts of HTTP clients.
const LOST_AFTER: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests;
