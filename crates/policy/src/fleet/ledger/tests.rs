//! One test for each rule of the ledger, and what holds in random histories.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::fleet::{Left, RateDecision, Refusal, Trip};
use crate::gate::{Gate, GateSettings};

const SETTINGS: FleetSettings = FleetSettings {
    interval: Duration::from_millis(100),
    lease: Duration::from_secs(2),
    initial_rate: 10.0,
    min_rate: 0.05,
    open_first: Duration::from_secs(2),
    open_for: Duration::from_secs(15),
    trip_window: Duration::from_secs(30),
    half_open_probes: 2,
    probe_lost_after: Duration::from_secs(120),
};

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);

/// A store with one key, and its clock.
struct Store {
    ledger: Ledger,
    now: Timestamp,
}

impl Store {
    fn new() -> Self {
        let now = Timestamp::from_secs(1000);
        Self {
            ledger: Ledger::new(&SETTINGS, None, now),
            now,
        }
    }

    fn after(&mut self, millis: u64) -> &mut Self {
        self.now = self.now + Duration::from_millis(millis);
        self
    }

    fn call(&mut self, node: NodeId, call: &Call) -> Reply {
        self.ledger.sync(&SETTINGS, node, call, self.now).0
    }

    /// Nodes with a demand of twice the rate call until shares are settled.
    fn busy(nodes: &[NodeId]) -> Self {
        let mut store = Self::new();
        for _ in 0..20 {
            for node in nodes {
                store.after(5).call(*node, &busy());
            }
            store.after(80);
        }
        store
    }
}

fn busy() -> Call {
    Call {
        demand: 20.0,
        want: 1,
        ..Call::default()
    }
}

fn refusal(epoch: u32) -> Option<Refusal> {
    Some(Refusal {
        epoch,
        kind: RefusalKind::Undirected,
        age: Duration::from_millis(35),
        serial: 0,
    })
}

#[test]
fn divides_the_rate_equally_between_busy_nodes() {
    let mut store = Store::busy(&[A, B]);
    for node in [A, B] {
        let reply = store.call(node, &busy());
        assert!((reply.share - 0.5).abs() < 0.01, "{reply:?}");
        assert_eq!(reply.active, 2);
        assert!(!reply.is_free);
    }
}

#[test]
fn lowers_the_rate_once_per_epoch() {
    let mut store = Store::busy(&[A, B]);
    let before = store.call(A, &busy());
    let report = Call {
        refusal: refusal(before.epoch),
        ..busy()
    };
    let first = store.call(A, &report);
    let second = store.call(B, &report);
    assert_eq!(first.epoch, before.epoch + 1);
    assert_eq!(second.epoch, first.epoch);
    assert!((first.rate - 0.85 * before.rate).abs() < 1e-9);
    assert!((second.rate - first.rate).abs() < 1e-9);
}

#[test]
fn numbers_a_refused_request_by_its_slot_though_nodes_have_not_reported_what_they_sent() {
    let mut store = Store::busy(&[A, B]);
    store.after(1000);
    let reserving = Call { want: 2, ..busy() };
    let first = store.call(A, &reserving);
    let slots = store.call(B, &reserving).slots;
    assert_eq!((first.slots.count, slots.count), (2, 2));
    let seen = |reply: Reply| reply.ownership.unwrap().feedback;
    let number = seen(first).number;
    // One of B was sent late, and one not at all.
    let report = Call {
        skipped: 1,
        refusal: refusal(store.ledger.epoch).map(|refusal| Refusal {
            serial: slots.serial + 1,
            ..refusal
        }),
        ..Call::default()
    };
    store.after(400).call(B, &report);
    let feedback = seen(store.call(A, &Call::default()));
    assert_eq!(feedback.refusal_number, slots.serial);
    assert_eq!(feedback.number, slots.serial);
    // When A called, its slots were not due yet.
    assert!(feedback.number >= number + 2, "{number}, {feedback:?}");

    // That of a store which has lost its data since.
    let epoch = store.ledger.epoch;
    let report = Call {
        refusal: refusal(epoch).map(|refusal| Refusal {
            serial: 1_000_000,
            ..refusal
        }),
        ..Call::default()
    };
    store.call(B, &report);
    let feedback = seen(store.call(A, &Call::default()));
    assert_eq!(feedback.refusal_number, slots.serial);
}

