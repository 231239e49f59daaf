//! Valid and invalid limits, steps, outages and bans.

use proptest::prelude::*;

use super::*;

fn bucket(rate: f64, burst: f64) -> Kind {
    Kind::Bucket { rate, burst }
}

fn window(quota: u64, seconds: u64, phase: u64) -> Kind {
    Kind::Window {
        quota,
        period: Duration::from_secs(seconds),
        phase: Duration::from_secs(phase),
    }
}

fn slots(slots: u32, millis: u64, queue: u32) -> Kind {
    Kind::Slots {
        slots,
        service: Duration::from_millis(millis),
        queue,
    }
}

#[test]
fn a_step_without_a_limit_before_it_has_the_default_burst() {
    let read = |text: &str| vec![step(text).unwrap()];
    let found = steps(UNLIMITED, &read("60s=20/s")).unwrap();
    assert_eq!(found[0].kind, limit("20/s").unwrap().kind());
    let (_, expected) = steps(UNLIMITED, &read("60s=600/1m")).unwrap_err();
    assert!(expected.contains("`--limit`"), "{expected}");
}

#[test]
fn parses_limits_with_their_defaults() {
    for (text, kind) in [
        ("50/s burst 10", bucket(50.0, 10.0)),
        ("50/s", bucket(50.0, 50.0)),
        ("0.5/s", bucket(0.5, 1.0)),
        ("30/m", bucket(0.5, 1.0)),
        ("1_000/s", bucket(1000.0, 1000.0)),
        ("bucket 100/2s burst 1", bucket(50.0, 1.0)),
        ("600/1m", window(600, 60, 0)),
        ("5000/1h", window(5000, 3600, 0)),
        ("300/10s phase 3s", window(300, 10, 3)),
        ("window 5/s", window(5, 1, 0)),
        ("  slots 20  100ms ", slots(20, 100, 100)),
        ("slots 20 100ms queue 200", slots(20, 100, 200)),
        ("slots 1 1s queue 0", slots(1, 1000, 0)),
    ] {
        assert_eq!(limit(text).map(Limit::kind), Ok(kind), "{text}");
    }
}

#[test]
fn rejects_other_limits_with_an_example() {
    for text in [
        "",
        "50",
        "fast",
        "/s",
        "50/",
        "-5/s",
        "0/s",
        "1e3/s",
        "nan/s",
        "50/x",
        "50/s burst",
        "50/s burst 0",
        "50/s burst 0.5",
        "50/s phase 3s",
        "50/s 10",
        "2000000/s",
        "0/1m",
        "1.5/1m",
        "600/1m burst 5",
        "600/0s",
        "600/60",
        "600/1m phase 3",
        "600/1m 5",
        "slots",
        "slots 20",
        "slots 0 100ms",
        "slots 20 100",
        "slots 20 0s",
        "slots 20 100ms queue",
        "slots 20 100ms queue x",
        "slots 20 100ms 200",
        "bucket",
        "window",
        "bucket 5",
    ] {
        let expected = limit(text).expect_err(text);
        assert!(expected.contains('`'), "{text}: {expected}");
    }
}

#[test]
fn a_step_keeps_what_it_does_not_name() {
    let written =
        |texts: &[&str]| -> Vec<_> { texts.iter().map(|text| step(text).unwrap()).collect() };
    let changed = |first: Kind, texts: &[&str]| -> Vec<Kind> {
        let steps = steps(first, &written(texts)).unwrap();
        steps.iter().map(|step| step.kind).collect()
    };
    assert_eq!(
        changed(
            bucket(50.0, 10.0),
            &["60s=20/s", "120s=200/s burst 5", "3m=1/s"]
        ),
        [bucket(20.0, 10.0), bucket(200.0, 5.0), bucket(1.0, 5.0)]
    );
    assert_eq!(
        changed(window(600, 60, 3), &["60s=20/1m"]),
        [window(20, 60, 3)]
    );
    assert_eq!(
        changed(slots(20, 100, 200), &["60s=slots 5 1s"]),
        [slots(5, 1000, 200)]
    );
    let refused = |first: Kind, texts: &[&str]| steps(first, &written(texts)).unwrap_err();
    assert_eq!(refused(bucket(50.0, 10.0), &["1s=5/s", "2s=5/1m"]).0, 1);
    assert_eq!(refused(window(600, 60, 0), &["1s=5/10s"]).0, 0);
    let (index, expected) = refused(bucket(50.0, 10.0), &["2s=5/s", "2s=6/s"]);
    assert_eq!(
        (index, &*expected),
        (1, "a time later than that of the step before (2s)")
    );
    for text in ["", "20/s", "60=20/s", "60s=", "60s=20"] {
        assert!(step(text).is_err(), "{text}");
    }
}

