//! One test per rule of the pool.

use super::*;
use crate::ladder::{Disabled, LadderOptions};
use crate::rate::Strategy;

/// A pool with a clock, whose gates admit everything.
struct TestPool {
    settings: LadderSettings,
    pool: Pool,
    now: Timestamp,
}

impl TestPool {
    fn new(balance: Balance, names: &[&str]) -> Self {
        let mut pool = Pool::new(balance);
        for name in names {
            pool.add(name).unwrap();
        }
        Self {
            settings: LadderSettings::default(),
            pool,
            now: Timestamp::ZERO,
        }
    }

    fn choose(&mut self) -> Choice {
        let now = self.now;
        self.pool.choose(&self.settings, now, |_| now)
    }

    fn send(&mut self) -> Lease {
        match self.choose() {
            Choice::Send(lease) => lease,
            other => panic!("{other:?} instead of a lease"),
        }
    }

    fn name(&self, id: EndpointId) -> &str {
        self.pool.get(id).unwrap().name()
    }

    /// The endpoints chosen for the next `count` requests, none of which ends.
    fn leave(&mut self, count: usize) -> String {
        let mut names = String::new();
        for _ in 0..count {
            let lease = self.send();
            names.push_str(self.name(lease.endpoint()));
        }
        names
    }

    /// The endpoints chosen for the next `count` requests, each of which succeeds before the next.
    fn sequence(&mut self, count: usize) -> String {
        let mut names = String::new();
        for _ in 0..count {
            let lease = self.send();
            names.push_str(self.name(lease.endpoint()));
            self.end(lease, 200);
        }
        names
    }

    fn end(&mut self, lease: Lease, status: u16) -> LadderStep {
        self.pool.settle(
            &self.settings,
            lease,
            &EndpointResult::status(status),
            self.now,
        )
    }

    fn fail(&mut self, name: &str) {
        let id = self.pool.find(name).unwrap().id();
        let index = self.pool.endpoints.iter().position(|it| it.id == id);
        let lease = self.pool.lease(index.unwrap(), self.now);
        self.end(lease, 429);
    }

    fn id(&self, name: &str) -> EndpointId {
        self.pool.find(name).unwrap().id()
    }

    fn at(&mut self, seconds: u64) {
        self.now = Timestamp::from_secs(seconds);
    }
}

#[test]
fn round_robin_takes_turns() {
    let mut test = TestPool::new(Balance::RoundRobin, &["a", "b", "c"]);
    assert_eq!(test.leave(7), "abcabca");
}

#[test]
fn chooses_the_least_loaded_and_rotates_on_ties() {
    let mut test = TestPool::new(Balance::LeastLoaded, &["a", "b"]);
    let leases: Vec<_> = (0..3).map(|_| test.send()).collect();
    let (a, b) = (test.id("a"), test.id("b"));
    assert_eq!(
        leases.iter().map(Lease::endpoint).collect::<Vec<_>>(),
        [a, b, a]
    );
    assert_eq!(test.leave(1), "b", "two against one");
    let mut test = TestPool::new(Balance::LeastLoaded, &["a", "b"]);
    assert_eq!(test.sequence(4), "abab");
}

#[test]
fn first_uses_others_only_if_needed() {
    let mut test = TestPool::new(Balance::First, &["a", "b", "c"]);
    assert_eq!(test.leave(3), "aaa");
    test.fail("a");
    assert_eq!(test.leave(2), "bb");
    test.at(30);
    assert_eq!(
        test.leave(2),
        "ab",
        "one request to the recovering endpoint, the rest to the other"
    );
}

#[test]
fn skips_a_paused_endpoint_until_its_pause_ends() {
    let mut test = TestPool::new(Balance::RoundRobin, &["a", "b", "c"]);
    test.fail("a");
    assert_eq!(test.sequence(4), "bcbc");
    test.at(30);
    assert_eq!(test.sequence(3), "abc");
}

