//! Stores that fail: traffic continues, health and metrics show it, and nothing is lost in the end.

use std::num::NonZeroUsize;
use std::sync::Arc;

use app::admin::{Admin, Token};
use app::gateway::Gateway;
use app::jobs::Jobs;
use app::mock::{Mock, MockSettings};
use store::Store;
use store::faulty::Faults;

use crate::support::{Persisted, folder, send, wait_until};

#[test]
fn traffic_continues_while_the_store_fails() {
    let listen = "127.0.0.1:0".parse().unwrap();
    let mock = Mock::start(MockSettings::default(), listen, NonZeroUsize::MIN).unwrap();
    let text = format!(
        "[gate]\ninitial_rate = 1000\n[pool.p]\nendpoints = [{{ name = \"a\", url = \"{}\" }}]",
        mock.url()
    );
    let (_folder, data) = folder();
    let faults = Faults::from(1);
    let store = Store::open_faulty(&data, faults.clone()).unwrap();
    let persisted = Persisted::start(&text, &data, store.clone());
    let gateway = Gateway::start(Arc::clone(&persisted.state), listen).unwrap();
    let trails = Arc::clone(gateway.trails());
    let jobs = Jobs::new(Arc::clone(&persisted.state));
    let admin = Admin::start(Arc::clone(&persisted.state), trails, jobs).unwrap();
    let token = Token::open(&data).unwrap();
    let ask = |method: &str, path: &str, body: &str| {
        send(admin.address(), method, path, token.expose(), body)
    };
    let is_served = || send(gateway.address(), "GET", "/p/x", "", "").0 == 200;
    assert_eq!(ask("GET", "/readyz", "").0, 200);
    assert!(is_served());

    persisted.throttle("held.example.com", 300);
    wait_until("unready", || ask("GET", "/readyz", "").0 == 503);
    let (_, said) = ask("GET", "/readyz", "");
    assert!(
        said.contains("cannot be stored") && said.contains("on purpose"),
        "{said}"
    );
    assert!(is_served());
    // A change that cannot be stored is not made.
    let change = "{\"disable_after\":7}";
    let path = "/api/v1/pools/p/protection";
    assert_eq!(ask("PUT", path, change).0, 503);
    let (_, pool) = ask("GET", "/api/v1/pools/p", "");
    assert!(pool.contains("\"disable_after\":5"), "{pool}");
    let isolate = "/api/v1/gates/isolated.example.com/isolate";
    assert_eq!(ask("POST", isolate, "").0, 503);
    assert_eq!(ask("GET", "/api/v1/gates/isolated.example.com", "").0, 404);
    assert!((0..20).all(|_| is_served()));

    faults.heal();
    wait_until("ready", || ask("GET", "/readyz", "").0 == 200);
    assert_eq!(ask("PUT", path, change).0, 200);
    assert_eq!(ask("POST", isolate, "").0, 200);
    wait_until("logged", || persisted.log.count("store_recovered") == 1);
    assert_eq!(persisted.log.count("store_degraded"), 1);
    // What gates learned meanwhile is stored.
    let is_stored = |key: &str| {
        let gates = store.load().unwrap().gates;
        gates.iter().any(|gate| gate.key == key)
    };
    wait_until("stored", || {
        ["held.example.com", "isolated.example.com", "p/a"]
            .into_iter()
            .all(is_stored)
    });
}

#[test]
fn loses_nothing_whichever_store_call_fails_once() {
    for n in 1..=14 {
        let (_folder, data) = folder();
        let faults = Faults::once(n);
        let store = Store::open_faulty(&data, faults).unwrap();
        let persisted = Persisted::start("[gate]\ninitial_rate = 100", &data, store.clone());
        persisted.throttle("a.example.com", 300);
        persisted.throttle("b.example.com", 300);
        persisted.state.limiter().isolate("c.example.com").unwrap();
        drop(persisted);
        let stored = store.load().unwrap();
        let keys: Vec<&str> = stored.gates.iter().map(|gate| gate.key.as_str()).collect();
        assert_eq!(
            keys,
            ["a.example.com", "b.example.com", "c.example.com"],
            "{n}"
        );
        assert!(
            stored.gates[..2]
                .iter()
                .all(|gate| gate.record.hold.is_some()),
            "{n}"
        );
    }
}

#[test]
fn ends_with_a_store_that_never_works() {
    let (_folder, data) = folder();
    let store = Store::open_faulty(&data, Faults::from(1)).unwrap();
    let persisted = Persisted::start("", &data, store.clone());
    persisted.throttle("a.example.com", 300);
    drop(persisted);
    assert!(store.is_degraded());
    assert_eq!(store.load().unwrap().gates, []);
}

#[test]
fn probes_a_failed_store_when_there_is_nothing_to_write() {
    let (_folder, data) = folder();
    let faults = Faults::once(1);
    let store = Store::open_faulty(&data, faults).unwrap();
    let persisted = Persisted::start("", &data, store.clone());
    let change = store::Change::ForgetGate {
        key: "a".to_owned(),
    };
    assert!(store.save(change).wait().is_err());
    wait_until("well", || !store.is_degraded());
    wait_until("said", || persisted.log.count("store_recovered") == 1);
}