#[test]
fn ignores_decisions_of_an_earlier_owner_and_of_one_that_missed_a_refusal() {
    let mut store = Store::busy(&[A, B]);
    let owner = store.call(A, &busy()).ownership.unwrap();
    let settings = GateSettings::default();
    let decision = RateDecision {
        fence: owner.fence,
        rate: 50.0,
        lowers: false,
        refusals: owner.feedback.refusals,
        hold_for: Duration::ZERO,
        is_blind: false,
        record: Gate::new(&settings, Timestamp::ZERO).record(Timestamp::ZERO),
    };
    let with = |decision| Call {
        decision: Some(decision),
        ..busy()
    };
    let fence = owner.fence + 1;
    let is_50 = |rate: f64| (rate - 50.0).abs() < 1e-9;
    assert!(!is_50(
        store
            .call(A, &with(RateDecision { fence, ..decision }))
            .rate
    ));
    assert!(!is_50(store.call(B, &with(decision)).rate));
    let refusals = 1;
    let missed = RateDecision {
        refusals,
        ..decision
    };
    assert!(!is_50(store.call(A, &with(missed)).rate));
    assert!(is_50(store.call(A, &with(decision)).rate));
}

#[test]
fn the_next_send_time_follows_the_rate_at_once() {
    for (rate, expected_ms) in [(1.0, 500), (0.25, 2000)] {
        let mut store = Store::busy(&[A]);
        // At 0.5/s, half of the time to the next slot has passed.
        store.ledger.rate = 0.5;
        store.ledger.last = micros_since_origin(store.now) - 1_000_000.0;
        store.ledger.line = micros_since_origin(store.now) + 1_000_000.0;
        let owner = store.call(A, &Call::default()).ownership.unwrap();
        let record = Gate::new(&GateSettings::default(), Timestamp::ZERO).record(Timestamp::ZERO);
        let decision = RateDecision {
            fence: owner.fence,
            rate,
            lowers: false,
            refusals: owner.feedback.refusals,
            hold_for: Duration::ZERO,
            is_blind: false,
            record,
        };
        let call = Call {
            decision: Some(decision),
            ..busy()
        };
        // It asks for no slot.
        let call = Call { want: 0, ..call };
        store.call(A, &call);
        let ahead = store.ledger.line - micros_since_origin(store.now);
        assert!(
            (ahead - 1000.0 * f64::from(expected_ms)).abs() < 1.0,
            "{rate}: {ahead}"
        );
    }
}

#[test]
fn another_node_owns_the_key_when_the_lease_ends_and_gets_the_record() {
    let mut store = Store::busy(&[A, B]);
    let fence = store.call(A, &busy()).ownership.unwrap().fence;
    assert_eq!(store.call(B, &busy()).ownership, None);
    let reply = store.after(2001).call(B, &busy());
    assert_eq!(reply.ownership.unwrap().fence, fence + 1);
    assert_eq!(store.call(A, &busy()).ownership, None);
}

#[test]
fn one_node_does_not_open_the_breaker_of_many_but_half_do() {
    let nodes = [1, 2, 3, 4].map(NodeId);
    let mut store = Store::busy(&nodes);
    let trip = Call {
        trip: Some(Trip { is_decisive: false }),
        ..busy()
    };
    for _ in 0..3 {
        assert_eq!(store.call(nodes[0], &trip).breaker, BreakerReply::Closed);
    }
    let open_for = SETTINGS.open_first;
    assert_eq!(
        store.call(nodes[1], &trip).breaker,
        BreakerReply::Open { open_for }
    );
}

#[test]
fn probes_one_after_the_other_close_the_breaker() {
    let mut store = Store::busy(&[A, B]);
    let trip = Some(Trip { is_decisive: true });
    store.call(A, &Call { trip, ..busy() });
    let half_open = |may_probe| BreakerReply::HalfOpen { may_probe };
    let report = |probe| Call {
        probe: Some(probe),
        ..busy()
    };
    assert_eq!(store.after(2000).call(B, &busy()).breaker, half_open(true));
    assert_eq!(store.call(A, &busy()).breaker, half_open(false));
    let succeeded = report(ProbeResult::Succeeded);
    // Only the node that may probe can report.
    assert_eq!(store.call(A, &succeeded).breaker, half_open(false));
    assert_eq!(store.call(B, &succeeded).breaker, half_open(true));
    let failed = store.call(B, &report(ProbeResult::Failed)).breaker;
    let open_for = SETTINGS.open_first.mul_f64(1.6);
    assert_eq!(failed, BreakerReply::Open { open_for });
    store.after(3200).call(A, &busy());
    assert_eq!(store.call(A, &succeeded).breaker, half_open(true));
    assert_eq!(store.call(A, &succeeded).breaker, BreakerReply::Closed);
}

