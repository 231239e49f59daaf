//! The store's script, in Rust: what the store knows of one key, and what it answers.
//!
//! The real one is a Lua script; tests compare the two call by call. So this is written as a script
//! would be: numbers are floats as in Lua, times are microseconds of the store's clock, and a call
//! reads and writes one header and one lease. Only the owner's call reads all leases.
//!
//! What must hold whatever nodes do: no slot is before one that was given out earlier, serial numbers only
//! grow, shares add up to at most one, epoch, fence and hold never fall. A person's override may end a
//! hold and move the line back: nodes drop the slots that they have when they hear of it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{
    BreakerReply, Call, Claim, Feedback, FleetSettings, NodeId, Notice, Ownership, ProbeResult,
    RefusalKind, Reply, SlotBatch,
};
use crate::breaker::OPEN_GROWTH;
use crate::gate::{GateOverride, GateRecord};
use crate::time::{Timestamp, nanos, saturating_u64};

/// What the store knows of one key.
#[derive(Clone, Debug)]
pub struct Ledger {
    rate: f64,
    epoch: u32,
    /// The next free send time.
    line: f64,
    /// The last one that was given out.
    last: f64,
    /// The serial number of the slot that was given out last, counting requests sent without one.
    serial: u64,
    hold: f64,
    /// Whether only one request at a time is sent, and when the last one counts as lost.
    is_blind: bool,
    blind_until: f64,
    owner: NodeId,
    owner_until: f64,
    fence: u32,
    record: Option<GateRecord>,
    totals: Totals,
    shares: Shares,
    quota: Quota,
    breaker: FleetBreaker,
    /// How often a person has overridden the key.
    overrides: u32,
    leases: BTreeMap<NodeId, Lease>,
    /// The last call of any node.
    touched: f64,
    born: f64,
    /// Until then, nodes that claim a share get what they claim.
    learn_until: f64,
}

/// What one node has.
#[derive(Clone, Copy, Debug, Default)]
struct Lease {
    demand: f64,
    share: f64,
    until: f64,
    /// When it was last given slots.
    granted: f64,
}

/// [`Feedback`] as it is stored.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    sent: u64,
    accepted: u64,
    latency_sum: f64,
    late_accepted: u64,
    late_refused: u64,
    refusals: u64,
    refusal: RefusalKind,
    refused_at: f64,
    refusal_number: u64,
    /// Slots that were not used.
    skipped: u64,
    back: f64,
    closes: u64,
}

/// The division of the rate, as the owner's last call computed it.
#[derive(Clone, Copy, Debug)]
struct Shares {
    /// No node has more than this share, unless some is left over.
    level: f64,
    /// What each node gets of what none asks for.
    spare: f64,
    /// The sum of all shares.
    issued: f64,
    active: u32,
    demand: f64,
    counted: f64,
}

/// A quota of requests that the server tells.
#[derive(Clone, Copy, Debug, Default)]
struct Quota {
    /// The serial number of the last slot within the quota.
    last: u64,
    /// When the quota is renewed; zero if none is known.
    until: f64,
    /// The slot whose response told it.
    told_by: u64,
    /// How large it is and how long it lasts, as far as it was told.
    size: u64,
    period: f64,
    /// The end of the last one that was used up before its end.
    used_up_until: f64,
}

#[derive(Clone, Copy, Debug)]
struct FleetBreaker {
    state: State,
    /// The end of the open time.
    until: f64,
    /// The next open time.
    open_time: f64,
    /// The nodes that tripped last, and when.
    trips: [(NodeId, f64); MAX_TRIPS],
    probe_node: NodeId,
    probe_until: f64,
    successes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open,
    HalfOpen,
    Isolated,
}

/// So many nodes are enough evidence in a fleet of any size.
const MAX_TRIPS: usize = 3;

