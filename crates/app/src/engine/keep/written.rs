//! What the store is known to have, and what has to be told to it.
//!
//! Reading a record and handing it to the store is one step under one lock, so that an older record
//! never comes after a newer one. The disk is waited for when the lock is free.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use policy::time::WallTime;
use store::{Change, KeptEndpoint, KeptGate};
use tidegate::{GateRecord, LadderRecord, Limiter};

use super::mark::{Care, EndpointMark, GateMark};
use crate::engine::Served;
use crate::redact::Text;

/// What the store is known to have. `None` for what has a row of which nothing is known, because a
/// write failed.
#[derive(Debug, Default)]
pub(super) struct Written {
    gates: HashMap<Box<str>, Option<GateMark>>,
    endpoints: BTreeMap<Place, Option<EndpointMark>>,
    /// Endpoints that somebody else is writing at the moment.
    in_hand: BTreeSet<Place>,
}

/// Pool and name of an endpoint.
pub(super) type Place = (String, String);

impl Written {
    /// A gate that the store has had since before the start.
    pub(super) fn know_gate(&mut self, gate: &KeptGate) {
        let mark = GateMark::of(&gate.record, gate.at);
        self.gates.insert(gate.key.as_str().into(), Some(mark));
    }

    /// An endpoint that the store has had since before the start.
    pub(super) fn know_endpoint(&mut self, endpoint: &KeptEndpoint) {
        let place = (endpoint.pool.clone(), endpoint.name.clone());
        let mark = EndpointMark::of(&endpoint.record, endpoint.at);
        self.endpoints.insert(place, Some(mark));
    }

    /// A write failed: nobody knows any more what is there.
    pub(super) fn doubt_all(&mut self) {
        self.gates.values_mut().for_each(|mark| *mark = None);
        self.endpoints.values_mut().for_each(|mark| *mark = None);
    }

    /// Somebody else writes this endpoint now.
    pub(super) fn take_in_hand(&mut self, place: Place) {
        self.in_hand.insert(place);
    }

    /// Somebody else wrote this endpoint, or did not.
    pub(super) fn let_go(&mut self, place: &Place) {
        self.in_hand.remove(place);
        if let Some(mark) = self.endpoints.get_mut(place) {
            *mark = None;
        }
    }

    /// Would writing this record change anything?
    pub(super) fn is_news(&self, key: &str, record: &GateRecord, care: Care, at: WallTime) -> bool {
        let Some(Some(mark)) = self.gates.get(key) else {
            return true;
        };
        mark.differs(&GateMark::of(record, at), care, at)
    }

    /// Gates that the store has and the limiter has not: nobody has used them for long. `live` is
    /// how many gates the limiter has, and `news` are those of them that are worth a write.
    pub(super) fn gone(&self, limiter: &Limiter, live: usize, news: &[String]) -> Vec<String> {
        let is_new = |key: &&String| !self.gates.contains_key(key.as_str());
        let new = news.iter().filter(is_new).count();
        if self.gates.len() + new <= live {
            return Vec::new();
        }
        let keys = self.gates.keys();
        let gone = keys.filter(|key| limiter.record(key).is_none());
        gone.map(ToString::to_string).collect()
    }

    /// What to tell the store about these gates: as they are, or that they are gone.
    pub(super) fn gate_changes<'k>(
        &mut self,
        limiter: &Limiter,
        keys: impl Iterator<Item = &'k str>,
    ) -> Vec<Change> {
        keys.filter_map(|key| self.gate_change(limiter, key))
            .collect()
    }

    fn gate_change(&mut self, limiter: &Limiter, key: &str) -> Option<Change> {
        let Some(record) = limiter.record(key) else {
            let is_stored = self.gates.remove(key).is_some();
            let key = key.to_owned();
            return is_stored.then_some(Change::ForgetGate { key });
        };
        let at = written_at(limiter);
        let mark = GateMark::of(&record, at);
        self.gates.insert(key.into(), Some(mark));
        let key = key.to_owned();
        Some(Change::Gate(KeptGate { key, record, at }))
    }

    /// What to tell the store about the endpoints of these pools, if it is news.
    pub(super) fn pool_changes<'p>(
        &mut self,
        served: &Served,
        limiter: &Limiter,
        pools: impl Iterator<Item = &'p str>,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        for name in pools {
            let Some(route) = served.route(name) else {
                continue;
            };
            for (endpoint, record) in route.pool.records() {
                let place = (name.to_owned(), endpoint);
                changes.extend(self.endpoint_change(limiter, place, record));
            }
        }
        changes
    }

    fn endpoint_change(
        &mut self,
        limiter: &Limiter,
        place: Place,
        record: LadderRecord,
    ) -> Option<Change> {
        if self.in_hand.contains(&place) {
            return None;
        }
        let record = fit_to_store(record);
        let at = written_at(limiter);
        let mark = EndpointMark::of(&record, at);
        let known = self.endpoints.get(&place);
        if let Some(Some(known)) = known
            && !known.differs(&mark, at)
        {
            return None;
        }
        let (pool, name) = place.clone();
        self.endpoints.insert(place, Some(mark));
        Some(Change::Endpoint(KeptEndpoint {
            pool,
            name,
            record,
            at,
        }))
    }

    /// What to tell the store about endpoints that are not served any more.
    pub(super) fn endpoints_gone(&mut self, served: &Served) -> Vec<Change> {
        let mut live = BTreeSet::new();
        for (pool, route) in served.routes() {
            let endpoints = route.pool.view().into_iter();
            live.extend(endpoints.map(|endpoint| (pool.to_owned(), endpoint.name)));
        }
        let mut gone = Vec::new();
        self.endpoints.retain(|place, _| {
            let stays = live.contains(place) || self.in_hand.contains(place);
            if !stays {
                let (pool, name) = place.clone();
                gone.push(Change::ForgetEndpoint { pool, name });
            }
            stays
        });
        gone
    }
}

/// The calendar's time for a record that was read just now, in whole milliseconds and rounded up:
/// so a hold that comes back may end by that much later, and never earlier.
fn written_at(limiter: &Limiter) -> WallTime {
    let now = limiter.clock().wall();
    WallTime::from_unix_millis(now.as_unix_millis().saturating_add(1))
}

/// A record without what a server's words may give away.
pub(in crate::engine) fn fit_to_store(record: LadderRecord) -> LadderRecord {
    let shown = |text: &str| Text::new(text).to_string().into_boxed_str();
    LadderRecord {
        last_error: record.last_error.as_deref().map(shown),
        ..record
    }
}
