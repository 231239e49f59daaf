//! How much memory a gateway takes with many gates, and with many waiting requests.

use crate::support::{Fixture, in_child, mock, pool, request, until};

/// What this process has in memory, in MiB.
pub(crate) fn resident() -> u64 {
    resident_kib() >> 10
}

/// The same in KiB.
pub(crate) fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse().unwrap()
}

#[test]
fn many_gates_and_waiting_requests_take_little_memory() {
    in_child(
        "memory::many_gates_and_waiting_requests_take_little_memory",
        || {
            let mock = mock();
            let gate = "[gate]\nstrategy = \"fixed\"\ninitial_rate = 10000\nmax_in_flight = 1\n";
            let gateway = Fixture::new(&format!("{gate}{}", pool(&[("a", &mock.url())])));
            for number in 0..10_000 {
                let key = format!("host-{number}.example.com");
                drop(gateway.state.limiter().try_acquire(key.as_str()).unwrap());
            }
            let mut first = gateway.connect();
            first.send(&request("GET", "/api/slow?first=1h", &[], ""));
            until("it is under way", || mock.stats().in_flight == 1);
            let headers = [
                "authorization: Bearer abc",
                "content-type: application/json",
            ];
            let text = request("POST", "/api/echo", &headers, &"x".repeat(2000));
            let mut clients: Vec<_> = (0..2000).map(|_| gateway.connect()).collect();
            for client in &mut clients {
                client.send(&text);
            }
            let waiting = || {
                gateway
                    .state
                    .limiter()
                    .snapshot(tidegate::Sort::default(), 0)
                    .totals
                    .waiting
            };
            until("all wait in line", || waiting() == 2000);
            let taken = resident();
            assert!(taken < 200, "{taken} MiB");
            // And all of them are served.
            drop(first);
            for client in &mut clients {
                assert_eq!(client.reply(false).unwrap().status, 200);
            }
        },
    );
}