impl Ledger {
    /// A key that the store does not have yet. The first call of a node with a claim makes the
    /// store learn.
    pub fn new(settings: &FleetSettings, claim: Option<&Claim>, now: Timestamp) -> Self {
        let now = micros_since_origin(now);
        Self {
            rate: claim.map_or(settings.initial_rate, |claim| claim.rate),
            epoch: claim.map_or(1, |claim| claim.epoch),
            line: now,
            last: 0.0,
            serial: 0,
            hold: 0.0,
            is_blind: false,
            blind_until: 0.0,
            owner: NodeId(0),
            owner_until: 0.0,
            fence: 0,
            record: None,
            totals: Totals::default(),
            shares: Shares {
                level: 1.0,
                spare: 0.0,
                issued: 0.0,
                active: 1,
                demand: 0.0,
                counted: 0.0,
            },
            quota: Quota::default(),
            breaker: FleetBreaker {
                state: State::Closed,
                until: 0.0,
                open_time: floor_micros(settings.open_first),
                trips: [(NodeId(0), 0.0); MAX_TRIPS],
                probe_node: NodeId(0),
                probe_until: 0.0,
                successes: 0,
            },
            overrides: 0,
            leases: BTreeMap::new(),
            touched: now,
            born: now,
            learn_until: match claim {
                Some(_) => now + floor_micros(settings.lease),
                None => 0.0,
            },
        }
    }

    /// Handles the call of `node`. Returns the reply, and what is to be published.
    pub fn sync(
        &mut self,
        settings: &FleetSettings,
        node: NodeId,
        call: &Call,
        now: Timestamp,
    ) -> (Reply, Option<Notice>) {
        let now = micros_since_origin(now);
        self.follow_clock(now);
        let before = (self.epoch, self.hold);
        self.take_claim(settings, call, now);
        self.take_back(settings, node, call, now);
        self.merge(call, now);
        self.take_refusal(settings, call, now);
        let knows_overrides = self.knows_overrides(call);
        if knows_overrides {
            self.hold = self.hold.max(now + floor_micros(call.hold_for));
            self.take_quota(call, now);
            self.take_trip(settings, node, call, now);
            self.take_probe(settings, node, call, now);
        }
        self.take_override(settings, call, now);
        self.keep_owner(settings, node, call, now);
        if knows_overrides {
            self.take_decision(settings, node, call, now);
        }
        self.count_shares(settings, node, now);
        let share = self.share(settings, node, call, now);
        let breaker = self.probe(settings, node, call, now);
        let (slots, next, is_free) = self.reserve(settings, node, share, call, now);
        self.touched = now;
        let reply = Reply {
            rate: self.rate,
            epoch: self.epoch,
            hold_for: micros(self.hold - now),
            share,
            is_free,
            slots,
            next,
            active: self.shares.active,
            breaker,
            overrides: self.overrides,
            ownership: (self.owner == node).then(|| self.ownership(call, now)),
        };
        let is_news = self.epoch != before.0 || self.hold > before.1.max(now);
        (reply, is_news.then(|| self.notice(now)))
    }

    /// A node leaves: its share and its ownership are free at once.
    pub fn release(&mut self, node: NodeId) {
        if let Some(lease) = self.leases.remove(&node) {
            self.shares.issued = (self.shares.issued - lease.share).max(0.0);
        }
        if self.owner == node {
            self.owner_until = 0.0;
        }
    }

    /// The rate of the fleet.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The sum of all shares.
    pub fn issued(&self) -> f64 {
        self.leases.values().map(|lease| lease.share).sum()
    }

    /// The clock was set back, or another server took over whose clock is behind: the time since the last
    /// call is not known, and counts as none. Otherwise nothing would be sent and no lease would run out
    /// until the clock is where it was.
    fn follow_clock(&mut self, now: f64) {
        if now >= self.touched - MAX_BACK {
            return;
        }
        let by = now - self.touched;
        let [one, two, three] = &mut self.breaker.trips;
        let times = [
            &mut self.line,
            &mut self.last,
            &mut self.hold,
            &mut self.blind_until,
            &mut self.owner_until,
            &mut self.totals.refused_at,
            &mut self.shares.counted,
            &mut self.quota.until,
            &mut self.quota.used_up_until,
            &mut self.breaker.until,
            &mut one.1,
            &mut two.1,
            &mut three.1,
            &mut self.breaker.probe_until,
            &mut self.touched,
            &mut self.born,
            &mut self.learn_until,
        ];
        for time in times {
            *time += by;
        }
        for lease in self.leases.values_mut() {
            lease.until += by;
            lease.granted += by;
        }
    }

