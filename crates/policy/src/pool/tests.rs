//! The pool's rules, one test each.

use super::*;
use crate::ladder::{Disabled, LadderOptions};

/// A pool with a clock whose gates are all open.
struct Field {
    settings: LadderSettings,
    pool: Pool,
    now: Timestamp,
}

impl Field {
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
    let mut field = Field::new(Balance::RoundRobin, &["a", "b", "c"]);
    assert_eq!(field.leave(7), "abcabca");
}

#[test]
fn the_least_loaded_is_chosen_and_equals_take_turns() {
    let mut field = Field::new(Balance::LeastLoaded, &["a", "b"]);
    let leases: Vec<_> = (0..3).map(|_| field.send()).collect();
    let (a, b) = (field.id("a"), field.id("b"));
    assert_eq!(
        leases.iter().map(Lease::endpoint).collect::<Vec<_>>(),
        [a, b, a]
    );
    assert_eq!(field.leave(1), "b", "two against one");
    let mut field = Field::new(Balance::LeastLoaded, &["a", "b"]);
    assert_eq!(field.sequence(4), "abab");
}

#[test]
fn first_uses_the_others_only_in_need() {
    let mut field = Field::new(Balance::First, &["a", "b", "c"]);
    assert_eq!(field.leave(3), "aaa");
    field.fail("a");
    assert_eq!(field.leave(2), "bb");
    field.at(30);
    assert_eq!(
        field.leave(2),
        "ab",
        "one through the recovering endpoint, the rest through the other"
    );
}

#[test]
fn a_paused_endpoint_is_left_out_until_its_pause_ends() {
    let mut field = Field::new(Balance::RoundRobin, &["a", "b", "c"]);
    field.fail("a");
    assert_eq!(field.sequence(4), "bcbc");
    field.at(30);
    assert_eq!(field.sequence(3), "abc");
}

#[test]
fn one_request_at_a_time_goes_through_a_recovering_endpoint() {
    let mut field = Field::new(Balance::First, &["a", "b"]);
    field.fail("a");
    field.at(30);
    let probe = field.send();
    assert_eq!(field.name(probe.endpoint()), "a");
    let a = field.id("a");
    assert_eq!(
        field.pool.unusable(&field.settings, a, field.now),
        Some(Unusable::Recovering)
    );
    assert_eq!(field.leave(1), "b");
    assert_eq!(field.end(probe, 404), LadderStep::NotCounted);
    let probe = field.send();
    assert_eq!(field.name(probe.endpoint()), "a", "its place is free again");
    assert_eq!(field.end(probe, 200), LadderStep::Cleared);
    assert_eq!(field.leave(3), "aaa");
}

#[test]
fn requests_sent_before_the_pause_do_not_block_recovery() {
    let mut field = Field::new(Balance::First, &["a", "b"]);
    let old: Vec<_> = (0..3).map(|_| field.send()).collect();
    field.fail("a");
    field.at(30);
    assert_eq!(field.leave(2), "ab");
    for lease in old {
        assert_eq!(field.end(lease, 200), LadderStep::Late);
    }
    assert_eq!(field.leave(1), "b", "the probe is still out");
    assert_eq!(field.pool.find("a").unwrap().in_flight(), 1);
}

#[test]
fn a_lost_probe_blocks_for_two_minutes_at_most() {
    let mut field = Field::new(Balance::First, &["a", "b"]);
    field.fail("a");
    field.at(30);
    let lost = field.send();
    field.at(149);
    assert_eq!(field.leave(1), "b");
    field.at(150);
    assert_eq!(field.leave(2), "ab");
    assert_eq!(field.end(lost, 200), LadderStep::Cleared);
}

#[test]
fn an_abandoned_probe_gives_its_place_back() {
    let mut field = Field::new(Balance::First, &["a", "b"]);
    field.fail("a");
    field.at(30);
    let probe = field.send();
    field.pool.abandon(probe);
    assert_eq!(field.leave(1), "a");
}

#[test]
fn the_earliest_is_named_when_all_are_paused() {
    let mut field = Field::new(Balance::RoundRobin, &["a", "b"]);
    field.fail("a");
    field.at(10);
    field.fail("b");
    let (a, until) = (field.id("a"), Timestamp::from_secs(30));
    assert_eq!(
        field.choose(),
        Choice::Wait {
            endpoint: a,
            until: Some(until),
            reason: Some(Unusable::Paused { until }),
        }
    );
}

#[test]
fn gates_are_asked_too() {
    let mut field = Field::new(Balance::First, &["a", "b"]);
    let now = field.now;
    let gates = |a: u64, b: u64| {
        move |endpoint: &Endpoint| Timestamp::from_secs(if endpoint.name() == "a" { a } else { b })
    };
    let Choice::Send(lease) = field.pool.choose(&field.settings, now, gates(5, 0)) else {
        panic!("the gate of b lets it through");
    };
    assert_eq!(field.name(lease.endpoint()), "b");
    assert_eq!(
        field.pool.choose(&field.settings, now, gates(5, 4)),
        Choice::Wait {
            endpoint: field.id("b"),
            until: Some(Timestamp::from_secs(4)),
            reason: None,
        }
    );
    // A pause that ends before the gate opens does not make it earlier.
    field.fail("a");
    let (a, until) = (field.id("a"), Timestamp::from_secs(30));
    assert_eq!(
        field.pool.choose(&field.settings, now, gates(45, 50)),
        Choice::Wait {
            endpoint: a,
            until: Some(Timestamp::from_secs(45)),
            reason: Some(Unusable::Paused { until }),
        }
    );
    let unknown = field.pool.choose(&field.settings, now, |_| Timestamp::MAX);
    assert!(matches!(unknown, Choice::Wait { until: None, .. }));
}