#[test]
fn recovering_endpoint_gets_one_request_at_a_time() {
    let mut test = TestPool::new(Balance::First, &["a", "b"]);
    test.fail("a");
    test.at(30);
    let probe = test.send();
    assert_eq!(test.name(probe.endpoint()), "a");
    let a = test.id("a");
    assert_eq!(
        test.pool.unusable(&test.settings, a, test.now),
        Some(Unusable::Recovering)
    );
    assert_eq!(test.leave(1), "b");
    assert_eq!(test.end(probe, 404), LadderStep::NotCounted);
    let probe = test.send();
    assert_eq!(test.name(probe.endpoint()), "a", "its place is free again");
    assert_eq!(test.end(probe, 200), LadderStep::Cleared);
    assert_eq!(test.leave(3), "aaa");
}

#[test]
fn requests_sent_before_the_pause_do_not_block_recovery() {
    let mut test = TestPool::new(Balance::First, &["a", "b"]);
    let old: Vec<_> = (0..3).map(|_| test.send()).collect();
    test.fail("a");
    test.at(30);
    assert_eq!(test.leave(2), "ab");
    for lease in old {
        assert_eq!(test.end(lease, 200), LadderStep::Late);
    }
    assert_eq!(test.leave(1), "b", "the probe is still out");
    assert_eq!(test.pool.find("a").unwrap().in_flight(), 1);
}

#[test]
fn lost_request_blocks_recovery_for_at_most_two_minutes() {
    let mut test = TestPool::new(Balance::First, &["a", "b"]);
    test.fail("a");
    test.at(30);
    let lost = test.send();
    test.at(149);
    assert_eq!(test.leave(1), "b");
    test.at(150);
    assert_eq!(test.leave(2), "ab");
    assert_eq!(test.end(lost, 200), LadderStep::Cleared);
}

#[test]
fn abandoned_request_unblocks_recovery() {
    let mut test = TestPool::new(Balance::First, &["a", "b"]);
    test.fail("a");
    test.at(30);
    let probe = test.send();
    test.pool.abandon(probe);
    assert_eq!(test.leave(1), "a");
}

#[test]
fn waits_for_the_earliest_when_all_are_paused() {
    let mut test = TestPool::new(Balance::RoundRobin, &["a", "b"]);
    test.fail("a");
    test.at(10);
    test.fail("b");
    let (a, until) = (test.id("a"), Timestamp::from_secs(30));
    assert_eq!(
        test.choose(),
        Choice::Wait {
            endpoint: a,
            until: Some(until),
            reason: Some(Unusable::Paused { until }),
        }
    );
}

#[test]
fn waits_for_the_gates() {
    let mut test = TestPool::new(Balance::First, &["a", "b"]);
    let now = test.now;
    let gates = |a: u64, b: u64| {
        move |endpoint: &Endpoint| Timestamp::from_secs(if endpoint.name() == "a" { a } else { b })
    };
    let Choice::Send(lease) = test.pool.choose(&test.settings, now, gates(5, 0)) else {
        panic!("the gate of b admits it");
    };
    assert_eq!(test.name(lease.endpoint()), "b");
    assert_eq!(
        test.pool.choose(&test.settings, now, gates(5, 4)),
        Choice::Wait {
            endpoint: test.id("b"),
            until: Some(Timestamp::from_secs(4)),
            reason: None,
        }
    );
    // A pause that ends before its gate admits does not make it earlier.
    test.fail("a");
    let (a, until) = (test.id("a"), Timestamp::from_secs(30));
    assert_eq!(
        test.pool.choose(&test.settings, now, gates(45, 50)),
        Choice::Wait {
            endpoint: a,
            until: Some(Timestamp::from_secs(45)),
            reason: Some(Unusable::Paused { until }),
        }
    );
    let unknown = test.pool.choose(&test.settings, now, |_| Timestamp::MAX);
    assert!(matches!(unknown, Choice::Wait { until: None, .. }));
}

