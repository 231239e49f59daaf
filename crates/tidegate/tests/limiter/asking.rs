//! Asks without waiting, asks for several gates, and shared gates.

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use policy::hosts::{HostPattern, Hosts};
use policy::time::Timestamp;
use tidegate::event::Event;
use tidegate::{
    Ask, GateSettings, HostSettings, Limiter, LimiterBuilder, ManualClock, Reason, TooManyHosts,
};

use crate::support::{Caller, KEY, limiter, load, ok, secs, settings};

const SLOW: &[(&str, &str)] = &[("strategy", "fixed"), ("initial_rate", "1")];

#[test]
fn try_acquire_refusal_has_its_reason() {
    let (_, limiter) = limiter(SLOW);
    limiter.try_acquire(KEY).unwrap().settle(&ok());
    let refusal = limiter.try_acquire(KEY).unwrap_err();
    assert_eq!(refusal.reason(), Reason::Rate);
    assert_eq!(refusal.until(), Some(Timestamp::from_millis(998)));
    let mut caller = Caller::new(limiter.acquire(Ask::new(KEY).within(Duration::ZERO)));
    let Poll::Ready(Err(refusal)) = caller.poll() else {
        panic!("expected a refusal");
    };
    assert_eq!(refusal.reason(), Reason::Rate);
}

#[test]
fn try_acquire_takes_the_cost() {
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "1000")]);
    limiter
        .try_acquire(Ask::new(KEY).cost(3))
        .unwrap()
        .settle(&ok());
    assert!(limiter.try_acquire(KEY).is_err());
    clock.advance(Duration::from_millis(1));
    assert!(limiter.try_acquire(KEY).is_ok());
}

#[test]
fn try_acquire_of_several_keys_is_all_or_nothing() {
    let (_, limiter) = limiter(SLOW);
    let both = Ask::new("host").also(&["account", "host", "account"]);
    limiter.try_acquire("account").unwrap().settle(&ok());
    assert!(limiter.try_acquire(both).is_err());
    assert!(limiter.peek("host").is_ok(), "its token was given back");
    assert_eq!(load(&limiter, "host"), (0, 0));
}

#[test]
fn duplicate_key_costs_one_token() {
    let (_, limiter) = limiter(SLOW);
    let ask = Ask::new("host").also(&["account", "host", "account"]);
    let permit = limiter.try_acquire(ask).unwrap();
    assert_eq!(
        (load(&limiter, "host"), load(&limiter, "account")),
        ((1, 0), (1, 0))
    );
    permit.settle(&ok());
    assert_eq!(
        (load(&limiter, "host"), load(&limiter, "account")),
        ((0, 0), (0, 0))
    );
}

fn shared_gate() -> (ManualClock, Limiter, Arc<Mutex<Vec<String>>>) {
    let clock = ManualClock::new();
    let events = Arc::new(Mutex::new(Vec::new()));
    let listener = {
        let events = Arc::clone(&events);
        move |_: Timestamp, event: &Event<'_>| {
            let key = match event {
                Event::Admitted { key, .. }
                | Event::Settled { key, .. }
                | Event::Waiting { key, .. } => key,
                _ => "",
            };
            events
                .lock()
                .expect("no test panics here")
                .push(format!("{} {key}", event.name()));
        }
    };
    let limiter = Limiter::builder()
        .host(
            "*.example.com".parse().expect("a valid pattern"),
            HostSettings {
                share: true,
                ..HostSettings::from(settings(SLOW))
            },
        )
        .clock(clock.clock())
        .listener(listener)
        .build();
    (clock, limiter, events)
}