    fn take_claim(&mut self, settings: &FleetSettings, call: &Call, now: f64) {
        let Some(claim) = &call.claim else { return };
        let lease = floor_micros(settings.lease);
        if now - self.touched > lease {
            self.leases.clear();
            self.shares.issued = 0.0;
            self.shares.counted = 0.0;
            self.line = self.line.max(now);
            self.learn_until = now + lease;
        }
        if claim.epoch > self.epoch {
            self.epoch = claim.epoch;
            self.rate = self.rate.min(claim.rate);
        }
        if claim.overrides > self.overrides {
            self.overrides = claim.overrides;
            if claim.is_isolated || self.breaker.state == State::Isolated {
                self.close_breaker(settings);
            }
            if claim.is_isolated {
                self.breaker.state = State::Isolated;
            }
        }
    }

    /// A node that does not know of the last override by a person cannot bring back what it ended.
    fn knows_overrides(&self, call: &Call) -> bool {
        call.claim
            .is_none_or(|claim| claim.overrides >= self.overrides)
    }

    fn take_override(&mut self, settings: &FleetSettings, call: &Call, now: f64) {
        let Some(change) = call.overriding else {
            return;
        };
        self.overrides += 1;
        self.epoch += 1;
        self.close_breaker(settings);
        if change == GateOverride::Isolate {
            self.breaker.state = State::Isolated;
            return;
        }
        self.hold = 0.0;
        self.quota = Quota::default();
        self.is_blind = false;
        if change == GateOverride::Reset {
            self.rate = settings.initial_rate.max(settings.min_rate);
            self.record = None;
            // The next owner begins anew.
            self.owner_until = 0.0;
        }
        // It may be as far away as the end of the hold.
        self.line = self.line.min(now + SECOND / self.rate);
    }

    fn close_breaker(&mut self, settings: &FleetSettings) {
        self.breaker.state = State::Closed;
        self.breaker.open_time = floor_micros(settings.open_first);
        self.breaker.trips = [(NodeId(0), 0.0); MAX_TRIPS];
        self.breaker.probe_until = 0.0;
        self.breaker.successes = 0;
    }

    /// A node returns to others that went on without it: the limit has room for what it sent.
    fn take_back(&mut self, settings: &FleetSettings, node: NodeId, call: &Call, now: f64) {
        const MIN_AGE: f64 = 3_000_000.0;
        let had_lease = self.leases.get(&node).is_some_and(|it| it.until >= now);
        let others_called = now - self.touched <= floor_micros(settings.lease);
        if call.back > 0.0 && !had_lease && others_called && now - self.born > MIN_AGE {
            self.totals.back += call.back;
        }
    }

    fn merge(&mut self, call: &Call, now: f64) {
        if call.accepted > 0 || call.late_accepted > 0 {
            self.is_blind = false;
        }
        let totals = &mut self.totals;
        totals.sent += u64::from(call.sent);
        totals.skipped += u64::from(call.skipped);
        self.serial += u64::from(call.sent_freely);
        totals.late_refused += u64::from(call.late_refused);
        totals.late_accepted += u64::from(call.late_accepted);
        // Growing into a quota that is used up proves nothing.
        if now < self.quota.used_up_until {
            totals.late_accepted += u64::from(call.accepted);
        } else {
            totals.accepted += u64::from(call.accepted);
            totals.latency_sum += floor_micros(call.latency_sum);
        }
    }

