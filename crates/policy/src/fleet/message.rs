//! What a node and the store tell each other about one key.
//!
//! All lengths of time are relative to the instant at which the message is handled. The store counts
//! in whole microseconds: a [`Call`] is rounded down to them when it is encoded.

use std::time::Duration;

use crate::gate::{GateOverride, GateRecord};

/// A node: random, new with every start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// What a node says about one key. The default says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// Requests per second that the node would send if it could.
    pub demand: f64,
    /// How many more slots it could use soon.
    pub want: u32,
    /// How many unused slots it has.
    pub held: u32,
    /// Attempts sent since the last call.
    pub sent: u32,
    /// Of these, those without a slot.
    pub sent_freely: u32,
    /// Slots that it did not use, since the last call.
    pub skipped: u32,
    /// Of the present epoch, accepted since the last call.
    pub accepted: u32,
    /// The sum of their latencies.
    pub latency_sum: Duration,
    /// Accepted since the last call, of earlier epochs.
    pub late_accepted: u32,
    /// Refused since the last call, of earlier epochs.
    pub late_refused: u32,
    /// The first refusal of the epoch that the node last heard of.
    pub refusal: Option<Refusal>,
    /// For how long the server asked to wait; zero if it did not.
    pub hold_for: Duration,
    /// What the server last told about a quota since the last call.
    pub left: Option<Left>,
    /// The breaker of this node has opened on its own evidence.
    pub trip: Option<Trip>,
    /// The end of a probe that the fleet allowed.
    pub probe: Option<ProbeResult>,
    /// Requests per second that it sent while the store was silent; in the first call after that.
    pub back: f64,
    /// What it knows, in case the store has lost it. Sent in every call once there was a reply.
    pub claim: Option<Claim>,
    /// The fence it was last told as the owner; zero if it is not the owner.
    pub fence: u32,
    /// What it decided as the owner.
    pub decision: Option<RateDecision>,
    /// What a person has ordered at this node, for the whole fleet.
    pub overriding: Option<GateOverride>,
}

/// A refusal of the present epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The epoch in which the refused request was sent. It counts only if that is still the present.
    pub epoch: u32,
    /// What kind of refusal.
    pub kind: RefusalKind,
    /// How long ago the request was sent.
    pub age: Duration,
    /// The serial number of its slot; zero if it had none.
    pub serial: u64,
}

/// What kind of refusal lowers the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefusalKind {
    /// The server named no wait.
    #[default]
    Undirected,
    /// The server named this wait.
    Directed(Duration),
    /// The server has banned the client.
    Banned,
    /// The request failed; only with a strategy that lowers the rate then.
    Failed,
}

/// How many requests the server still accepts, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Requests that it accepts after this one.
    pub remaining: u32,
    /// When the quota is renewed; at least a second.
    pub reset: Duration,
    /// The serial number of the slot of this request; zero if it had none.
    pub serial: u64,
}

/// The breaker of a node has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trip {
    /// Whether this node sends at least half of what the fleet sends, so that its evidence is enough.
    pub is_decisive: bool,
}

/// How a probe ended that the fleet allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// The upstream works.
    Succeeded,
    /// It does not: the breaker opens again.
    Failed,
    /// It says nothing; another probe may be sent.
    Unknown,
}

/// What a node knows of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// The rate of the fleet.
    pub rate: f64,
    /// The epoch.
    pub epoch: u32,
    /// The node's share of the rate.
    pub share: f64,
    /// The last override by a person that the node knows of; see [`Reply::overrides`].
    pub overrides: u32,
    /// Whether that isolated the key.
    pub is_isolated: bool,
}

