//! Hidden limits of many hosts at once.

use std::time::Duration;

use app::mock::{MockSettings, MockStats, spec};
use sim::upstream::UpstreamSettings;

use crate::virtual_time::{Observed, VirtualFetch};

/// Buckets, which start with one second's tokens or fewer, and windows; half of them send Retry-After.
#[rustfmt::skip]
const LIMITS: [&str; 20] = [
    "10/s", "11/s", "12/s", "13/s", "14/s", "15/s", "17/s", "20/s", "22/s", "25/s burst 5", "28/s",
    "30/s", "35/s burst 10", "40/s", "50/s", "80/s", "100/s", "40/2s", "60/5s", "150/10s",
];

/// URLs of each host.
const URLS: usize = 200;

#[test]
fn fetches_from_twenty_limited_hosts_in_the_time_of_the_slowest() {
    let mocks = LIMITS
        .iter()
        .enumerate()
        .map(|(index, limit)| MockSettings {
            upstream: Some(UpstreamSettings {
                latency: Duration::ZERO,
                refuse_latency: Duration::ZERO,
                network: Duration::ZERO,
                retry_after: index % 2 == 1,
                ..UpstreamSettings::of(spec::limit(limit).unwrap().kind())
            }),
            ..MockSettings::default()
        });
    let fetch = VirtualFetch::new("", mocks.collect());
    let bases: Vec<String> = fetch.mocks.iter().map(|mock| mock.url()).collect();
    let urls: Vec<String> = (0..URLS)
        .flat_map(|number| bases.iter().map(move |base| format!("{base}/{number}")))
        .collect();
    let (summary, records) = fetch.run(&urls, || Observed::Nothing);
    let failed: Vec<_> = records
        .iter()
        .filter(|record| record.error.is_some())
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(
        (summary.counts.done, summary.counts.failed),
        (20 * URLS as u64, 0)
    );
    // Ten at once, then ten per second; robots.txt is one more.
    let allowed = (URLS as f64 + 1.0 - 10.0) / 10.0;
    let elapsed = fetch.elapsed().as_secs_f64();
    assert!(
        elapsed <= 1.1 * allowed,
        "{elapsed} s instead of {allowed} s"
    );
    let sum = |count: fn(&MockStats) -> u64| -> u64 {
        fetch.mocks.iter().map(|mock| count(&mock.stats())).sum()
    };
    let (received, refused) = (sum(|stats| stats.received), sum(|stats| stats.refused));
    // Most refusals are those by which a limit is found, so that their share falls with the number of
    // requests.
    assert!(refused * 25 < received, "{refused} of {received} refused");
    assert_eq!(sum(|stats| stats.early), 0);
}
