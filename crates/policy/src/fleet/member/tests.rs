//! What a member counts, reports and does while the store is silent.

use super::*;
use crate::fleet::{SlotBatch, Trip};
use crate::gate::{Ask, ExternalBreaker, GateSettings, Permit};
use crate::line::Class;
use crate::outcome::{Outcome, Verdict};

const ASK: Ask = Ask {
    cost: 1,
    deadline: Timestamp::MAX,
    class: Class::Interactive,
    waits_for_breaker: true,
};

/// A node with one shared key.
struct Node {
    settings: SharedSettings,
    gate: Gate,
    member: Member,
}

impl Node {
    fn new(now: Timestamp) -> Self {
        let gate = GateSettings::default();
        let (interval, lease) = (SharedSettings::INTERVAL, SharedSettings::LEASE);
        let settings = SharedSettings::new(&gate, interval, lease);
        Self {
            gate: Gate::new(&settings.gate, now),
            member: Member::new(&settings, NodeId(1), now),
            settings,
        }
    }

    fn call(&mut self, now: Timestamp) -> Call {
        self.member.call(&self.settings, 0, now)
    }

    /// Calls, and gets these slots at this rate.
    fn reserve(&mut self, rate: f64, slots: SlotBatch, now: Timestamp) {
        let call = self.call(now);
        let reply = Reply {
            rate,
            epoch: 1,
            hold_for: Duration::ZERO,
            share: 0.5,
            is_free: false,
            slots,
            next: Duration::ZERO,
            active: 2,
            breaker: BreakerReply::Closed,
            overrides: 0,
            ownership: None,
        };
        let (settings, gate) = (&self.settings, &mut self.gate);
        self.member.replied(settings, gate, &call, &reply, now);
    }

    fn lower(&mut self, rate: f64, now: Timestamp) {
        let notice = Notice {
            rate,
            epoch: 2,
            hold_for: Duration::ZERO,
            breaker: BreakerReply::Closed,
            overrides: 0,
        };
        let (settings, gate) = (&self.settings, &mut self.gate);
        self.member.noticed(settings, gate, &notice, now);
    }

    fn send(&mut self, now: Timestamp) -> Option<Permit> {
        let external = self.member.external();
        let settings = &self.settings.gate;
        self.gate
            .acquire_external_at_once(settings, &ASK, external, now)
    }

    fn reply(&mut self, call: &Call, reply: &Reply, now: Timestamp) {
        let (settings, gate) = (&self.settings, &mut self.gate);
        self.member.replied(settings, gate, call, reply, now);
    }

    /// A 429 with this Retry-After.
    fn refuse_for(&mut self, permit: Permit, wait: Duration, now: Timestamp) {
        let mut outcome = Outcome::status(429, Duration::from_millis(40));
        outcome.hint.wait = Some(wait);
        outcome.hint.source = Some(crate::hint::Source::RetryAfter);
        let (settings, verdict) = (&self.settings, Some(Verdict::Throttled));
        self.member
            .settled(settings, &permit, &outcome, verdict, now);
        self.gate
            .settle(&settings.gate, permit, &outcome, verdict, now);
        self.member.after_settle(&self.gate, now);
    }

    fn settle(&mut self, permit: &Permit, status: u16, now: Timestamp) {
        let verdict = match status {
            200 => Verdict::Success,
            _ => Verdict::Throttled,
        };
        let outcome = Outcome::status(status, Duration::from_millis(90));
        let settings = &self.settings;
        self.member
            .settled(settings, permit, &outcome, Some(verdict), now);
    }
}

fn slots(count: u32, first_ms: u64, step_ms: u64) -> SlotBatch {
    SlotBatch {
        count,
        serial: 1,
        first: Duration::from_millis(first_ms),
        step: Duration::from_millis(step_ms),
    }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(100_000 + millis)
}

#[test]
fn is_degraded_only_while_a_call_is_not_answered() {
    let mut node = Node::new(at(0));
    node.reserve(100.0, SlotBatch::default(), at(0));
    assert!(!node.member.tick(&node.settings, at(60_000)));
    assert_eq!(
        node.member.next_tick(&node.settings, at(60_000)),
        Timestamp::MAX
    );
    node.call(at(60_000));
    assert!(!node.member.tick(&node.settings, at(60_199)));
    assert_eq!(
        node.member.next_tick(&node.settings, at(60_199)),
        at(60_200)
    );
    assert!(node.member.tick(&node.settings, at(60_200)));
    node.member.unanswered(at(60_250));
    node.reserve(100.0, SlotBatch::default(), at(60_500));
    assert!(!node.member.tick(&node.settings, at(61_000)));
}

#[test]
fn accepted_responses_count_by_when_they_were_sent_and_refusals_by_their_slot() {
    let mut node = Node::new(at(0));
    node.reserve(100.0, slots(30, 0, 10), at(0));
    let before = node.send(at(0)).unwrap();
    node.lower(85.0, at(1));
    let sent = (2..200).filter_map(|millis| node.send(at(millis)));
    let after: Vec<Permit> = sent.take(2).collect();
    node.settle(&before, 200, at(90));
    node.settle(&after[0], 200, at(120));
    node.settle(&after[1], 429, at(130));
    let call = node.call(at(200));
    assert_eq!((call.accepted, call.late_accepted), (1, 1));
    assert_eq!((call.refusal, call.late_refused), (None, 1));
}