#[test]
fn gives_out_no_more_slots_than_the_server_says_remain() {
    let mut store = Store::busy(&[A]);
    let wants = |left| Call {
        want: 100,
        left,
        ..busy()
    };
    let serial = store.call(A, &wants(None)).slots.serial;
    let left = Left {
        remaining: 5,
        reset: Duration::from_secs(10),
        serial,
    };
    let mut last = 0;
    for _ in 0..80 {
        let slots = store.after(100).call(A, &wants(Some(left))).slots;
        if slots.count > 0 {
            last = slots.serial + u64::from(slots.count) - 1;
        }
        assert!(last <= serial + 5, "{slots:?}");
    }
    assert_eq!(last, serial + 5, "and no fewer");
}

#[test]
fn a_persons_release_ends_hold_quota_and_open_breaker_and_moves_the_line_back() {
    let mut store = Store::busy(&[A, B]);
    let held = Call {
        hold_for: Duration::from_secs(3600),
        trip: Some(Trip { is_decisive: true }),
        left: Some(Left {
            remaining: 0,
            reset: Duration::from_secs(600),
            serial: 0,
        }),
        ..busy()
    };
    let reply = store.call(A, &held);
    assert_eq!(reply.hold_for, Duration::from_secs(3600));
    assert!(matches!(reply.breaker, BreakerReply::Open { .. }));
    let epoch = store.after(100).call(B, &busy()).epoch;
    let release = Call {
        overriding: Some(GateOverride::Release),
        ..busy()
    };
    let now = store.after(100).now;
    let (reply, notice) = store.ledger.sync(&SETTINGS, B, &release, now);
    assert_eq!((reply.hold_for, reply.overrides), (Duration::ZERO, 1));
    assert_eq!(reply.breaker, BreakerReply::Closed);
    let notice = notice.unwrap();
    assert_eq!((notice.overrides, notice.epoch), (1, epoch + 1));
    assert_eq!(notice.hold_for, Duration::ZERO);
    assert_eq!(reply.slots.count, 1);
    assert!(reply.slots.first <= Duration::from_millis(200));
}

#[test]
fn what_a_node_learned_before_an_override_does_not_bring_the_hold_back() {
    let mut store = Store::busy(&[A, B]);
    let release = Call {
        overriding: Some(GateOverride::Release),
        ..busy()
    };
    store.call(A, &release);
    let known = |overrides| Claim {
        rate: 10.0,
        epoch: 1,
        share: 0.5,
        overrides,
        is_isolated: false,
    };
    let late = |overrides| Call {
        hold_for: Duration::from_secs(60),
        claim: Some(known(overrides)),
        ..busy()
    };
    assert_eq!(store.call(B, &late(0)).hold_for, Duration::ZERO);
    assert_eq!(store.call(B, &late(1)).hold_for, Duration::from_secs(60));
}

#[test]
fn isolation_lasts_until_a_release_and_survives_a_flush() {
    let mut store = Store::busy(&[A, B]);
    let order = |overriding| Call {
        overriding: Some(overriding),
        ..busy()
    };
    store.call(A, &order(GateOverride::Isolate));
    let reply = store.after(10_000).call(B, &busy());
    assert_eq!(reply.breaker, BreakerReply::Isolated);
    assert_eq!((reply.slots.count, reply.is_free), (0, false));
    let claim = Claim {
        rate: reply.rate,
        epoch: reply.epoch,
        share: reply.share,
        overrides: reply.overrides,
        is_isolated: true,
    };
    let mut store = Store::new();
    store.call(A, &busy());
    let claimed = Call {
        claim: Some(claim),
        ..busy()
    };
    assert_eq!(store.call(B, &claimed).breaker, BreakerReply::Isolated);
    let reply = store.call(A, &order(GateOverride::Release));
    assert_eq!((reply.breaker, reply.overrides), (BreakerReply::Closed, 2));
}