#[test]
fn returns_no_endpoint_when_all_are_disabled() {
    let mut test = TestPool::new(Balance::RoundRobin, &["a", "b"]);
    for name in ["a", "b"] {
        let id = test.id(name);
        assert!(test.pool.disable(id, test.now));
    }
    assert_eq!(test.choose(), Choice::NoEndpoint);
    let a = test.id("a");
    assert_eq!(
        test.pool.unusable(&test.settings, a, test.now),
        Some(Unusable::Disabled(Disabled::Person))
    );
    assert!(test.pool.enable(a));
    assert_eq!(test.leave(2), "aa");
    assert_eq!(Pool::<()>::new(Balance::First).endpoints().len(), 0);
    assert_eq!(
        TestPool::new(Balance::First, &[]).choose(),
        Choice::NoEndpoint
    );
}

#[test]
fn adds_and_removes_endpoints_at_run_time() {
    let mut test = TestPool::new(Balance::RoundRobin, &["a", "b"]);
    let in_flight = test.send();
    assert!(test.pool.remove(in_flight.endpoint()));
    assert_eq!(test.end(in_flight, 429), LadderStep::Late, "it was removed");
    assert_eq!(test.pool.add("b"), None, "the name is taken");
    let again = test.pool.add("a").unwrap();
    assert_eq!(test.sequence(4), "baba");
    assert!(test.pool.remove(again));
    assert!(!test.pool.remove(again));
    assert!(!test.pool.enable(again));
    assert!(!test.pool.disable(again, test.now));
}

#[test]
fn refuses_endpoints_beyond_the_maximum() {
    let mut pool = Pool::new(Balance::First);
    for number in 0..Pool::MAX_ENDPOINTS {
        assert!(pool.add(&number.to_string()).is_some());
    }
    assert_eq!(pool.add("one more"), None);
}

#[test]
fn single_endpoint_is_not_paused_by_default() {
    let mut test = TestPool::new(Balance::First, &["a"]);
    let lease = test.send();
    assert_eq!(test.end(lease, 429), LadderStep::Unchanged);
    assert_eq!(test.leave(2), "aa");

    let mut options = LadderOptions::default();
    options.set("enabled", "true").unwrap();
    test.settings = options.build().unwrap();
    test.fail("a");
    assert!(matches!(test.choose(), Choice::Wait { until: Some(_), .. }));
}

#[test]
fn does_not_pause_without_protection() {
    let mut test = TestPool::new(Balance::First, &["a", "b"]);
    test.fail("a");
    let mut options = LadderOptions::default();
    options.set("enabled", "false").unwrap();
    test.settings = options.build().unwrap();
    assert_eq!(test.leave(1), "a", "the pause no longer matters");
    for _ in 0..6 {
        test.fail("b");
    }
    assert!(test.pool.find("b").unwrap().ladder().is_enabled());
}

#[test]
fn ten_refusals_of_one_burst_are_one_step() {
    let mut test = TestPool::new(Balance::First, &["a", "b"]);
    let burst: Vec<_> = (0..10).map(|_| test.send()).collect();
    for lease in burst {
        test.end(lease, 429);
    }
    let a = test.pool.find("a").unwrap();
    assert_eq!(a.ladder().consecutive_errors(), 1);
    assert_eq!(a.ladder().remaining(test.now), Duration::from_secs(30));
    assert!(a.ladder().is_enabled());
    assert_eq!(a.in_flight(), 0);
}

#[test]
fn restore_keeps_pauses() {
    let mut test = TestPool::new(Balance::First, &["a", "b"]);
    test.fail("a");
    let record = test.pool.find("a").unwrap().ladder().record(test.now);
    let mut pool = Pool::new(Balance::First);
    let a = pool.restore("a", record, Timestamp::from_secs(7)).unwrap();
    pool.add("b").unwrap();
    assert_eq!(
        pool.unusable(&test.settings, a, Timestamp::from_secs(36)),
        Some(Unusable::Paused {
            until: Timestamp::from_secs(37)
        })
    );
}