#[test]
fn reports_the_slot_of_a_refused_request_and_slots_that_were_not_used() {
    let mut node = Node::new(at(0));
    node.reserve(100.0, slots(10, 0, 10), at(0));
    let permits: Vec<Permit> = [0, 10, 20]
        .map(|millis| node.send(at(millis)).unwrap())
        .into();
    node.settle(&permits[1], 429, at(30));
    let call = node.call(at(30));
    assert_eq!(call.refusal.map(|refusal| refusal.serial), Some(2));
    assert_eq!((call.sent, call.skipped), (3, 0));
    node.member.unanswered(at(30));

    // About half of the other seven are thinned out, and what is left is late.
    node.lower(50.0, at(31));
    let used = (32..80).filter_map(|millis| node.send(at(millis))).count();
    node.member.external().slots.held(at(2000));
    let call = node.call(at(2000));
    assert!((1..=3).contains(&used), "{used}");
    assert_eq!(call.sent + call.skipped, 7, "{call:?}");
}

#[test]
fn a_result_at_a_slow_rate_is_reported_though_there_is_nothing_to_gain_by_a_call() {
    for (rate, is_soon) in [(0.5, true), (50.0, false)] {
        let mut node = Node::new(at(0));
        let call = node.call(at(0));
        let reply = Reply {
            rate,
            epoch: 1,
            hold_for: Duration::ZERO,
            share: 0.01,
            is_free: false,
            slots: slots(1, 0, 2000),
            next: Duration::from_secs(1),
            active: 2,
            breaker: BreakerReply::Closed,
            overrides: 0,
            ownership: None,
        };
        let (settings, gate) = (&node.settings, &mut node.gate);
        node.member.replied(settings, gate, &call, &reply, at(0));
        let permit = node.send(at(0)).unwrap();
        node.settle(&permit, 200, at(90));
        let next = node.member.next_call(&node.settings, 1, at(90)).unwrap();
        assert_eq!(next <= at(110), is_soon, "{rate}: {next:?}");
        assert!(is_soon || next >= at(1000), "{rate}: {next:?}");
    }
}

fn reply(hold_for: Duration, breaker: BreakerReply) -> Reply {
    Reply {
        rate: 100.0,
        epoch: 3,
        hold_for,
        share: 0.5,
        is_free: false,
        slots: SlotBatch::default(),
        next: Duration::ZERO,
        active: 2,
        breaker,
        overrides: 0,
        ownership: None,
    }
}

#[test]
fn a_node_that_paces_itself_uses_up_its_slots_first_and_sends_no_more() {
    let mut node = Node::new(at(0));
    node.reserve(50.0, slots(5, 0, 60), at(0));
    let call = node.call(at(1));
    let free = Reply {
        rate: 50.0,
        epoch: 1,
        is_free: true,
        share: 1.0 / 3.0,
        ..reply(Duration::ZERO, BreakerReply::Closed)
    };
    node.reply(&call, &free, at(2));
    let sent = (2..1000).filter_map(|millis| node.send(at(millis)));
    let sent = sent.count();
    assert!((15..=17).contains(&sent), "{sent}");
}

#[test]
fn a_longer_hold_that_is_noticed_during_a_call_is_reported_with_the_next() {
    let mut node = Node::new(at(0));
    node.reserve(100.0, slots(2, 0, 10), at(0));
    let first = node.send(at(0)).unwrap();
    let second = node.send(at(10)).unwrap();
    let [short, long] = [2, 60].map(Duration::from_secs);
    node.refuse_for(first, short, at(50));
    let call = node.call(at(51));
    assert_eq!(call.hold_for, short - Duration::from_millis(1));
    node.refuse_for(second, long, at(52));
    node.reply(&call, &reply(call.hold_for, BreakerReply::Closed), at(53));
    let call = node.call(at(54));
    assert_eq!(call.hold_for, long - Duration::from_millis(2));
    node.reply(&call, &reply(call.hold_for, BreakerReply::Closed), at(55));
    assert_eq!(node.call(at(56)).hold_for, Duration::ZERO, "it is known");
}

#[test]
fn reminds_a_store_that_has_lost_a_hold_and_only_such_a_one() {
    let mut node = Node::new(at(0));
    let hold = Duration::from_secs(60);
    let call = node.call(at(0));
    node.reply(&call, &reply(hold, BreakerReply::Closed), at(200));
    // Replies take from 1 to 200 ms: the hold does not grow by that.
    for (sent, received) in [(300, 301), (1000, 1200), (1300, 1301)] {
        let call = node.call(at(sent));
        assert_eq!(call.hold_for, Duration::ZERO);
        let left = hold - Duration::from_millis(sent);
        node.reply(&call, &reply(left, BreakerReply::Closed), at(received));
        assert!(!node.member.is_urgent());
    }
    let call = node.call(at(2000));
    let lost = reply(Duration::ZERO, BreakerReply::Closed);
    node.reply(&call, &lost, at(2001));
    assert!(node.member.is_urgent());
    let call = node.call(at(2002));
    assert_eq!(call.hold_for, hold - Duration::from_millis(2002));
}

#[test]
fn reminds_a_store_that_has_lost_an_open_breaker_but_not_one_that_has_closed_it() {
    let open_for = Duration::from_secs(10);
    for (epoch, is_lost) in [(3, true), (4, false)] {
        let mut node = Node::new(at(0));
        let call = node.call(at(0));
        let open = reply(Duration::ZERO, BreakerReply::Open { open_for });
        node.reply(&call, &open, at(1));
        let call = node.call(at(100));
        let closed = reply(Duration::ZERO, BreakerReply::Closed);
        node.reply(&call, &Reply { epoch, ..closed }, at(101));
        let is_open = node.member.external().breaker != ExternalBreaker::Closed;
        assert_eq!(is_open, is_lost);
        let trip = node.call(at(102)).trip;
        assert_eq!(trip, is_lost.then_some(Trip { is_decisive: true }));
    }
}
