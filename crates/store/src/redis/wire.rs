//! Calls and replies as the scripts read and write them.
//!
//! A call is a row of doubles, in the order of `sync.lua`, with the record of the owner after them; so are
//! a reply and a notice. Doubles are what Lua computes with. Lengths of time are in microseconds, of
//! which a call has whole ones.

use std::collections::BTreeMap;
use std::time::Duration;

use policy::breaker::BreakerRecord;
use policy::fleet::{
    BreakerReply, Call, Feedback, FleetSettings, NodeId, Notice, Ownership, ProbeResult,
    RefusalKind, Reply, SlotBatch, micros,
};
use policy::gate::{CostRecord, GateOverride, GateRecord};
use serde_json::{Value, json};

use super::NodeShare;
use crate::record;

/// What a node says about a key, for the script.
pub(super) fn encode(settings: &FleetSettings, call: &Call) -> Vec<u8> {
    let (kind, wait) = match call.refusal.map(|refusal| refusal.kind) {
        None => (0.0, 0.0),
        Some(kind) => refusal_kind(kind),
    };
    let refusal = call.refusal;
    let probe = match call.probe {
        None => 0.0,
        Some(ProbeResult::Succeeded) => 1.0,
        Some(ProbeResult::Failed) => 2.0,
        Some(ProbeResult::Unknown) => 3.0,
    };
    let trip = call.trip.map_or(0.0, |trip| 1.0 + flag(trip.is_decisive));
    let left = call.left;
    let claim = call.claim;
    let decision = call.decision;
    let row = [
        whole_micros(settings.interval),
        whole_micros(settings.lease),
        settings.initial_rate,
        settings.min_rate,
        whole_micros(settings.open_first),
        whole_micros(settings.open_for),
        whole_micros(settings.trip_window),
        f64::from(settings.half_open_probes),
        whole_micros(settings.probe_lost_after),
        call.demand,
        f64::from(call.want),
        f64::from(call.held),
        f64::from(call.sent),
        f64::from(call.sent_freely),
        f64::from(call.accepted),
        whole_micros(call.latency_sum),
        f64::from(call.late_accepted),
        f64::from(call.late_refused),
        kind,
        wait,
        refusal.map_or(0.0, |refusal| f64::from(refusal.epoch)),
        refusal.map_or(0.0, |refusal| whole_micros(refusal.age)),
        whole_micros(call.hold_for),
        left.map_or(-1.0, |left| f64::from(left.remaining)),
        left.map_or(0.0, |left| whole_micros(left.reset)),
        left.map_or(0.0, |left| count(left.serial)),
        trip,
        probe,
        call.back,
        flag(claim.is_some()),
        claim.map_or(0.0, |claim| claim.rate),
        claim.map_or(0.0, |claim| f64::from(claim.epoch)),
        claim.map_or(0.0, |claim| claim.share),
        f64::from(call.fence),
        decision.map_or(0.0, |decision| 1.0 + flag(decision.lowers)),
        decision.map_or(0.0, |decision| f64::from(decision.fence)),
        decision.map_or(0.0, |decision| decision.rate),
        decision.map_or(0.0, |decision| count(decision.refusals)),
        decision.map_or(0.0, |decision| whole_micros(decision.hold_for)),
        decision.map_or(0.0, |decision| flag(decision.is_blind)),
        claim.map_or(0.0, |claim| f64::from(claim.overrides)),
        claim.map_or(0.0, |claim| flag(claim.is_isolated)),
        match call.overriding {
            None => 0.0,
            Some(GateOverride::Isolate) => 1.0,
            Some(GateOverride::Release) => 2.0,
            Some(GateOverride::Reset) => 3.0,
        },
        f64::from(call.skipped),
        refusal.map_or(0.0, |refusal| count(refusal.serial)),
    ];
    let mut bytes: Vec<u8> = row.iter().flat_map(|number| number.to_le_bytes()).collect();
    if let Some(decision) = decision {
        bytes.extend(encode_record(&decision.record).to_string().into_bytes());
    }
    bytes
}

/// What the script says about a key; `None` if it cannot have been written by it.
pub(super) fn decode(bytes: &[u8]) -> Option<Reply> {
    let mut row = Row(bytes);
    let reply = Reply {
        rate: row.number()?,
        epoch: row.whole()?,
        hold_for: row.duration()?,
        share: row.number()?,
        is_free: row.whole::<u8>()? == 1,
        slots: SlotBatch {
            count: row.whole()?,
            serial: row.whole()?,
            first: row.duration()?,
            step: row.duration()?,
        },
        next: row.duration()?,
        active: row.whole()?,
        breaker: row.breaker()?,
        overrides: row.whole()?,
        ownership: None,
    };
    let kind: u8 = row.whole()?;
    if kind == 0 {
        return Some(reply);
    }
    let (fence, feedback) = (row.whole()?, row.feedback()?);
    // An owner that cannot read what the one before has written begins anew.
    let record = serde_json::from_slice(row.0).ok();
    let ownership = Ownership {
        fence,
        feedback,
        record: record.and_then(|value| decode_record(&value)),
    };
    Some(Reply {
        ownership: Some(ownership),
        ..reply
    })
}

/// What the script has published; `None` if it cannot have been published by it.
pub(super) fn decode_notice(bytes: &[u8]) -> Option<Notice> {
    let mut row = Row(bytes);
    Some(Notice {
        rate: row.number()?,
        epoch: row.whole()?,
        hold_for: row.duration()?,
        breaker: row.breaker()?,
        // Nodes of an earlier version do not say it.
        overrides: row.whole().unwrap_or(0),
    })
}

