//! Runs every example and checks its result.
//!
//! The examples are included as modules, which avoids a `cargo run` for each.

#![cfg(all(feature = "reqwest", feature = "tokio", feature = "tower"))]
#![expect(
    clippy::duplicate_mod,
    dead_code,
    unreachable_pub,
    reason = "an example is a program of its own, and here a module of another"
)]

use std::time::Duration;

#[path = "../examples/hedging.rs"]
mod hedging;
#[path = "../examples/pacing_a_queue.rs"]
mod pacing_a_queue;
#[path = "../examples/plain_function.rs"]
mod plain_function;
#[path = "../examples/polling_a_job.rs"]
mod polling_a_job;
#[path = "../examples/pool_failover.rs"]
mod pool_failover;
#[path = "../examples/pool_of_keys.rs"]
mod pool_of_keys;
#[path = "../examples/reqwest_client.rs"]
mod reqwest_client;
#[path = "../examples/settings_at_run_time.rs"]
mod settings_at_run_time;
#[path = "../examples/token_costs.rs"]
mod token_costs;
#[path = "../examples/tower_stack.rs"]
mod tower_stack;

#[tokio::test(start_paused = true)]
async fn plain_function() {
    assert_eq!(plain_function::run().await.unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn hedging() {
    use hedging::{REQUESTS, Server};
    let p95 = Some(tidegate::Hedge::AfterP95);
    let [plain, hedged] = [None, p95].map(|hedge| hedging::run(Server::RarelySlow, hedge));
    let (plain, hedged) = (plain.await.unwrap(), hedged.await.unwrap());
    assert!(
        plain.p99 >= 1000 && hedged.p99 < 250,
        "{plain:?} {hedged:?}"
    );
    assert!(hedged.sent <= REQUESTS * 108 / 100, "{hedged:?}");
    let soon = Some(tidegate::Hedge::After(Duration::from_millis(100)));
    let all = hedging::run(Server::AlwaysSlow, soon).await.unwrap();
    assert!(
        all.sent <= REQUESTS * 6 / 5,
        "the budget bounds them: {all:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn settings_at_run_time() {
    let left = settings_at_run_time::run().await.unwrap();
    assert!(left[2] < Duration::from_millis(2500));
    assert!(left[4] < Duration::from_millis(2600));
}

#[tokio::test(start_paused = true)]
async fn token_costs() {
    let left = token_costs::run().await.unwrap();
    assert!(left[2] < Duration::from_secs(10));
    assert!(left[3] > Duration::from_secs(59));
}

#[tokio::test(start_paused = true)]
async fn polling_a_job() {
    assert_eq!(polling_a_job::run().await.unwrap(), (100.0, 7));
}

#[tokio::test(start_paused = true)]
async fn pacing_a_queue() {
    let (fetched, took) = pacing_a_queue::run().await.unwrap();
    assert_eq!(fetched, ["one", "four", "two", "three"]);
    assert!(took > Duration::from_secs(180), "{took:?}");
}

#[tokio::test]
async fn pool_failover() {
    let bodies = pool_failover::run().await.unwrap();
    assert_eq!(bodies, ["answer 1", "answer 2", "answer 3"]);
}

#[tokio::test]
async fn pool_of_keys() {
    let (succeeded, rejected, keys) = pool_of_keys::run().await.unwrap();
    assert_eq!(succeeded, 9);
    assert_eq!(rejected, 2, "each bad key is tried once");
    let quota = Some(tidegate::Disabled::QuotaExhausted);
    assert_eq!([keys[0].disabled, keys[2].disabled], [None, quota]);
    let error = keys[1].last_error.as_deref().unwrap();
    assert!(error.starts_with("credential rejected: "), "{error}");
}

#[tokio::test]
async fn reqwest_client() {
    let bodies = reqwest_client::run().await.unwrap();
    assert_eq!(bodies, ["/one is response 1", "/two is response 3"]);
}

#[tokio::test]
async fn tower_stack() {
    let (body, steps) = tower_stack::run().await.unwrap();
    assert_eq!(body, "hello");
    assert!(
        steps.contains(&"HTTP 502, overloaded".to_owned()),
        "{steps:?}"
    );
}
