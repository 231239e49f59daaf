//! What servers answer, seen from outside.

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
            Reply::Answered { answer, .. } => answer.status,
            Reply::Unreachable => 0,
            Reply::Silent { .. } => 1,
        };
    arrivals.iter().map(&mut receive).collect()
}

fn answer(settings: &UpstreamSettings, arrivals: &[u64]) -> (u64, Answer) {
    let mut upstream = Upstream::new(settings);
    let mut random = Random::from_seed(1);
    let mut last = None;
    for millis in arrivals {
        last = Some(upstream.receive(0, Timestamp::from_millis(*millis), &mut random));
    }
    match last {
        Some(Reply::Answered { at, answer }) => (at.as_nanos() / 1_000_000, answer),
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
fn what_is_taken_takes_its_time_and_what_is_refused_its_own() {
    let settings = bucket(1.0, 1.0);
    assert_eq!(answer(&settings, &[100]).0, 170);
    assert_eq!(answer(&settings, &[100, 200]).0, 215);
}

#[test]
fn times_have_the_mean_and_the_spread_that_are_written() {
    let mean = Duration::from_millis(70);
    let mut random = Random::from_seed(3);
    let mut draw = |_| Luck::draw(&mut random).lognormal(mean, 0.25).as_secs_f64();
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
fn looking_at_the_pace_takes_nothing_and_tells_who_is_refused() {
    let settings = bucket(1.0, 2.0);
    let mut upstream = Upstream::new(&settings);
    let mut random = Random::from_seed(1);
    let mut remaining = Vec::new();
    for millis in [0, 0, 0, 999, 1000] {
        let now = Timestamp::from_millis(millis);
        let pace = upstream.pace(now);
        assert_eq!(pace, upstream.pace(now));
        let reply = upstream.receive(0, now, &mut random);
        let is_accepted = matches!(reply, Reply::Answered { answer, .. } if answer.is_accepted());
        assert_eq!(is_accepted, pace.remaining > 0);
        remaining.push(pace.remaining);
    }
    assert_eq!(remaining, [2, 1, 0, 0, 1]);
}

#[test]
fn a_bucket_is_full_at_first_and_after_an_outage() {
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
fn what_stands_before_a_dead_server_may_answer_for_it_and_say_when_it_is_back() {
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
    let (at, told) = answer(&settings, &[1500]);
    assert_eq!((at, told.status, told.retry_after), (1515, 503, Some(2)));
}

#[test]
fn of_an_outage_the_written_share_is_silent() {
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
fn the_fifth_excess_is_still_a_429_and_then_comes_the_ban() {
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
fn one_clients_ban_is_not_anothers() {
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
        Reply::Answered { answer, .. } => answer.status,
        other => panic!("{other:?}"),
    };
    assert_eq!([0, 1, 1, 0, 0].map(&mut status), [200, 429, 403, 429, 403]);
    assert_eq!(upstream.bans(), 2);
}

#[test]
fn retry_after_is_in_whole_seconds_rounded_up_and_only_on_a_429() {
    let window = Kind::Window {
        quota: 1,
        period: Duration::from_secs(10),
        phase: Duration::ZERO,
    };
    let settings = UpstreamSettings {
        retry_after: true,
        ..UpstreamSettings::of(window)
    };
    assert_eq!(answer(&settings, &[0]).1.retry_after, None);
    assert_eq!(answer(&settings, &[0, 2_500]).1.retry_after, Some(8));
    assert_eq!(answer(&settings, &[0, 3_000]).1.retry_after, Some(7));
    let bucket = UpstreamSettings {
        retry_after: true,
        ..bucket(0.5, 1.0)
    };
    assert_eq!(answer(&bucket, &[0, 1]).1.retry_after, Some(2));
}

#[test]
fn headers_tell_what_is_left_after_this_request() {
    let window = Kind::Window {
        quota: 3,
        period: Duration::from_secs(10),
        phase: Duration::ZERO,
    };
    let settings = UpstreamSettings {
        headers: true,
        ..UpstreamSettings::of(window)
    };
    let pace = |arrivals: &[u64]| answer(&settings, arrivals).1.pace.unwrap();
    let first = pace(&[1_000]);
    assert_eq!(
        (first.limit, first.remaining, first.reset.as_secs()),
        (3, 2, 9)
    );
    assert_eq!(pace(&[1_000, 1_000, 1_000]).remaining, 0);
    assert_eq!(pace(&[1_000, 1_000, 1_000, 1_000]).remaining, 0);
    assert_eq!(pace(&[1_000, 10_000]).remaining, 2);
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
        let is_taken =
            |reply: &Reply| matches!(reply, Reply::Answered { answer, .. } if answer.is_accepted());
        std::iter::from_fn(|| Some(take()).filter(is_taken)).count()
    };
    assert_eq!(
        [0, 9_999, 12_900, 20_000, 21_000].map(&mut taken_at),
        [5, 0, 3, 5, 4]
    );
}

#[test]
fn a_full_queue_is_a_503_and_a_request_that_fails_takes_its_slot() {
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
    assert_eq!(answer(&settings, &[0, 10]).0, 200);
}

#[test]
fn the_nth_request_finds_the_same_luck_whatever_became_of_the_others() {
    let settings = |rate| UpstreamSettings {
        failure_rate: 0.5,
        ..UpstreamSettings::of(Kind::Bucket { rate, burst: 1.0 })
    };
    let replies = |rate| {
        let mut upstream = Upstream::new(&settings(rate));
        let mut random = Random::from_seed(9);
        let mut receive =
            |second| match upstream.receive(0, Timestamp::from_secs(second), &mut random) {
                Reply::Answered { at, answer } => (at, answer.status),
                other => panic!("{other:?}"),
            };
        (0..100).map(&mut receive).collect::<Vec<_>>()
    };
    let (all, few) = (replies(1.0), replies(0.3));
    assert!(few.iter().any(|(_, status)| *status == 429));
    let kept = all.iter().zip(&few).filter(|(_, few)| few.1 != 429);
    assert!(kept.map(|(all, few)| assert_eq!(all, few)).count() > 20);
}
