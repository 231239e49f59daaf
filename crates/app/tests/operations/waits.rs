//! Real waits of the presets, over real sockets. Lower bounds are exact; upper bounds hold for the
//! median of three, 100 ms above what jitter allows.

use std::time::Duration;

use app::state::OperationRequest;

use super::support::{Running, Upstream, post};

/// How long after its first send an operation is sent again, for three at servers of their own.
fn waits(running: &Running, upstreams: &[Upstream]) -> Vec<Duration> {
    let mut waits: Vec<Duration> = upstreams
        .iter()
        .map(|upstream| {
            running.wait_for(|| upstream.received().len() >= 2);
            let received = upstream.received();
            received[1].at - received[0].at
        })
        .collect();
    waits.sort();
    waits
}

fn three(answer: fn() -> (u16, String, String)) -> Vec<Upstream> {
    let upstream = |_| {
        Upstream::new(move |number, _| match number {
            1 => answer(),
            _ => (200, String::new(), String::new()),
        })
    };
    (0..3).map(upstream).collect()
}

fn failing() -> (u16, String, String) {
    (500, String::new(), String::new())
}

fn throttled() -> (u16, String, String) {
    (429, "retry-after: 1\r\n".to_owned(), String::new())
}

#[test]
fn waits_as_long_as_each_preset_says() {
    let running = Running::new("");
    // The first wait is the base, times 0.5 to 1.5.
    let presets = [
        ("standard", 500..1500),
        ("aggressive", 250..750),
        ("conservative", 1000..3000),
        ("background", 1000..3000),
    ];
    let started: Vec<_> = presets
        .into_iter()
        .map(|(preset, bounds)| {
            let upstreams = three(failing);
            for upstream in &upstreams {
                let request = OperationRequest {
                    backoff: Some(preset.to_owned()),
                    ..post(&upstream.url("/"))
                };
                running.accept(request).unwrap();
            }
            (preset, bounds, upstreams)
        })
        .collect();
    for (preset, bounds, upstreams) in started {
        let waits = waits(&running, &upstreams);
        assert!(
            waits[0] >= Duration::from_millis(bounds.start),
            "{preset}: {waits:?}"
        );
        let most = Duration::from_millis(bounds.end + 100);
        assert!(waits[1] <= most, "{preset}: {waits:?}");
    }
}

#[test]
fn waits_as_the_server_says_and_up_to_five_seconds_more() {
    let running = Running::new("");
    let upstreams = three(throttled);
    for upstream in &upstreams {
        running.post(&upstream.url("/"));
    }
    let waits = waits(&running, &upstreams);
    assert!(waits[0] >= Duration::from_secs(1), "{waits:?}");
    assert!(waits[1] <= Duration::from_millis(6100), "{waits:?}");
}