#[test]
fn returns_no_endpoint_when_all_are_disabled() {
    let mut field = Field::new(Balance::RoundRobin, &["a", "b"]);
    for name in ["a", "b"] {
        let id = field.id(name);
        assert!(field.pool.disable(id));
    }
    assert_eq!(field.choose(), Choice::NoEndpoint);
    let a = field.id("a");
    assert_eq!(
        field.pool.unusable(&field.settings, a, field.now),
        Some(Unusable::Disabled(Disabled::Person))
    );
    assert!(field.pool.enable(a));
    assert_eq!(field.leave(2), "aa");
    assert_eq!(Pool::new(Balance::First).endpoints().len(), 0);
    assert_eq!(Field::new(Balance::First, &[]).choose(), Choice::NoEndpoint);
}

#[test]
fn endpoints_come_and_go_at_run_time() {
    let mut field = Field::new(Balance::RoundRobin, &["a", "b"]);
    let under_way = field.send();
    assert!(field.pool.remove(under_way.endpoint()));
    assert_eq!(
        field.end(under_way, 429),
        LadderStep::Late,
        "it was removed"
    );
    assert_eq!(field.pool.add("b"), None, "the name is taken");
    let again = field.pool.add("a").unwrap();
    assert_eq!(field.sequence(4), "baba");
    assert!(field.pool.remove(again));
    assert!(!field.pool.remove(again));
    assert!(!field.pool.enable(again));
    assert!(!field.pool.disable(again));
}

#[test]
fn a_pool_has_a_bound() {
    let mut pool = Pool::new(Balance::First);
    for number in 0..Pool::MAX_ENDPOINTS {
        assert!(pool.add(&number.to_string()).is_some());
    }
    assert_eq!(pool.add("one more"), None);
}

#[test]
fn one_endpoint_alone_is_left_to_its_gate() {
    let mut field = Field::new(Balance::First, &["a"]);
    let lease = field.send();
    assert_eq!(field.end(lease, 429), LadderStep::Unchanged);
    assert_eq!(field.leave(2), "aa");

    let mut options = LadderOptions::default();
    options.set("enabled", "true").unwrap();
    field.settings = options.build().unwrap();
    field.fail("a");
    assert!(matches!(
        field.choose(),
        Choice::Wait { until: Some(_), .. }
    ));
}

#[test]
fn does_not_pause_without_protection() {
    let mut field = Field::new(Balance::First, &["a", "b"]);
    field.fail("a");
    let mut options = LadderOptions::default();
    options.set("enabled", "false").unwrap();
    field.settings = options.build().unwrap();
    assert_eq!(field.leave(1), "a", "the pause no longer matters");
    for _ in 0..6 {
        field.fail("b");
    }
    assert!(field.pool.find("b").unwrap().ladder().is_enabled());
}

#[test]
fn ten_refusals_of_one_burst_are_one_step() {
    let mut field = Field::new(Balance::First, &["a", "b"]);
    let burst: Vec<_> = (0..10).map(|_| field.send()).collect();
    for lease in burst {
        field.end(lease, 429);
    }
    let a = field.pool.find("a").unwrap();
    assert_eq!(a.ladder().consecutive_errors(), 1);
    assert_eq!(a.ladder().remaining(field.now), Duration::from_secs(30));
    assert!(a.ladder().is_enabled());
    assert_eq!(a.in_flight(), 0);
}

#[test]
fn a_restart_keeps_pauses() {
    let mut field = Field::new(Balance::First, &["a", "b"]);
    field.fail("a");
    let record = field.pool.find("a").unwrap().ladder().record(field.now);
    let mut pool = Pool::new(Balance::First);
    let a = pool.restore("a", record, Timestamp::from_secs(7)).unwrap();
    pool.add("b").unwrap();
    assert_eq!(
        pool.unusable(&field.settings, a, Timestamp::from_secs(36)),
        Some(Unusable::Paused {
            until: Timestamp::from_secs(37)
        })
    );
}

#[test]
fn words_for_people_and_programs() {
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
fn of_endpoints_that_are_free_at_the_same_time_the_first_is_named() {
    let mut field = Field::new(Balance::First, &["a", "b"]);
    assert_eq!(field.pool.balance(), Balance::First);
    let (now, later) = (field.now, field.now + Duration::from_secs(5));
    let choice = field.pool.choose(&field.settings, now, |_| later);
    let Choice::Wait {
        endpoint, until, ..
    } = choice
    else {
        panic!("{choice:?}");
    };
    assert_eq!((field.name(endpoint), until), ("a", Some(later)));
}

#[test]
fn least_loaded_counts_what_the_gates_have_in_flight() {
    let settings = LadderSettings::default();
    let mut pool = Pool::new(Balance::LeastLoaded);
    let [a, b] = ["a", "b"].map(|name| pool.add(name).unwrap());
    let now = Timestamp::ZERO;
    let choice = pool.choose(&settings, now, |endpoint| GateState {
        opens_at: now,
        in_flight: if endpoint.id() == a { 3 } else { 2 },
    });
    assert!(matches!(choice, Choice::Send(lease) if lease.endpoint() == b));
}

#[test]
fn reordering_preserves_the_state_of_endpoints() {
    let mut pool = Pool::new(Balance::First);
    let [a, b, c] = ["a", "b", "c"].map(|name| pool.add(name).unwrap());
    pool.disable(a);
    pool.reorder(&["c", "unknown", "a"]);
    let order: Vec<EndpointId> = pool.endpoints().iter().map(Endpoint::id).collect();
    assert_eq!(order, [c, a, b]);
    assert!(!pool.get(a).unwrap().ladder().is_enabled());
}