    fn take_quota(&mut self, call: &Call, now: f64) {
        let Some(left) = call.left else { return };
        let reset = floor_micros(left.reset);
        let until = now + reset;
        let serial = if left.serial == 0 {
            self.serial
        } else {
            left.serial
        };
        let quota = &mut self.quota;
        quota.period = quota.period.max(reset);
        // Servers round up, so times of the same renewal differ.
        let is_same = (until - quota.until).abs() < quota.period / 2.0;
        if until < quota.until && !is_same || is_same && serial < quota.told_by {
            return;
        }
        let remaining = u64::from(left.remaining);
        quota.last = serial + remaining;
        quota.until = if is_same {
            until.min(quota.until)
        } else {
            until
        };
        quota.told_by = serial;
        quota.size = quota.size.max(remaining + 1);
    }

    /// One decrease per epoch for the whole fleet. The owner decides on the new rate later.
    fn take_refusal(&mut self, settings: &FleetSettings, call: &Call, now: f64) {
        const LOWERED: f64 = 0.85;
        let Some(refusal) = &call.refusal else { return };
        // The owner needs some time to decide.
        self.blind_until = now + 2.0 * floor_micros(settings.interval);
        if refusal.epoch != self.epoch {
            self.totals.late_refused += 1;
            return;
        }
        self.epoch += 1;
        self.change_rate((LOWERED * self.rate).max(settings.min_rate), now);
        self.totals.refusals += 1;
        self.totals.refusal = refusal.kind;
        self.totals.refused_at = now - floor_micros(refusal.age);
        self.totals.refusal_number = self.number_of(refusal.serial, now);
    }

    /// One node with a bad network must not stop the others.
    fn take_trip(&mut self, settings: &FleetSettings, node: NodeId, call: &Call, now: f64) {
        let Some(trip) = &call.trip else { return };
        if self.breaker.state != State::Closed {
            return;
        }
        let since = now - floor_micros(settings.trip_window);
        let others = self.breaker.trips;
        let others = others
            .iter()
            .filter(|(other, at)| *at > since && *other != node);
        let mut trips = [(NodeId(0), 0.0); MAX_TRIPS];
        trips[0] = (node, now);
        let mut count = 1;
        for (slot, other) in trips[1..].iter_mut().zip(others) {
            *slot = *other;
            count += 1;
        }
        self.breaker.trips = trips;
        let half = usize::try_from(self.shares.active.div_ceil(2)).unwrap_or(MAX_TRIPS);
        let needed = half.min(MAX_TRIPS);
        if trip.is_decisive || count >= needed {
            self.open(settings, now);
        }
    }

    fn open(&mut self, settings: &FleetSettings, now: f64) {
        let breaker = &mut self.breaker;
        breaker.state = State::Open;
        breaker.until = now + breaker.open_time;
        breaker.open_time = (OPEN_GROWTH * breaker.open_time).min(floor_micros(settings.open_for));
        breaker.probe_until = 0.0;
        breaker.successes = 0;
        self.epoch += 1;
    }

    fn take_probe(&mut self, settings: &FleetSettings, node: NodeId, call: &Call, now: f64) {
        let Some(result) = call.probe else { return };
        let breaker = &mut self.breaker;
        if breaker.state != State::HalfOpen || breaker.probe_node != node {
            return;
        }
        breaker.probe_until = 0.0;
        match result {
            ProbeResult::Unknown => {}
            ProbeResult::Failed => self.open(settings, now),
            ProbeResult::Succeeded => {
                breaker.successes += 1;
                if breaker.successes >= settings.half_open_probes {
                    self.close_breaker(settings);
                    self.totals.closes += 1;
                    self.epoch += 1;
                }
            }
        }
    }

    /// After a loss of data, the node that ran the controller goes on with it: a new controller would
    /// have to find the limit again. Other nodes wait for it while the store learns.
    fn keep_owner(&mut self, settings: &FleetSettings, node: NodeId, call: &Call, now: f64) {
        if call.fence > self.fence {
            self.owner = node;
            self.fence = call.fence;
        } else if self.owner_until < now && (self.fence > 0 || now >= self.learn_until) {
            self.owner = node;
            self.fence += 1;
        }
        if self.owner == node {
            self.owner_until = now + floor_micros(settings.lease);
        }
    }