#[test]
fn hosts_of_a_shared_gate_share_all_state() {
    let (clock, limiter, events) = shared_gate();
    let permit = limiter.try_acquire("a.example.com").unwrap();
    assert!(limiter.try_acquire("b.example.com").is_err());
    assert_eq!(limiter.gates(), 1);
    let view = limiter.gate("c.example.com").unwrap();
    assert_eq!(
        (view.key.as_str(), view.gate.in_flight),
        ("*.example.com", 1)
    );
    permit.settle(&ok());
    let events = std::mem::take(&mut *events.lock().unwrap());
    assert_eq!(events[0], "admitted *.example.com");
    assert_eq!(events[2], "settled *.example.com");
    limiter.isolate("a.example.com").unwrap();
    clock.advance(secs(10));
    assert_eq!(limiter.gates(), 1, "no gate of its own");
    let refusal = limiter.try_acquire("b.example.com").unwrap_err();
    assert_eq!(refusal.reason(), Reason::BreakerOpen);
    assert!(limiter.release("c.example.com") && limiter.reset("d.example.com"));
    assert!(limiter.try_acquire("b.example.com").is_ok());
}

#[test]
fn emits_one_admitted_event_per_gate_of_an_ask() {
    let (clock, limiter, events) = shared_gate();
    limiter.try_acquire("account").unwrap().settle(&ok());
    limiter
        .try_acquire("account")
        .map(|permit| permit.settle(&ok()))
        .ok();
    while limiter.try_acquire("account").is_ok() {}
    events.lock().unwrap().clear();
    let ask = Ask::new("a.example.com").also(&["account"]);
    let mut caller = Caller::new(limiter.acquire(ask));
    assert!(caller.poll().is_pending());
    clock.advance(secs(5));
    assert!(matches!(caller.poll(), Poll::Ready(Ok(_))));
    let events = events.lock().unwrap();
    let admitted: Vec<&str> = events
        .iter()
        .filter(|event| event.starts_with("admitted"))
        .map(String::as_str)
        .collect();
    assert_eq!(admitted, ["admitted *.example.com", "admitted account"]);
}

#[test]
fn waits_once_for_a_duplicate_key() {
    let (clock, limiter) = limiter(SLOW);
    limiter.try_acquire(KEY).unwrap().settle(&ok());
    let mut caller = Caller::new(limiter.acquire(Ask::new(KEY).also(&[KEY])));
    assert!(caller.poll().is_pending());
    clock.advance(secs(1));
    assert!(matches!(caller.poll(), Poll::Ready(Ok(_))));
}

#[test]
fn settings_for_too_many_keys_are_an_error_and_change_nothing() {
    let own = || GateSettings::fixed(5.0);
    let full = |keys: usize| {
        let mut hosts = Hosts::new(HostSettings::default());
        for number in 0..keys {
            let pattern = HostPattern::key(&format!("account:{number}"));
            hosts.insert(pattern, own().into()).unwrap();
        }
        Limiter::builder().hosts(hosts)
    };
    let max = Hosts::<()>::MAX_HOSTS;
    let limiter = full(max - 1).key("account:last", own()).build();
    assert_eq!(limiter.set_key("account:more", own()), Err(TooManyHosts));
    assert_eq!(limiter.set_key_prefix("user:", own()), Err(TooManyHosts));
    let rate = |key: &str| limiter.settings(key).gate.initial_rate();
    assert_eq!((rate("account:last"), rate("account:more")), (5.0, 2.0));
    assert_eq!(
        limiter.set_key("account:0", GateSettings::fixed(7.0)),
        Ok(())
    );
    assert!(rate("account:0") > 6.9);

    let add: [fn(LimiterBuilder) -> LimiterBuilder; 3] = [
        |builder| builder.key("account:more", GateSettings::fixed(5.0)),
        |builder| builder.key_prefix("user:", GateSettings::fixed(5.0)),
        |builder| builder.host("*.example.com".parse().unwrap(), GateSettings::fixed(5.0)),
    ];
    let builder = full(max);
    for add in add {
        let built = add(builder.clone()).try_build();
        assert_eq!(built.err(), Some(TooManyHosts));
    }
}