/// What the owner of a key decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateDecision {
    /// As the owner got it; a decision with an old one is ignored.
    pub fence: u32,
    /// The rate of the fleet from now on.
    pub rate: f64,
    /// Whether the rate was lowered: begins an epoch.
    pub lowers: bool,
    /// [`Feedback::refusals`] as far as the owner knew them. A decision that does not know the last
    /// one is ignored.
    pub refusals: u64,
    /// Nothing is sent for this long.
    pub hold_for: Duration,
    /// Whether it is unknown if the server accepts anything: one request at a time finds out.
    pub is_blind: bool,
    /// The controller, for the next owner.
    pub record: GateRecord,
}

/// What the store says about one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The rate of the fleet, in requests per second.
    pub rate: f64,
    /// The present epoch.
    pub epoch: u32,
    /// Nothing is sent for this long; zero without a hold.
    pub hold_for: Duration,
    /// The node's share of the rate, from 0 to 1.
    pub share: f64,
    /// Whether the node paces itself by its share, without slots.
    pub is_free: bool,
    /// Slots that were reserved by this call.
    pub slots: SlotBatch,
    /// The node has nothing to gain by calling sooner; zero: call again after an interval.
    pub next: Duration,
    /// How many nodes have a share.
    pub active: u32,
    /// The breaker of the fleet.
    pub breaker: BreakerReply,
    /// How often a person has overridden the key. What a node learned before it knew of the last
    /// override changes neither hold nor breaker.
    pub overrides: u32,
    /// Only for the owner.
    pub ownership: Option<Ownership>,
}

/// Reserved send times: `first` from now, then every `step`. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotBatch {
    /// How many.
    pub count: u32,
    /// The serial number of the first one; the next has the next number. The first of a key is 1.
    pub serial: u64,
    /// When the first one is.
    pub first: Duration,
    /// The time between two.
    pub step: Duration,
}

/// The breaker of the fleet, as one node sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BreakerReply {
    /// Requests pass.
    #[default]
    Closed,
    /// Nothing passes for this long.
    Open {
        /// The remaining open time.
        open_for: Duration,
    },
    /// Probes pass, one at a time.
    HalfOpen {
        /// Whether this node may send the next one.
        may_probe: bool,
    },
    /// Nothing passes until a person releases or resets the key.
    Isolated,
}

/// The node runs the controller of the key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ownership {
    /// Higher with every change of the owner; the first is 1.
    pub fence: u32,
    /// Totals of what all nodes reported.
    pub feedback: Feedback,
    /// What the owner before has written last; only if the call had another fence.
    pub record: Option<GateRecord>,
}

/// Totals of what all nodes reported since the store has the key. The owner compares them with those
/// it got before, so a lost reply loses nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Feedback {
    /// Attempts sent.
    pub sent: u64,
    /// The number of the last request that was due: slots are counted as requests, without those that
    /// were not used. Unlike `sent`, it does not depend on what nodes will report.
    pub number: u64,
    /// Accepted, of the epoch that was present when it was reported.
    pub accepted: u64,
    /// The sum of their latencies.
    pub latency_sum: Duration,
    /// Accepted, of earlier epochs.
    pub late_accepted: u64,
    /// Refused, of earlier epochs.
    pub late_refused: u64,
    /// Refusals that began an epoch.
    pub refusals: u64,
    /// The kind of the last one.
    pub refusal: RefusalKind,
    /// How long ago its request was sent.
    pub refusal_age: Duration,
    /// The number of its request, see `number`.
    pub refusal_number: u64,
    /// Requests per second that nodes sent while they did not reach the store.
    pub back: f64,
    /// How often the breaker of the fleet has closed.
    pub closes: u64,
}

/// What the store publishes at once to all nodes that use the key: on a hold, a decrease, a trip, a
/// close and an override by a person. It says nothing that the next reply would not say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Notice {
    /// The rate of the fleet.
    pub rate: f64,
    /// The present epoch.
    pub epoch: u32,
    /// Nothing is sent for this long.
    pub hold_for: Duration,
    /// The breaker of the fleet; a notice permits no probe.
    pub breaker: BreakerReply,
    /// As in a [`Reply`].
    pub overrides: u32,
}
