//! What a decision at a shared gate costs beside one at a local gate: the ratio, in one run.
//!
//! Both limiters admit and settle the same bursts in turn, on one thread. The shared one is a node of a
//! fleet whose store answers on another thread, as a server's does. Bursts are far below the rate, so
//! that neither gate makes anything wait: what is measured is the path of a request that is sent at once.
//!
//! The last line is JSON: {"local_ns": n, "shared_ns": n, "local_cost_ratio": r}; medians of all rounds.

use std::collections::BTreeMap;
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use tidegate::fleet::{Ledger, NodeId, SharedGates};
use tidegate::{Clock, GateSettings, Limiter, Outcome, Strategy};

const KEY: &str = "api.example.com";
const ROUNDS: usize = 300;
/// Fewer than the tokens that both gates save.
const BURST: usize = 1500;
const RATE: f64 = 1_000_000.0;

fn main() -> Result<(), Box<dyn Error>> {
    let local = Limiter::builder().gate(settings()?).build();
    let (interval, lease) = (Duration::from_millis(100), Duration::from_secs(2));
    let shared = Limiter::builder()
        .gate(settings()?)
        .fleet(NodeId(1), interval, lease)
        .build();
    let gates = shared.shared_gates().ok_or("it is no fleet")?;
    let clock = shared.clock().clone();
    thread::spawn(move || answer(&gates, &clock));
    // The first reply brings the share.
    while shared.try_acquire(KEY).is_err() {
        thread::sleep(Duration::from_millis(5));
    }
    let (mut locals, mut shareds, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        thread::sleep(Duration::from_millis(10));
        let (one, other) = (burst(&local), burst(&shared));
        locals.push(one);
        shareds.push(other);
        ratios.push(other / one);
    }
    println!(
        "{{\"local_ns\": {:.1}, \"shared_ns\": {:.1}, \"local_cost_ratio\": {:.2}}}",
        median(&mut locals),
        median(&mut shareds),
        median(&mut ratios)
    );
    Ok(())
}

fn settings() -> Result<GateSettings, Box<dyn Error>> {
    let options = GateSettings::builder()
        .strategy(Strategy::Fixed)
        .max_rate(RATE)
        .initial_rate(RATE);
    Ok(options.build()?)
}

/// Nanoseconds of a permit, from the ask to its end. A shared gate that is out of tokens or slots is not
/// what is measured.
fn burst(limiter: &Limiter) -> f64 {
    let outcome = Outcome::status(200, Duration::from_millis(50));
    let mut refused = 0;
    let start = Instant::now();
    for _ in 0..BURST {
        match limiter.try_acquire(KEY) {
            Ok(permit) => _ = permit.settle(&outcome),
            Err(_) => refused += 1,
        }
    }
    let nanos = start.elapsed().as_nanos() as f64 / BURST as f64;
    assert!(refused < BURST / 100, "{refused} of {BURST} were refused");
    nanos
}

/// The store of the fleet.
fn answer(gates: &SharedGates, clock: &Clock) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let Ok(runtime) = runtime else { return };
    let mut ledgers: BTreeMap<String, Ledger> = BTreeMap::new();
    loop {
        for call in runtime.block_on(gates.calls(32)) {
            let now = clock.now();
            let ledger = ledgers
                .entry(call.key.clone())
                .or_insert_with(|| Ledger::new(&call.settings, call.call.claim.as_ref(), now));
            let (reply, _) = ledger.sync(&call.settings, gates.node(), &call.call, now);
            gates.replied(call, &reply);
        }
        gates.tick();
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
