//! Every kind of limit, alone and combined, and the failures of an upstream.

use std::thread;
use std::time::Duration;

use app::mock::{MockSettings, Style, UNLIMITED, spec};
use sim::scenario::Shipped;
use sim::upstream::UpstreamSettings;

use crate::support::{Fixture, limited};

fn upstream(limits: &[&str], change: impl FnOnce(&mut UpstreamSettings)) -> Fixture {
    let mut settings = limited(Style::Plain, limits);
    let upstream = settings.upstream.get_or_insert_with(|| UpstreamSettings {
        latency: Duration::ZERO,
        refuse_latency: Duration::ZERO,
        network: Duration::ZERO,
        ..UpstreamSettings::of(UNLIMITED)
    });
    change(upstream);
    Fixture::new(settings)
}

#[test]
fn limits_after_a_step_when_there_was_no_limit_before() {
    let step = [spec::step("10s=2/s").unwrap()];
    let fixture = upstream(&[], |upstream| {
        upstream.steps = spec::steps(upstream.kind, &step).unwrap();
    });
    assert_eq!(fixture.statuses(20), [200; 20]);
    fixture.advance(10_000);
    assert!(fixture.statuses(20).contains(&429));
}

#[test]
fn accepts_everything_without_a_limit() {
    let fixture = Fixture::new(MockSettings::default());
    assert_eq!(fixture.statuses(50), [200; 50]);
}

#[test]
fn a_bucket_starts_full_and_refills() {
    let fixture = Fixture::of(Style::Plain, &["2/s burst 3"]);
    assert_eq!(fixture.statuses(5), [200, 200, 200, 429, 429]);
    fixture.advance(499);
    assert_eq!(fixture.statuses(1), [429]);
    fixture.advance(1);
    assert_eq!(fixture.statuses(2), [200, 429]);
}

#[test]
fn a_window_has_its_full_quota_at_its_start() {
    let fixture = upstream(&["2/10s"], |upstream| upstream.retry_after = true);
    fixture.advance(3500);
    assert_eq!(fixture.statuses(2), [200, 200]);
    let refused = fixture.get("/");
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (429, Some("7"))
    );
    fixture.advance(6499);
    assert_eq!(fixture.statuses(1), [429]);
    fixture.advance(1);
    assert_eq!(fixture.statuses(3), [200, 200, 429]);
}

#[test]
fn slots_queue_requests_and_refuse_when_the_queue_is_full() {
    let fixture = Fixture::of(Style::Plain, &["slots 1 100ms queue 1"]);
    thread::scope(|scope| {
        let served = scope.spawn(|| fixture.get("/").status);
        fixture.wait_until(|mock| mock.stats().received == 1);
        let queued = scope.spawn(|| fixture.get("/").status);
        fixture.wait_until(|mock| mock.stats().received == 2);
        assert_eq!(fixture.get("/").status, 503);
        fixture.advance(100);
        assert_eq!(served.join().unwrap(), 200);
        fixture.advance(100);
        assert_eq!(queued.join().unwrap(), 200);
    });
    let stats = fixture.mock.stats();
    assert_eq!((stats.max_queue, stats.max_in_flight), (Some(1), 3));
    let took: Vec<_> = fixture.mock.log().iter().map(|entry| entry.took).collect();
    let millis = |millis| Some(Duration::from_millis(millis));
    assert_eq!(took, [millis(100), millis(200), millis(0)]);
}

#[test]
fn a_request_has_to_be_within_all_limits() {
    let fixture = Fixture::of(Style::Plain, &["3/10s", "1/s burst 2"]);
    // The rate refuses the third, which is not charged to the quota.
    assert_eq!(fixture.statuses(3), [200, 200, 429]);
    fixture.advance(2000);
    assert_eq!(fixture.statuses(2), [200, 429]);
    fixture.advance(8000);
    assert_eq!(fixture.statuses(2), [200, 200]);
}

#[test]
fn headers_show_the_limit_with_the_least_remaining() {
    let fixture = upstream(&["100/10s", "1/s burst 2"], |upstream| {
        upstream.headers = true
    });
    let shown = |reply: &crate::support::Reply| {
        ["limit", "remaining", "reset"].map(|name| {
            let name = format!("x-ratelimit-{name}");
            reply.header(&name).map(str::to_owned)
        })
    };
    let expected = |values: [&str; 3]| values.map(|value| Some(value.to_owned()));
    assert_eq!(shown(&fixture.get("/")), expected(["2", "1", "1"]));
    fixture.get("/");
    assert_eq!(shown(&fixture.get("/")), expected(["2", "0", "1"]));
    let single = upstream(&["1/s burst 2"], |upstream| upstream.headers = true);
    assert_eq!(shown(&single.get("/")), expected(["2", "1", "1"]));
    single.get("/");
    single.advance(250);
    assert_eq!(shown(&single.get("/")), expected(["2", "0", "0.750"]));
}