    fn take_decision(&mut self, settings: &FleetSettings, node: NodeId, call: &Call, now: f64) {
        let Some(decision) = &call.decision else {
            return;
        };
        let is_present = decision.fence == self.fence && self.owner == node;
        if !is_present || decision.refusals != self.totals.refusals {
            return;
        }
        self.change_rate(decision.rate.max(settings.min_rate), now);
        self.hold = self.hold.max(now + floor_micros(decision.hold_for));
        self.record = Some(decision.record);
        self.is_blind = decision.is_blind;
        if decision.lowers {
            self.epoch += 1;
        }
    }

    /// How many requests were sent up to the one with this slot; without a slot, up to now. All slots count
    /// that were used as far as is known: what nodes sent since their last calls is not missing.
    fn number_of(&self, serial: u64, now: f64) -> u64 {
        let due = match serial {
            1.. if serial <= self.serial => serial,
            _ => {
                let ahead = ((self.line - now) * self.rate / SECOND).floor().max(0.0);
                self.serial.saturating_sub(saturating_u64(ahead))
            }
        };
        due.saturating_sub(self.totals.skipped)
    }

    /// The next send time moves with the rate, as if tokens came at it from now on: at slow rates a node that
    /// waits for it would otherwise send at the rate before.
    fn change_rate(&mut self, rate: f64, now: f64) {
        let (before, step) = (SECOND / self.rate, SECOND / rate);
        let ahead = self.line - now;
        // Otherwise it is where it is for another reason.
        let is_usual = now >= self.hold.max(self.quota.until).max(self.learn_until);
        if ahead > 0.0 && is_usual && before.max(step) >= SLOW_STEP {
            self.line = match self.last > now {
                true => self.last + step,
                false => now + ahead * step / before,
            };
        }
        self.rate = rate;
    }

    /// Divides the rate by demand: no node gets more than it asks for before all have got as much.
    fn count_shares(&mut self, settings: &FleetSettings, node: NodeId, now: f64) {
        let every = floor_micros(settings.interval).max(f64::from(self.shares.active) * 1000.0);
        if self.owner != node || now - self.shares.counted < every {
            return;
        }
        self.leases.retain(|_, lease| lease.until >= now);
        let active = self.leases.len();
        let demand: f64 = self.leases.values().map(|lease| lease.demand).sum();
        let nodes = (active as f64).max(1.0);
        let mut level = 1.0 / nodes;
        if demand > self.rate {
            // Rises from below, so that it is never too high.
            for _ in 0..8 {
                let (mut satisfied, mut others) = (0.0, 0.0);
                for lease in self.leases.values() {
                    let wanted = lease.demand / self.rate;
                    if wanted <= level {
                        satisfied += wanted;
                    } else {
                        others += 1.0;
                    }
                }
                if others == 0.0 {
                    break;
                }
                level = level.max((1.0 - satisfied) / others);
            }
        } else {
            level = 1.0;
        }
        self.shares = Shares {
            level,
            spare: ((1.0 - demand / self.rate) / nodes).max(0.0),
            issued: self.leases.values().map(|lease| lease.share).sum(),
            active: u32::try_from(active).unwrap_or(u32::MAX).max(1),
            demand,
            counted: now,
        };
    }

    /// The share of `node` from now on. Other nodes give up theirs only when they call, so there may
    /// be less than is due to it.
    fn share(&mut self, settings: &FleetSettings, node: NodeId, call: &Call, now: f64) -> f64 {
        let lease = self.leases.entry(node).or_default();
        let claimed = call.claim.filter(|_| now < self.learn_until);
        let wanted = match claimed {
            Some(claim) => claim.share,
            None => (call.demand / self.rate).min(self.shares.level) + self.shares.spare,
        };
        let others = self.shares.issued - lease.share;
        let share = wanted.min(1.0 - others).max(0.0);
        self.shares.issued = others + share;
        lease.share = share;
        lease.demand = call.demand;
        lease.until = now + floor_micros(settings.lease);
        share
    }

