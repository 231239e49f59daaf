//! What is written, and what is not.

use std::sync::Arc;
use std::time::Duration;

use app::server::{Logs, Server};
use policy::ladder::Disabled;
use policy::outcome::Verdict;
use store::Store;
use tidegate::pool::EndpointView;
use tidegate::{Ask, Outcome};

use crate::support::{Persisted, folder, settings, wait, wait_until};

const POOL: &str = "[pool.p]\nendpoints = [\
    { name = \"a\", url = \"http://127.0.0.1:9\" }, { name = \"b\", url = \"http://127.0.0.1:9\" }]";

#[test]
fn writes_a_hold_at_once_and_ordinary_traffic_not() {
    let (_folder, data) = folder();
    let store = Store::open(&data).unwrap();
    let persisted = Persisted::start("[gate]\ninitial_rate = 100", &data, store.clone());
    let hold = || store.load().unwrap().gates.first()?.record.hold;
    persisted.throttle("a.example.com", 60);
    wait_until("written", || hold() > Some(Duration::from_secs(50)));
    wait_until("done", || persisted.state.persist_state().pending == 0);
    for number in 0..50 {
        let key = format!("h{number}.example.com");
        let permit = persisted.state.limiter().try_acquire(key.as_str()).unwrap();
        permit.settle(&Outcome::status(200, Duration::from_millis(5)));
        assert_eq!(persisted.state.persist_state().pending, 0);
    }
}

#[test]
fn stores_last_errors_without_secrets() {
    let (_folder, data) = folder();
    let store = Store::open(&data).unwrap();
    let persisted = Persisted::start(POOL, &data, store.clone());
    let pool = persisted.state.pool("p").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let permit = pool.acquire(Ask::any()).await.unwrap();
        let outcome = Outcome::status(503, Duration::from_millis(5));
        let text = "service unavailable for the key sk-1234567890 of ann@example.com";
        permit.settle_as(&outcome, Some(Verdict::Overloaded), text);
    });
    let last_error = || {
        let endpoints = store.load().unwrap().endpoints;
        let paused = endpoints
            .into_iter()
            .find(|endpoint| endpoint.record.pause.is_some());
        paused.and_then(|endpoint| endpoint.record.last_error)
    };
    wait_until("written", || last_error().is_some());
    let text = last_error().unwrap();
    assert_eq!(&*text, "service unavailable for the key sk-… of …");
    // Nor when a person disables it.
    runtime
        .block_on(persisted.state.switch_endpoint("p", "a", false))
        .unwrap();
    drop(persisted);
    assert_eq!(last_error(), Some(text));
}

#[test]
fn forgets_an_evicted_gate() {
    let (_folder, data) = folder();
    let store = Store::open(&data).unwrap();
    let text = "[gate]\ninitial_rate = 100\nidle_after = \"1s\"";
    let persisted = Persisted::start(text, &data, store.clone());
    for key in ["a.example.com", "b.example.com"] {
        persisted.state.limiter().isolate(key).unwrap();
    }
    wait_until("written", || store.load().unwrap().gates.len() == 2);
    persisted.state.limiter().release("a.example.com");
    wait_until("idle", || {
        persisted.state.limiter().evict_idle();
        persisted.state.limiter().gates() == 1
    });
    drop(persisted);
    let gates = store.load().unwrap().gates;
    let keys: Vec<&str> = gates.iter().map(|gate| gate.key.as_str()).collect();
    assert_eq!(keys, ["b.example.com"]);
}

#[test]
fn writes_everything_after_an_overflow_of_pending_keys() {
    let (_folder, data) = folder();
    let store = Store::memory();
    let persisted = Persisted::start("[gate]\ninitial_rate = 100", &data, store.clone());
    let count = 10_000;
    for number in 0..count {
        persisted.throttle(&format!("h{number}.example.com"), 300);
    }
    drop(persisted);
    let gates = store.load().unwrap().gates;
    assert_eq!(gates.len(), count);
    assert!(gates.iter().all(|gate| gate.record.hold.is_some()));
}

#[test]
fn results_in_flight_are_counted_after_a_reload_that_changes_everything() {
    let (_folder, data) = folder();
    let persisted = Persisted::start(POOL, &data, Store::open(&data).unwrap());
    let pool = persisted.state.pool("p").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let permit = runtime.block_on(pool.acquire(Ask::any())).unwrap();
    let name = permit.endpoint().name().to_owned();
    let changed = "[pool.p]\nbalance = \"first\"\nendpoints = [\
        { name = \"c\", url = \"http://127.0.0.1:10\" }, \
        { name = \"b\", url = \"http://127.0.0.1:10/b\" }, \
        { name = \"a\", url = \"http://127.0.0.1:10/a\" }]";
    persisted.state.reload(Arc::new(settings(changed, &data)));
    permit.settle(&Outcome::throttled(Duration::from_millis(5), None));
    let views = persisted.state.pool("p").unwrap().view();
    let names: Vec<&str> = views.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(names, ["c", "b", "a"]);
    let errors = |view: &&EndpointView| view.consecutive_errors == 1;
    let failed: Vec<&str> = views
        .iter()
        .filter(errors)
        .map(|view| view.name.as_str())
        .collect();
    assert_eq!(failed, [name.as_str()]);
    persisted.state.reload(Arc::new(settings("", &data)));
    assert!(persisted.state.pool("p").is_err());
}

#[test]
fn a_server_without_pools_starts_with_a_warning() {
    let (_folder, data) = folder();
    let server = Server::start(settings("", &data), Logs::silent()).unwrap();
    let [warning] = server.warnings() else {
        panic!("{:?}", server.warnings());
    };
    assert!(warning.starts_with("no pool is configured"), "{warning}");
    assert!(warning.contains("`[pool.NAME]`"), "{warning}");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(server.stop(Duration::from_secs(5)));
}

#[test]
fn a_change_is_never_followed_by_an_older_record() {
    let (_folder, data) = folder();
    let store = Store::open(&data).unwrap();
    let persisted = Persisted::start(POOL, &data, store.clone());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let disabled = || {
        let endpoints = store.load().unwrap().endpoints;
        let found = endpoints.into_iter().find(|endpoint| endpoint.name == "a");
        found.and_then(|endpoint| endpoint.record.disabled)
    };
    for round in 0..30 {
        let is_enabled = round % 2 == 1;
        // Something about the pool that is being written meanwhile.
        persisted.state.pool("p").unwrap().disable("b");
        runtime
            .block_on(persisted.state.switch_endpoint("p", "a", is_enabled))
            .unwrap();
        // As after a crash right now, and a little later.
        for _ in 0..2 {
            let expected = (!is_enabled).then_some(Disabled::Person);
            assert_eq!(disabled(), expected, "{round}");
            wait(Duration::from_millis(2));
        }
    }
}
