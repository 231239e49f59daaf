//! Upstreams seen from outside.

use super::*;

fn bucket(rate: f64, burst: f64) -> UpstreamSettings {
    UpstreamSettings {
        latency_spread: 0.0,
        ..UpstreamSettings::of(Kind::Bucket { rate, burst })
    }
}

/// The statuses of requests of client 0 that arrive at these milliseconds; 0 for a refused
/// connection, 1 for silence.
fn statuses(settings: &UpstreamSettings, arrivals: &[u64]) -> Vec<u16> {
    let mut upstream = Upstream::new(settings);
    let mut random = Random::from_seed(1);
    let mut receive =
        |millis: &u64| match upstream.receive(0, Timestamp::from_millis(*millis), &mut random) {
            Reply::Response { response, .. } => response.status,
            Reply::Unreachable => 0,
            Reply::Silent { .. } => 1,
        };
    arrivals.iter().map(&mut receive).collect()
}

/// The last of these requests: when its response leaves, in milliseconds, and the response.
fn last_response(settings: &UpstreamSettings, arrivals: &[u64]) -> (u64, UpstreamResponse) {
    let mut upstream = Upstream::new(settings);
    let mut random = Random::from_seed(1);
    let mut last = None;
    for millis in arrivals {
        last = Some(upstream.receive(0, Timestamp::from_millis(*millis), &mut random));
    }
    match last {
        Some(Reply::Response { at, response }) => (at.as_nanos() / 1_000_000, response),
        other => panic!("{other:?}"),
    }
}

fn outage(from: u64, to: u64, timeout_share: f64) -> Outage {
    Outage {
        from: Timestamp::from_secs(from),
        to: Timestamp::from_secs(to),
        timeout_share,
        timeout: Duration::from_secs(5),
        status: None,
    }
}

#[test]
fn accepted_and_refused_requests_have_their_own_latency() {
    let settings = bucket(1.0, 1.0);
    assert_eq!(last_response(&settings, &[100]).0, 170);
    assert_eq!(last_response(&settings, &[100, 200]).0, 215);
}

#[test]
fn latencies_have_the_configured_mean_and_spread() {
    let mean = Duration::from_millis(70);
    let mut random = Random::from_seed(3);
    let mut draw = |_| Draws::new(&mut random).lognormal(mean, 0.25).as_secs_f64();
    let times: Vec<f64> = (0..100_000).map(&mut draw).collect();
    let count = times.len() as f64;
    let measured = times.iter().sum::<f64>() / count;
    assert!((measured - 0.07).abs() < 0.0003, "{measured}");
    let logs = times.iter().map(|time| time.ln());
    let middle = logs.clone().sum::<f64>() / count;
    let variance = logs.map(|log| (log - middle).powi(2)).sum::<f64>() / count;
    assert!((variance.sqrt() - 0.25).abs() < 0.003, "{variance}");
}

#[test]
fn limit_status_takes_nothing_and_predicts_the_next_response() {
    let settings = bucket(1.0, 2.0);
    let mut upstream = Upstream::new(&settings);
    let mut random = Random::from_seed(1);
    let mut remaining = Vec::new();
    for millis in [0, 0, 0, 999, 1000] {
        let now = Timestamp::from_millis(millis);
        let status = upstream.limit_status(now);
        assert_eq!(status, upstream.limit_status(now));
        let reply = upstream.receive(0, now, &mut random);
        let is_accepted =
            matches!(reply, Reply::Response { response, .. } if response.is_accepted());
        assert_eq!(is_accepted, status.remaining > 0);
        remaining.push(status.remaining);
    }
    assert_eq!(remaining, [2, 1, 0, 0, 1]);
}

#[test]
fn bucket_is_full_at_start_and_after_an_outage() {
    let settings = UpstreamSettings {
        outages: vec![outage(10, 20, 0.0)],
        ..bucket(1.0, 3.0)
    };
    let arrivals = [
        0, 0, 0, 0, 9_999, 10_000, 19_999, 20_000, 20_000, 20_000, 20_000,
    ];
    assert_eq!(
        statuses(&settings, &arrivals),
        [200, 200, 200, 429, 200, 0, 0, 200, 200, 200, 429]
    );
}

#[test]
fn outage_with_status_responds_with_retry_after_until_its_end() {
    let away = Outage {
        status: Some(503),
        ..outage(1, 3, 0.0)
    };
    let settings = UpstreamSettings {
        outages: vec![away],
        retry_after: true,
        ..bucket(10.0, 5.0)
    };
    assert_eq!(
        statuses(&settings, &[0, 1000, 2999, 3000]),
        [200, 503, 503, 200]
    );
    let (at, response) = last_response(&settings, &[1500]);
    assert_eq!(
        (at, response.status, response.retry_after),
        (1515, 503, Some(2))
    );
}

#[test]
fn configured_share_of_requests_times_out_in_an_outage() {
    let settings = UpstreamSettings {
        outages: vec![outage(0, 100, 0.25)],
        ..bucket(1.0, 1.0)
    };
    let arrivals: Vec<u64> = (0..10_000).collect();
    let silent = statuses(&settings, &arrivals)
        .iter()
        .filter(|status| **status == 1)
        .count();
    assert!(silent.abs_diff(2500) < 180, "{silent}");
}