    /// Reserves send times. Returns them, when to call again, and whether the node needs none.
    fn reserve(
        &mut self,
        settings: &FleetSettings,
        node: NodeId,
        share: f64,
        call: &Call,
        now: f64,
    ) -> (SlotBatch, Duration, bool) {
        let interval = floor_micros(settings.interval);
        let is_learning = now < self.learn_until;
        let part = match is_learning {
            true => self.shares.issued.max(MIN_LEARNED),
            false => 1.0,
        };
        let step = SECOND / (self.rate * part);
        self.line = self.line.max(now).max(self.hold);
        self.pass_quota();
        let per_interval = share * self.rate * interval / SECOND;
        let is_plain = self.breaker.state == State::Closed && !is_learning && !self.is_blind;
        let is_calm = is_plain && self.shares.demand < FREE_BELOW * self.rate;
        let is_usual = self.breaker.state == State::Closed && !self.is_blind;
        if is_learning && is_usual && call.claim.is_some() && now >= self.quota.until {
            // Others go on with their shares without the store: slots would have to leave room for them.
            return (SlotBatch::default(), Duration::ZERO, true);
        }
        if is_calm && per_interval >= MIN_FREE && now >= self.quota.until {
            return (SlotBatch::default(), Duration::ZERO, true);
        }
        let granted = self.leases.get(&node).map_or(0.0, |lease| lease.granted);
        let turn = granted + 0.8 * f64::from(self.shares.active) * step;
        let per = 3.0 * per_interval;
        let mut next = 0.0;
        let count = if per >= 1.0 {
            let is_far = self.line > now + (4.0 * interval).max(2.0 * step);
            let room = whole(per.ceil()).saturating_sub(call.held);
            if is_far { 0 } else { call.want.min(room) }
        } else {
            let ahead = (2.0 * interval).max(step / 2.0);
            let is_near = self.line < now + ahead;
            // While the others keep the line busy, it is its turn after one slot of each.
            let gains_at = match is_near {
                true => turn,
                false => (granted + f64::from(self.shares.active) * step).max(self.line - ahead),
            };
            next = (gains_at - now).clamp(0.0, floor_micros(settings.lease) / 2.0);
            let is_turn = self.line <= now || now >= turn;
            u32::from(call.held == 0 && call.want > 0 && is_turn && is_near)
        };
        let count = count.min(self.probes_for(node, now));
        let slots = self.reserve_within_quota(count, step, now);
        if slots.count > 0 {
            self.blind_until = self.line + BLIND_LOST;
        }
        if slots.count > 0
            && let Some(lease) = self.leases.get_mut(&node)
        {
            lease.granted = now;
            next = match per < 1.0 {
                true => (0.8 * f64::from(self.shares.active) * step)
                    .min(floor_micros(settings.lease) / 2.0),
                false => 0.0,
            };
        }
        (slots, micros(next), false)
    }

    /// How many slots a node may have while the breaker is not Closed, or nothing is accepted.
    fn probes_for(&self, node: NodeId, now: f64) -> u32 {
        let is_due = !self.is_blind || now >= self.blind_until;
        match self.breaker.state {
            State::Closed if self.is_blind => u32::from(is_due),
            State::Closed => u32::MAX,
            State::Open | State::Isolated => 0,
            State::HalfOpen => u32::from(is_due && self.breaker.probe_node == node),
        }
    }

    /// If the server's quota is used up, nothing is sent before it is renewed. The next one is taken
    /// to be as large, until the server tells.
    fn pass_quota(&mut self) {
        let quota = &mut self.quota;
        if self.line < quota.until && self.serial >= quota.last {
            self.line = quota.until;
            quota.used_up_until = quota.until;
            quota.last = self.serial + quota.size;
            quota.told_by = self.serial;
            quota.until += quota.period;
        }
    }