#[test]
fn a_persons_reset_begins_anew_with_another_controller() {
    let mut store = Store::busy(&[A, B]);
    let decided = Call {
        decision: Some(RateDecision {
            fence: 1,
            rate: 90.0,
            lowers: false,
            refusals: 0,
            hold_for: Duration::ZERO,
            is_blind: false,
            record: Gate::new(&GateSettings::default(), store.now).record(store.now),
        }),
        ..busy()
    };
    assert!((store.call(A, &decided).rate - 90.0).abs() < 1e-9);
    let reset = Call {
        overriding: Some(GateOverride::Reset),
        ..busy()
    };
    let reply = store.after(10).call(B, &reset);
    assert!((reply.rate - SETTINGS.initial_rate).abs() < 1e-9);
    let ownership = reply.ownership.unwrap();
    assert_eq!((ownership.fence, ownership.record), (2, None));
    // A decision that was on its way does not count.
    let reply = store.after(10).call(A, &decided);
    assert!((reply.rate - SETTINGS.initial_rate).abs() < 1e-9);
}

#[test]
fn the_owner_from_before_a_flush_goes_on_and_others_wait_for_it() {
    let mut store = Store::new();
    let claim = Claim {
        rate: 100.0,
        epoch: 40,
        share: 0.5,
        overrides: 0,
        is_isolated: false,
    };
    store.ledger = Ledger::new(&SETTINGS, Some(&claim), store.now);
    let call = |fence| Call {
        claim: Some(claim),
        fence,
        ..busy()
    };
    assert_eq!(store.after(10).call(A, &call(0)).ownership, None);
    let owner = store.after(10).call(B, &call(1)).ownership.unwrap();
    assert_eq!((owner.fence, owner.record), (1, None));
    assert_eq!(store.after(10).call(A, &call(0)).ownership, None);
    // It has died since: another one takes over when its lease has ended.
    let owner = store.after(2100).call(A, &call(0)).ownership.unwrap();
    assert_eq!(owner.fence, 2);
}

#[test]
fn flushed_store_gives_out_what_nodes_claim() {
    let mut now = Timestamp::from_secs(5);
    let claim = Claim {
        rate: 100.0,
        epoch: 40,
        share: 0.25,
        overrides: 0,
        is_isolated: false,
    };
    let call = Call {
        demand: 100.0,
        want: 1,
        claim: Some(claim),
        ..Call::default()
    };
    let mut ledger = Ledger::new(&SETTINGS, Some(&claim), now);
    for node in 1..=4 {
        now = now + Duration::from_millis(10);
        let reply = ledger.sync(&SETTINGS, NodeId(node), &call, now).0;
        assert_eq!((reply.epoch, reply.rate, reply.share), (40, 100.0, 0.25));
        assert!(reply.is_free && reply.slots.count == 0, "{reply:?}");
    }
    let fifth = ledger.sync(&SETTINGS, NodeId(5), &call, now).0;
    assert!(fifth.share.abs() < 1e-9, "nothing is left");
}

#[test]
fn a_clock_that_goes_back_stops_nothing() {
    let mut store = Store::busy(&[A, B]);
    let held = Call {
        hold_for: Duration::from_secs(2),
        ..busy()
    };
    store.call(A, &held);
    store.now = earlier(store.now, Duration::from_secs(900));
    let reply = store.call(A, &busy());
    // The time in between is not known.
    assert_eq!(reply.hold_for, Duration::from_secs(2));
    assert!(reply.ownership.is_some(), "it is the owner as before");
    let mut given = 0;
    for _ in 0..60 {
        given += store.after(100).call(A, &busy()).slots.count;
    }
    assert!(given >= 30, "{given} in 6 s at 10/s");
    // The lease of the other has run out.
    let share = store.call(A, &busy()).share;
    assert!(share > 0.9, "{share}");
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Call {
        node: u64,
        demand: f64,
        want: u32,
    },
    Refused {
        node: u64,
        late: u32,
    },
    Holds {
        node: u64,
        millis: u64,
    },
    Decides {
        node: u64,
        rate: f64,
    },
    Trips {
        node: u64,
    },
    Left {
        node: u64,
        remaining: u32,
        seconds: u64,
    },
    Releases {
        node: u64,
    },
    /// The clock is set back, seen from the last call.
    Back {
        seconds: u64,
    },
}