/// The time of the server, the leases of a key, and the nodes that are present.
pub(super) type Found = (
    (u64, u64),
    BTreeMap<String, Vec<u8>>,
    BTreeMap<String, String>,
);

/// The leases that have not run out. One that cannot be read is left out.
pub(super) fn shares(((seconds, micros), leases, nodes): Found) -> Vec<NodeShare> {
    let now = count(seconds * 1_000_000 + micros);
    let about = |node: &str| {
        let (_, about) = nodes.get(node)?.split_once(' ')?;
        Some(about.to_owned())
    };
    let share = |(node, lease): (&String, &Vec<u8>)| {
        let mut row = Row(lease);
        let (demand, share, until) = (row.number()?, row.number()?, row.number()?);
        let share = NodeShare {
            node: NodeId(u64::from_str_radix(node, 16).ok()?),
            about: about(node).unwrap_or_default(),
            share,
            demand,
        };
        (until >= now).then_some(share)
    };
    let mut shares: Vec<_> = leases.iter().filter_map(share).collect();
    shares.sort_by(|one, other| (&one.about, one.node).cmp(&(&other.about, other.node)));
    shares
}

/// The rest of a row of doubles.
struct Row<'a>(&'a [u8]);

impl Row<'_> {
    fn number(&mut self) -> Option<f64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(f64::from_le_bytes(*number))
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "what is out of range becomes none"
    )]
    fn whole<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.number()? as u64).ok()
    }

    fn duration(&mut self) -> Option<Duration> {
        self.number().map(micros)
    }

    fn breaker(&mut self) -> Option<BreakerReply> {
        let (kind, open_for) = (self.whole::<u8>()?, self.duration()?);
        match kind {
            0 => Some(BreakerReply::Closed),
            1 => Some(BreakerReply::Open { open_for }),
            2 => Some(BreakerReply::HalfOpen { may_probe: false }),
            3 => Some(BreakerReply::HalfOpen { may_probe: true }),
            4 => Some(BreakerReply::Isolated),
            _ => None,
        }
    }

    fn feedback(&mut self) -> Option<Feedback> {
        Some(Feedback {
            sent: self.whole()?,
            number: self.whole()?,
            accepted: self.whole()?,
            latency_sum: self.duration()?,
            late_accepted: self.whole()?,
            late_refused: self.whole()?,
            refusals: self.whole()?,
            refusal: self.refusal_kind()?,
            refusal_age: self.duration()?,
            refusal_number: self.whole()?,
            back: self.number()?,
            closes: self.whole()?,
        })
    }

    fn refusal_kind(&mut self) -> Option<RefusalKind> {
        let (kind, wait) = (self.whole::<u8>()?, self.duration()?);
        match kind {
            0 | 1 => Some(RefusalKind::Undirected),
            2 => Some(RefusalKind::Directed(wait)),
            3 => Some(RefusalKind::Banned),
            4 => Some(RefusalKind::Failed),
            _ => None,
        }
    }
}

fn refusal_kind(kind: RefusalKind) -> (f64, f64) {
    match kind {
        RefusalKind::Undirected => (1.0, 0.0),
        RefusalKind::Directed(wait) => (2.0, whole_micros(wait)),
        RefusalKind::Banned => (3.0, 0.0),
        RefusalKind::Failed => (4.0, 0.0),
    }
}

fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}

/// Counts up to 2^53, which none reaches.
#[expect(clippy::cast_precision_loss, reason = "see above")]
fn count(number: u64) -> f64 {
    number as f64
}

/// Rounded down. The longest that a double counts exactly is 285 years.
#[expect(clippy::cast_precision_loss, reason = "see above")]
fn whole_micros(length: Duration) -> f64 {
    length.as_micros() as f64
}

/// The owner's controller as JSON, which the script does not read, but people can.
fn encode_record(record: &GateRecord) -> Value {
    json!({
        "rate": record.rate,
        "ceiling": record.ceiling,
        "banned_above": record.banned_above,
        "hold_us": record.hold.map(whole_micros),
        "hold_source": record.hold_source.map(|source| source.as_str()),
        "breaker": record.breaker.state.as_str(),
        "open_us": whole_micros(record.breaker.open_for),
        "openings": record.breaker.openings,
        "cost": record.cost.map(|cost| json!([cost.rate, cost.ceiling, cost.mean])),
    })
}

fn decode_record(value: &Value) -> Option<GateRecord> {
    let number = |name: &str| value.get(name).and_then(Value::as_f64);
    let word = |name: &str| value.get(name).and_then(Value::as_str);
    let cost = value.get("cost").filter(|cost| cost.is_array());
    Some(GateRecord {
        rate: number("rate")?,
        ceiling: number("ceiling"),
        banned_above: number("banned_above"),
        hold: number("hold_us").map(micros),
        hold_source: word("hold_source").map(record::source),
        breaker: BreakerRecord {
            state: record::breaker_state(word("breaker")?)?,
            open_for: micros(number("open_us")?),
            openings: value.get("openings")?.as_u64()?.try_into().ok()?,
        },
        cost: cost.and_then(|cost| {
            Some(CostRecord {
                rate: cost.get(0)?.as_f64()?,
                ceiling: cost.get(1)?.as_f64(),
                mean: cost.get(2)?.as_f64()?,
            })
        }),
    })
}