    /// The next `count` send times, fewer if the server's quota is used up before.
    fn reserve_within_quota(&mut self, count: u32, step: f64, now: f64) -> SlotBatch {
        let left = match self.line < self.quota.until {
            true => self.quota.last.saturating_sub(self.serial),
            false => u64::MAX,
        };
        let count = u64::from(count).min(left);
        if count == 0 {
            return SlotBatch::default();
        }
        let first = self.line - now;
        let serial = self.serial + 1;
        self.line += count as f64 * step;
        self.last = self.line - step;
        self.serial += count;
        SlotBatch {
            count: u32::try_from(count).unwrap_or(u32::MAX),
            serial,
            first: micros(first),
            step: micros(step),
        }
    }

    /// The breaker as `node` sees it. While HalfOpen, one node with something to send may probe.
    fn probe(
        &mut self,
        settings: &FleetSettings,
        node: NodeId,
        call: &Call,
        now: f64,
    ) -> BreakerReply {
        let breaker = &mut self.breaker;
        if breaker.state == State::Open && now >= breaker.until {
            breaker.state = State::HalfOpen;
            breaker.probe_until = 0.0;
        }
        if breaker.state == State::HalfOpen && breaker.probe_until < now && call.want > 0 {
            breaker.probe_node = node;
            breaker.probe_until = now + floor_micros(settings.probe_lost_after);
        }
        match breaker.state {
            State::Closed => BreakerReply::Closed,
            State::Open => BreakerReply::Open {
                open_for: micros(breaker.until - now),
            },
            State::HalfOpen => BreakerReply::HalfOpen {
                may_probe: breaker.probe_node == node && breaker.probe_until >= now,
            },
            State::Isolated => BreakerReply::Isolated,
        }
    }

    fn ownership(&self, call: &Call, now: f64) -> Ownership {
        let totals = &self.totals;
        Ownership {
            fence: self.fence,
            feedback: Feedback {
                sent: totals.sent,
                number: self.number_of(0, now),
                accepted: totals.accepted,
                latency_sum: micros(totals.latency_sum),
                late_accepted: totals.late_accepted,
                late_refused: totals.late_refused,
                refusals: totals.refusals,
                refusal: totals.refusal,
                refusal_age: micros(now - totals.refused_at),
                refusal_number: totals.refusal_number,
                back: totals.back,
                closes: totals.closes,
            },
            record: self.record.filter(|_| call.fence != self.fence),
        }
    }

    fn notice(&self, now: f64) -> Notice {
        Notice {
            rate: self.rate,
            epoch: self.epoch,
            hold_for: micros(self.hold - now),
            breaker: match self.breaker.state {
                State::Closed => BreakerReply::Closed,
                State::Open => BreakerReply::Open {
                    open_for: micros(self.breaker.until - now),
                },
                State::HalfOpen => BreakerReply::HalfOpen { may_probe: false },
                State::Isolated => BreakerReply::Isolated,
            },
            overrides: self.overrides,
        }
    }
}

/// Microseconds of the store's clock as a duration; zero if negative.
pub fn micros(micros: f64) -> Duration {
    Duration::from_nanos(saturating_u64((micros * 1000.0).round().max(0.0)))
}

/// Whole microseconds, as a call is encoded.
fn floor_micros(duration: Duration) -> f64 {
    (nanos(duration) / 1000) as f64
}

fn micros_since_origin(now: Timestamp) -> f64 {
    (now.as_nanos() / 1000) as f64
}

fn whole(number: f64) -> u32 {
    u32::try_from(saturating_u64(number)).unwrap_or(u32::MAX)
}

/// A single request is lost, or its node is, if there is no result after this.
const BLIND_LOST: f64 = 5_000_000.0;
const SECOND: f64 = 1_000_000.0;
/// A clock that is back by less does no harm: it is soon where it was.
const MAX_BACK: f64 = 1_000_000.0;
/// Between send times that are closer than this, a change of the rate need not be felt at once.
const SLOW_STEP: f64 = 500_000.0;
/// While demand is below this share of the rate, nodes pace themselves.
const FREE_BELOW: f64 = 0.8;
/// With a smaller share, in requests per interval, a node needs slots even if demand is low.
const MIN_FREE: f64 = 0.5;
/// The least part of the rate that is given out while learning.
const MIN_LEARNED: f64 = 0.01;

#[cfg(test)]
mod tests;