fn acts() -> impl Strategy<Value = Vec<(u64, Act)>> {
    let node = || 1_u64..6;
    let act = prop_oneof![
        8 => (node(), 0.0..300.0, 0_u32..50)
            .prop_map(|(node, demand, want)| Act::Call { node, demand, want }),
        2 => (node(), 0_u32..2).prop_map(|(node, late)| Act::Refused { node, late }),
        1 => (node(), 0_u64..3000).prop_map(|(node, millis)| Act::Holds { node, millis }),
        2 => (node(), 0.1..500.0).prop_map(|(node, rate)| Act::Decides { node, rate }),
        1 => node().prop_map(|node| Act::Trips { node }),
        1 => (node(), 0_u32..100, 1_u64..20)
            .prop_map(|(node, remaining, seconds)| Act::Left { node, remaining, seconds }),
        1 => node().prop_map(|node| Act::Releases { node }),
        1 => (0_u64..60).prop_map(|seconds| Act::Back { seconds }),
    ];
    vec((0_u64..400, act), 1..200)
}

proptest! {
    #[test]
    fn slots_and_numbers_only_grow_and_shares_fit(acts in acts()) {
        let record = {
            let settings = GateSettings::default();
            Gate::new(&settings, Timestamp::ZERO).record(Timestamp::ZERO)
        };
        let mut store = Store::new();
        let (mut last_slot, mut last_serial) = (Timestamp::ZERO, 0);
        let (mut fence, mut epoch, mut hold_until) = (0, 0, Timestamp::ZERO);
        let mut touched = store.now;
        for (millis, act) in acts {
            store.after(millis);
            let mut call = busy();
            let node = match act {
                Act::Call { node, demand, want } => {
                    call = Call { demand, want, ..Call::default() };
                    node
                }
                Act::Refused { node, late } => {
                    call.refusal = refusal(epoch - late.min(epoch));
                    node
                }
                Act::Holds { node, millis } => {
                    call.hold_for = Duration::from_millis(millis);
                    node
                }
                Act::Decides { node, rate } => {
                    call.decision = Some(RateDecision {
                        fence,
                        rate,
                        lowers: rate < 100.0,
                        refusals: store.ledger.totals.refusals,
                        hold_for: Duration::ZERO,
                        is_blind: false,
                        record,
                    });
                    node
                }
                Act::Trips { node } => {
                    call.trip = Some(Trip { is_decisive: node == 1 });
                    node
                }
                Act::Left { node, remaining, seconds } => {
                    let reset = Duration::from_secs(seconds);
                    call.left = Some(Left { remaining, reset, serial: last_serial });
                    node
                }
                Act::Releases { node } => {
                    store.ledger.release(NodeId(node));
                    continue;
                }
                Act::Back { seconds } => {
                    store.now = earlier(touched, Duration::from_secs(seconds));
                    continue;
                }
            };
            let back = touched.since(store.now);
            if back > Duration::from_secs(1) {
                last_slot = earlier(last_slot, back);
                hold_until = earlier(hold_until, back);
            }
            touched = store.now;
            let reply = store.call(NodeId(node), &call);
            prop_assert!(store.ledger.issued() <= 1.0 + 1e-9, "{}", store.ledger.issued());
            prop_assert!((store.ledger.issued() - store.ledger.shares.issued).abs() < 1e-6);
            prop_assert!(reply.epoch >= epoch);
            epoch = reply.epoch;
            let hold = store.now + reply.hold_for;
            prop_assert!(hold >= hold_until || hold_until <= store.now);
            hold_until = hold;
            if let Some(ownership) = reply.ownership {
                prop_assert!(ownership.fence >= fence);
                fence = ownership.fence;
            }
            let SlotBatch { count, serial, first, step } = reply.slots;
            if count > 0 {
                prop_assert!(serial > last_serial, "{serial} after {last_serial}");
                last_serial = serial + u64::from(count) - 1;
                let first = store.now + first;
                prop_assert!(first >= last_slot && first >= hold_until.min(first));
                // The sum of rounded steps may differ by a microsecond.
                let length = step * (count - 1);
                last_slot = first + length.saturating_sub(Duration::from_micros(1));
            }
        }
    }
}

fn earlier(time: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from_nanos(time.as_nanos().saturating_sub(nanos(by)))
}