#[test]
fn responses_have_their_latency() {
    let fixture = upstream(&["5/s burst 1"], |upstream| {
        upstream.latency = Duration::from_millis(70);
        upstream.refuse_latency = Duration::from_millis(15);
        upstream.network = Duration::from_millis(10);
    });
    thread::scope(|scope| {
        let served = scope.spawn(|| fixture.get("/").status);
        fixture.wait_until(|mock| mock.stats().received == 1);
        let refused = scope.spawn(|| fixture.get("/").status);
        fixture.wait_until(|mock| mock.stats().received == 2);
        fixture.advance(35);
        assert_eq!(refused.join().unwrap(), 429);
        fixture.advance(55);
        assert_eq!(served.join().unwrap(), 200);
    });
    let took = fixture.mock.log().into_iter();
    let took: Vec<_> = took.map(|entry| entry.took.unwrap().as_millis()).collect();
    assert_eq!(took, [90, 35]);
}

#[test]
fn responses_have_their_latency_on_the_system_clock() {
    let mut settings = limited(Style::Plain, &["5/s"]);
    settings.upstream.as_mut().unwrap().latency = Duration::from_millis(30);
    let mock = crate::support::start(settings);
    let mut client = crate::support::Client::connect(mock.address());
    assert_eq!(client.get("/").status, 200);
    assert!(mock.log()[0].took.unwrap() >= Duration::from_millis(30));
}

#[test]
fn the_limit_changes_at_a_step() {
    let fixture = upstream(&["2/10s"], |upstream| {
        let step = spec::step("10s=1/10s").unwrap();
        upstream.steps = spec::steps(upstream.kind, &[step]).unwrap();
    });
    assert_eq!(fixture.statuses(3), [200, 200, 429]);
    fixture.advance(10_000);
    assert_eq!(fixture.statuses(2), [200, 429]);
}

#[test]
fn random_failures_are_the_same_for_the_same_seed() {
    let fixture = || upstream(&[], |upstream| upstream.failure_rate = 0.5);
    let statuses = fixture().statuses(64);
    assert!(statuses.contains(&200) && statuses.contains(&500));
    assert_eq!(statuses, fixture().statuses(64));
    let always = upstream(&[], |upstream| upstream.failure_rate = 1.0);
    assert_eq!(always.statuses(3), [500; 3]);
}

#[test]
fn outages_reset_connections_or_respond_with_a_status() {
    let fixture = upstream(&[], |upstream| {
        upstream.outages = vec![spec::outage("1s..2s", Some(0.0)).unwrap()];
    });
    assert_eq!(fixture.statuses(1), [200]);
    fixture.advance(1000);
    let mut client = fixture.connect();
    client.send("GET / HTTP/1.1\r\nhost: mock\r\n\r\n");
    client.reply(false).unwrap_err();
    fixture.advance(1000);
    assert_eq!(fixture.statuses(1), [200]);
    assert_eq!(fixture.mock.stats().failed, 1);

    let with_status = upstream(&[], |upstream| {
        upstream.retry_after = true;
        upstream.outages = vec![spec::outage("0s..2s=503", None).unwrap()];
    });
    let reply = with_status.get("/");
    assert_eq!(
        (reply.status, reply.header("retry-after")),
        (503, Some("2"))
    );
}

#[test]
fn bans_a_client_that_is_refused_too_often() {
    let fixture = upstream(&["1/10s"], |upstream| {
        upstream.ban = Some(spec::ban("2 in 5s for 20s").unwrap());
    });
    assert_eq!(fixture.statuses(4), [200, 429, 429, 403]);
    fixture.advance(19_999);
    assert_eq!(fixture.statuses(1), [403]);
    fixture.advance(1);
    assert_eq!(fixture.statuses(1), [200]);
    assert_eq!(fixture.mock.stats().bans, 1);
}

#[test]
fn serves_every_shipped_upstream() {
    for name in ["o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8", "o9"] {
        let scenario = Shipped::find(name).unwrap().scenario();
        let fixture = Fixture::new(MockSettings {
            upstream: Some(scenario.upstream),
            ..MockSettings::default()
        });
        thread::scope(|scope| {
            let response = scope.spawn(|| fixture.get("/").status);
            fixture.wait_until(|mock| mock.stats().received == 1);
            fixture.advance(10_000);
            assert_eq!(response.join().unwrap(), 200, "{name}");
        });
    }
}
