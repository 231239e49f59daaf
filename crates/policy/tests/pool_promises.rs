//! Properties of a pool over long random histories, with any settings.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_policy::ladder::{EndpointResult, LadderOptions, LadderSettings};
use tidegate_policy::pool::{Balance, Choice, EndpointId, Lease, Pool, Unusable};
use tidegate_policy::time::Timestamp;

#[derive(Clone, Copy, Debug)]
enum Event {
    Choose,
    End(usize, u16),
    Abandon(usize),
    Pass(u64),
    Enable(usize),
    Disable(usize),
    Add,
    Remove(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let status = prop::sample::select(vec![200, 200, 404, 429, 503]);
    let event = prop_oneof![
        8 => Just(Event::Choose),
        6 => (any::<usize>(), status).prop_map(|(n, status)| Event::End(n, status)),
        1 => any::<usize>().prop_map(Event::Abandon),
        4 => (0_u64..100).prop_map(Event::Pass),
        1 => any::<usize>().prop_map(Event::Enable),
        1 => any::<usize>().prop_map(Event::Disable),
        1 => Just(Event::Add),
        1 => any::<usize>().prop_map(Event::Remove),
    ];
    prop::collection::vec(event, 0..200)
}

fn balances() -> impl Strategy<Value = Balance> {
    prop::sample::select(vec![
        Balance::LeastLoaded,
        Balance::RoundRobin,
        Balance::First,
    ])
}

fn protected() -> LadderSettings {
    let mut options = LadderOptions::default();
    options.set("enabled", "true").unwrap();
    options.build().unwrap()
}

/// When an endpoint's gate admits: some are closed now and then.
fn gate_opens_at(name: &str, now: Timestamp) -> Timestamp {
    let phase = name.len() as u64 + now.as_nanos() / 1_000_000_000;
    if phase.is_multiple_of(3) {
        now + Duration::from_secs(phase % 5)
    } else {
        now
    }
}

fn pick(pool: &Pool, n: usize) -> Option<EndpointId> {
    let endpoints = pool.endpoints();
    let index = n.checked_rem(endpoints.len())?;
    Some(endpoints[index].id())
}

proptest! {
    #[test]
    fn chooses_only_usable_endpoints_and_names_the_earliest(
        balance in balances(),
        events in events(),
    ) {
        let settings = protected();
        let mut pool = Pool::new(balance);
        let mut names = ["a", "bb", "ccc"].map(String::from).to_vec();
        for name in &names {
            pool.add(name).unwrap();
        }
        let mut out: Vec<(Lease, Timestamp)> = Vec::new();
        let mut now = Timestamp::ZERO;
        for event in events {
            match event {
                Event::Choose => {
                    let before = pool.clone();
                    match pool.choose(&settings, now, |it| gate_opens_at(it.name(), now)) {
                        Choice::Send(lease) => {
                            let id = lease.endpoint();
                            let endpoint = before.get(id).unwrap();
                            prop_assert!(endpoint.ladder().is_enabled());
                            prop_assert!(!endpoint.ladder().is_paused(now));
                            prop_assert!(gate_opens_at(endpoint.name(), now) <= now);
                            if endpoint.ladder().is_recovering(now) {
                                let lost = Duration::from_secs(120);
                                let others = out.iter().filter(|(other, left)| {
                                    other.endpoint() == id
                                        && other.epoch() == lease.epoch()
                                        && now.since(*left) < lost
                                });
                                prop_assert_eq!(others.count(), 0, "two through a recovering one");
                            }
                            out.push((lease, now));
                        }
                        Choice::Wait { endpoint, until, reason } => {
                            let when = |id: EndpointId| {
                                let gate = gate_opens_at(before.get(id).unwrap().name(), now);
                                match before.unusable(&settings, id, now) {
                                    None => Some(gate),
                                    Some(Unusable::Paused { until }) => Some(until.max(gate)),
                                    Some(Unusable::Disabled(_) | Unusable::Recovering) => None,
                                }
                            };
                            let all = before.endpoints().iter().map(|it| when(it.id()));
                            prop_assert_eq!(until, all.flatten().min(), "the earliest");
                            prop_assert!(until.is_none_or(|until| until > now));
                            prop_assert_eq!(until, when(endpoint));
                            prop_assert_eq!(reason, before.unusable(&settings, endpoint, now));
                        }
                        Choice::NoEndpoint => {
                            let mut all = before.endpoints().iter();
                            prop_assert!(all.all(|it| !it.ladder().is_enabled()));
                        }
                    }
                }
                Event::End(n, status) if !out.is_empty() => {
                    let (lease, _) = out.swap_remove(n % out.len());
                    pool.settle(&settings, lease, &EndpointResult::status(status), now);
                }
                Event::Abandon(n) if !out.is_empty() => {
                    let (lease, _) = out.swap_remove(n % out.len());
                    pool.abandon(lease);
                }
                Event::End(..) | Event::Abandon(_) => {}
                Event::Pass(seconds) => now = now + Duration::from_secs(seconds),
                Event::Enable(n) => _ = pick(&pool, n).map(|id| pool.enable(id)),
                Event::Disable(n) => _ = pick(&pool, n).map(|id| pool.disable(id, now)),
                Event::Add => {
                    let name = "n".repeat(names.len() + 1);
                    prop_assert!(pool.add(&name).is_some());
                    names.push(name);
                }
                Event::Remove(n) => _ = pick(&pool, n).map(|id| pool.remove(id)),
            }
            for endpoint in pool.endpoints() {
                let under_way = out.iter().filter(|(it, _)| it.endpoint() == endpoint.id());
                prop_assert_eq!(endpoint.in_flight() as usize, under_way.count());
            }
        }
    }

    #[test]
    fn round_robin_is_fair_among_usable_endpoints(
        count in 1_usize..8,
        paused in any::<u8>(),
        requests in 1_usize..100,
    ) {
        let settings = protected();
        let mut pool = Pool::new(Balance::RoundRobin);
        let ids: Vec<_> = (0..count).map(|n| pool.add(&n.to_string()).unwrap()).collect();
        let now = Timestamp::ZERO;
        for (n, &id) in ids.iter().enumerate() {
            if paused >> n & 1 == 1 {
                pool.disable(id, now);
            }
        }
        let mut chosen: BTreeMap<EndpointId, usize> = BTreeMap::new();
        for _ in 0..requests {
            match pool.choose(&settings, now, |_| now) {
                Choice::Send(lease) => *chosen.entry(lease.endpoint()).or_default() += 1,
                other => {
                    prop_assert_eq!(other, Choice::NoEndpoint);
                    return Ok(());
                }
            }
        }
        let usable = ids.iter().filter(|&&id| pool.get(id).unwrap().ladder().is_enabled());
        let counts: Vec<usize> = usable.map(|id| chosen.get(id).copied().unwrap_or(0)).collect();
        prop_assert_eq!(counts.iter().sum::<usize>(), requests);
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        prop_assert!(most - least <= 1, "{:?}", counts);
    }

    #[test]
    fn accepts_extreme_times(
        balance in balances(),
        times in prop::collection::vec((any::<u64>(), any::<u64>(), 0_u16..1000), 0..50),
    ) {
        let settings = protected();
        let mut pool = Pool::new(balance);
        for name in ["a", "b"] {
            pool.add(name).unwrap();
        }
        for (nanos, gate, status) in times {
            let now = Timestamp::from_nanos(nanos);
            let says = Timestamp::from_nanos(gate);
            if let Choice::Send(lease) = pool.choose(&settings, now, |_| says) {
                pool.settle(&settings, lease, &EndpointResult::status(status), now);
            }
        }
    }
}