#[test]
fn describes_why_an_endpoint_is_unusable() {
    for balance in [Balance::LeastLoaded, Balance::RoundRobin, Balance::First] {
        assert_eq!(balance.to_string().parse(), Ok(balance));
    }
    assert!("random".parse::<Balance>().is_err());
    let paused = Unusable::Paused {
        until: Timestamp::ZERO,
    };
    assert_eq!(paused.as_str(), "paused");
    assert_eq!(paused.to_string(), "paused after an error");
    assert_eq!(Unusable::Recovering.as_str(), "recovering");
    for reason in [
        Disabled::Errors(5),
        Disabled::QuotaExhausted,
        Disabled::Person,
    ] {
        assert!(
            Unusable::Disabled(reason)
                .to_string()
                .starts_with("disabled")
        );
    }
}

#[test]
fn names_the_first_of_equally_early_endpoints() {
    let mut test = TestPool::new(Balance::First, &["a", "b"]);
    assert_eq!(test.pool.balance(), Balance::First);
    let (now, later) = (test.now, test.now + Duration::from_secs(5));
    let choice = test.pool.choose(&test.settings, now, |_| later);
    let Choice::Wait {
        endpoint, until, ..
    } = choice
    else {
        panic!("{choice:?}");
    };
    assert_eq!((test.name(endpoint), until), ("a", Some(later)));
}

#[test]
fn least_loaded_counts_attempts_in_flight_at_the_gate() {
    let settings = LadderSettings::default();
    let mut pool = Pool::new(Balance::LeastLoaded);
    let [a, b] = ["a", "b"].map(|name| pool.add(name).unwrap());
    let now = Timestamp::ZERO;
    let choice = pool.choose(&settings, now, |endpoint| GateState {
        opens_at: now,
        in_flight: Some(if endpoint.id() == a { 3 } else { 2 }),
    });
    assert!(matches!(choice, Choice::Send(lease) if lease.endpoint() == b));
}

#[test]
fn reordering_preserves_the_state_of_endpoints() {
    let mut pool = Pool::new(Balance::First);
    let [a, b, c] = ["a", "b", "c"].map(|name| pool.add(name).unwrap());
    pool.disable(a, Timestamp::ZERO);
    pool.reorder(&["c", "unknown", "a"]);
    let order: Vec<EndpointId> = pool.endpoints().iter().map(Endpoint::id).collect();
    assert_eq!(order, [c, a, b]);
    assert!(!pool.get(a).unwrap().ladder().is_enabled());
}

#[test]
fn successes_may_be_returned_later_and_together() {
    let mut test = TestPool::new(Balance::LeastLoaded, &["a", "b"]);
    let sent = [(); 4].map(|()| test.send().endpoint());
    let [a, b, ..] = sent;
    assert_eq!(sent, [a, b, a, b]);
    test.pool.settle_successes(a, 2);
    assert_eq!(test.pool.get(a).unwrap().in_flight(), 0);
    assert_eq!([(); 2].map(|()| test.send().endpoint()), [a, a]);
    // They count as successes: a refusal without a hint is then the gate's own probing.
    test.pool.settle_successes(b, 20);
    for (id, step) in [(a, "Paused"), (b, "Probed")] {
        let result = EndpointResult::status(429).with_strategy(Strategy::Adaptive);
        let lease = Lease {
            endpoint: id,
            epoch: 0,
        };
        let settled = test.pool.settle(&test.settings, lease, &result, test.now);
        assert!(format!("{settled:?}").starts_with(step), "{settled:?}");
    }
    test.pool.remove(b);
    test.pool.settle_successes(b, 1);
}

#[test]
fn ladder_is_clear_without_errors_pauses_and_reasons() {
    let mut test = TestPool::new(Balance::First, &["a", "b"]);
    let is_clear = |test: &TestPool| test.pool.endpoints()[0].ladder().is_clear();
    assert!(is_clear(&test));
    for status in [404, 429] {
        let lease = test.send();
        test.end(lease, status);
        assert!(!is_clear(&test), "{status}");
        let a = test.pool.endpoints()[0].id();
        test.pool.enable(a);
        assert!(is_clear(&test), "enabled after {status}");
    }
    let a = test.pool.endpoints()[0].id();
    test.pool.disable(a, test.now);
    assert!(!is_clear(&test), "disabled");
}