#[test]
fn parses_outages_and_rejects_overlaps() {
    let read = outage("60s..90s", None).unwrap();
    assert_eq!(
        (read.from, read.to, read.timeout_share, read.status),
        (
            Timestamp::from_secs(60),
            Timestamp::from_secs(90),
            0.5,
            None
        )
    );
    let with_status = outage("0s..1m30s=503", None).unwrap();
    assert_eq!(
        (with_status.timeout_share, with_status.status),
        (0.0, Some(503))
    );
    let share = outage("0s..1s", Some(0.1)).map(|outage| outage.timeout_share);
    assert_eq!(share, Ok(0.1));
    for text in [
        "",
        "60s",
        "60..90",
        "90s..60s",
        "5s..5s",
        "1s..2s=200",
        "1s..2s=x",
    ] {
        assert!(outage(text, None).is_err(), "{text}");
    }
    let all = |texts: &[&str]| {
        let read = texts.iter().map(|text| outage(text, None).unwrap());
        outages(read.collect())
    };
    let sorted = all(&["60s..90s", "10s..20s"]).unwrap();
    assert_eq!(sorted[0].from, Timestamp::from_secs(10));
    let (index, expected) = all(&["60s..90s", "0s..5s", "80s..99s"]).unwrap_err();
    assert_eq!(
        (index, &*expected),
        (2, "an outage apart from that of 1m to 90s")
    );
}

#[test]
fn parses_bans_shares_sizes_and_spreads() {
    let read = ban("5 in 30s for 60s").unwrap();
    assert_eq!(
        (read.excesses, read.within.as_secs(), read.length.as_secs()),
        (5, 30, 60)
    );
    for text in [
        "",
        "5",
        "0 in 30s for 60s",
        "5 in 30 for 60s",
        "5 in 30s for 0s",
    ] {
        assert!(ban(text).is_err(), "{text}");
    }
    assert_eq!(share("0.03"), Ok(0.03));
    assert_eq!(share("3%"), Ok(0.03));
    assert_eq!(share("1"), Ok(1.0));
    for text in ["", "%", "2", "101%", "-0.1", "nan", "inf"] {
        assert!(share(text).is_err(), "{text}");
    }
    assert_eq!(
        (size("0"), size("128"), size("64KiB")),
        (Ok(0), Ok(128), Ok(65_536))
    );
    for text in ["", "none", "-1", "1.5", "65MiB", "99999999999GiB"] {
        assert!(size(text).is_err(), "{text}");
    }
    assert_eq!(spread("0"), Ok(0.0));
    assert!(spread("6").is_err());
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_rejected(text in "[0-9a-z ./:=_%*é-]{0,24}") {
        _ = limit(&text);
        _ = step(&text);
        _ = outage(&text, None);
        _ = ban(&text);
        _ = share(&text);
        _ = spread(&text);
        _ = size(&text);
    }

    #[test]
    fn parsed_limits_are_within_bounds(
        count in 0_u64..2_000_000_000,
        per in prop::sample::select(vec!["s", "m", "h", "d", "1s", "10ms", "1m", "0s", "9999999d"]),
        rest in prop::sample::select(vec!["", " burst 3", " burst 0", " phase 1s", " queue 3"]),
    ) {
        if let Ok(read) = limit(&format!("{count}/{per}{rest}")) {
            match read.kind() {
                Kind::Bucket { rate, burst } => {
                    prop_assert!(rate > 0.0 && rate <= 1e6 && burst >= 1.0);
                }
                Kind::Window { quota, period, .. } => {
                    prop_assert!(quota >= 1 && !period.is_zero());
                }
                Kind::Slots { .. } => prop_assert!(false, "no slots were written"),
            }
        }
    }
}