#[test]
fn last_allowed_excess_gets_429_and_the_next_request_403() {
    let settings = UpstreamSettings {
        ban: Some(Ban {
            excesses: 5,
            within: Duration::from_secs(30),
            length: Duration::from_secs(60),
        }),
        ..bucket(0.01, 1.0)
    };
    let arrivals = [0, 1, 2, 3, 4, 5, 6, 60_004, 60_005];
    let expected = [200, 429, 429, 429, 429, 429, 403, 403, 429];
    assert_eq!(statuses(&settings, &arrivals), expected);
}

#[test]
fn bans_each_client_separately() {
    let settings = UpstreamSettings {
        ban: Some(Ban {
            excesses: 1,
            within: Duration::from_secs(1),
            length: Duration::from_secs(1),
        }),
        ..bucket(0.01, 1.0)
    };
    let mut upstream = Upstream::new(&settings);
    let mut random = Random::from_seed(1);
    let mut status = |client| match upstream.receive(client, Timestamp::ZERO, &mut random) {
        Reply::Response { response, .. } => response.status,
        other => panic!("{other:?}"),
    };
    assert_eq!([0, 1, 1, 0, 0].map(&mut status), [200, 429, 403, 429, 403]);
    assert_eq!(upstream.bans(), 2);
}

#[test]
fn retry_after_is_rounded_up_and_only_on_429() {
    let window = Kind::Window {
        quota: 1,
        period: Duration::from_secs(10),
        phase: Duration::ZERO,
    };
    let settings = UpstreamSettings {
        retry_after: true,
        ..UpstreamSettings::of(window)
    };
    assert_eq!(last_response(&settings, &[0]).1.retry_after, None);
    assert_eq!(last_response(&settings, &[0, 2_500]).1.retry_after, Some(8));
    assert_eq!(last_response(&settings, &[0, 3_000]).1.retry_after, Some(7));
    let bucket = UpstreamSettings {
        retry_after: true,
        ..bucket(0.5, 1.0)
    };
    assert_eq!(last_response(&bucket, &[0, 1]).1.retry_after, Some(2));
}

#[test]
fn headers_name_what_remains_after_this_request() {
    let window = Kind::Window {
        quota: 3,
        period: Duration::from_secs(10),
        phase: Duration::ZERO,
    };
    let settings = UpstreamSettings {
        headers: true,
        ..UpstreamSettings::of(window)
    };
    let status = |arrivals: &[u64]| last_response(&settings, arrivals).1.limit.unwrap();
    let first = status(&[1_000]);
    assert_eq!(
        (first.limit, first.remaining, first.reset.as_secs()),
        (3, 2, 9)
    );
    assert_eq!(status(&[1_000, 1_000, 1_000]).remaining, 0);
    assert_eq!(status(&[1_000, 1_000, 1_000, 1_000]).remaining, 0);
    assert_eq!(status(&[1_000, 10_000]).remaining, 2);
}

#[test]
fn steps_change_the_limit_at_their_instant() {
    let kind = |rate| Kind::Bucket { rate, burst: 5.0 };
    let step = |second, rate| Step {
        at: Timestamp::from_secs(second),
        kind: kind(rate),
    };
    let settings = UpstreamSettings {
        steps: vec![step(10, 1.0), step(20, 4.0)],
        ..UpstreamSettings::of(kind(0.01))
    };
    let mut upstream = Upstream::new(&settings);
    let mut random = Random::from_seed(1);
    let mut taken_at = |millis| {
        let mut take = || upstream.receive(0, Timestamp::from_millis(millis), &mut random);
        let is_taken = |reply: &Reply| matches!(reply, Reply::Response { response, .. } if response.is_accepted());
        std::iter::from_fn(|| Some(take()).filter(is_taken)).count()
    };
    assert_eq!(
        [0, 9_999, 12_900, 20_000, 21_000].map(&mut taken_at),
        [5, 0, 3, 5, 4]
    );
}

#[test]
fn full_queue_gives_503_and_failed_requests_use_a_slot() {
    let slots = Kind::Slots {
        slots: 1,
        service: Duration::from_millis(100),
        queue: 1,
    };
    let settings = UpstreamSettings {
        latency_spread: 0.0,
        failure_rate: 1.0,
        ..UpstreamSettings::of(slots)
    };
    assert_eq!(statuses(&settings, &[0, 10, 20, 100]), [500, 500, 503, 500]);
    assert_eq!(last_response(&settings, &[0, 10]).0, 200);
}

#[test]
fn nth_request_gets_the_same_draws_whatever_happened_before() {
    let settings = |rate| UpstreamSettings {
        failure_rate: 0.5,
        ..UpstreamSettings::of(Kind::Bucket { rate, burst: 1.0 })
    };
    let replies = |rate| {
        let mut upstream = Upstream::new(&settings(rate));
        let mut random = Random::from_seed(9);
        let mut receive =
            |second| match upstream.receive(0, Timestamp::from_secs(second), &mut random) {
                Reply::Response { at, response } => (at, response.status),
                other => panic!("{other:?}"),
            };
        (0..100).map(&mut receive).collect::<Vec<_>>()
    };
    let (all, few) = (replies(1.0), replies(0.3));
    assert!(few.iter().any(|(_, status)| *status == 429));
    let kept = all.iter().zip(&few).filter(|(_, few)| few.1 != 429);
    assert!(kept.map(|(all, few)| assert_eq!(all, few)).count() > 20);
}
