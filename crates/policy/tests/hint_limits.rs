//! Which limit is reported if a response has several, and how its name is shown.

use tidegate_policy::hint::{self, Hint, Response, Scope, Source};

fn read(status: u16, headers: &[(&str, &str)]) -> Hint {
    let headers = headers
        .iter()
        .map(|(name, value)| (*name, value.as_bytes()));
    let response = Response {
        status,
        headers,
        body: b"",
    };
    hint::read(&response, None)
}

#[test]
fn nothing_remaining_binds_before_few_remaining() {
    let hint = read(
        200,
        &[
            ("x-ratelimit-remaining-requests", "1"),
            ("x-ratelimit-limit-requests", "1000000"),
            ("x-ratelimit-remaining-tokens", "0"),
        ],
    );
    assert_eq!(hint.scope, Some(Scope::Tokens));
    assert_eq!(hint.wait, None);
    assert_eq!(hint.source, Some(Source::XRatelimitRemainingTokens));
}

#[test]
fn longest_reset_binds_among_exhausted_limits() {
    let hint = read(
        200,
        &[
            ("ratelimit", r#""a";r=0, "b";r=0;t=9, "c";r=0;t=5"#),
            ("x-ratelimit-remaining", "0"),
        ],
    );
    assert_eq!(hint.scope, Some(Scope::Named("b".into())));
    assert_eq!(hint.wait.map(|wait| wait.as_secs()), Some(9));
}

#[test]
fn smallest_share_binds_before_smallest_count() {
    let hint = read(
        200,
        &[
            ("ratelimit", r#""few";r=9, "large";r=10, "open";r=1"#),
            ("ratelimit-policy", r#""few";q=10, "large";q=1000"#),
        ],
    );
    assert_eq!(hint.scope, Some(Scope::Named("large".into())));
    let hint = read(200, &[("ratelimit", r#""a";r=3, "b";r=2"#)]);
    assert_eq!(hint.remaining, Some(2));
}

#[test]
fn limit_of_zero_does_not_divide_by_zero() {
    let hint = read(
        200,
        &[
            ("x-ratelimit-limit", "0"),
            ("x-ratelimit-remaining", "5"),
            ("app-rate-limit", "0:1,5:0,x:1,5"),
        ],
    );
    assert_eq!((hint.limit, hint.remaining), (Some(0), Some(5)));
}

#[test]
fn ignores_absolute_reset_without_a_clock() {
    let hint = read(
        429,
        &[("anthropic-ratelimit-tokens-reset", "2026-11-15T06:00:00Z")],
    );
    assert_eq!(hint, Hint::default());
}

#[test]
fn ignores_unreadable_headers() {
    for name in Source::HEADERS.iter().copied().map(Source::as_str) {
        for value in ["", "x", "-1", "unlimited", ";", "=", "\""] {
            let hint = read(429, &[(name, value)]);
            assert_eq!(hint, Hint::default(), "{name}: {value}");
        }
    }
}

#[test]
fn reports_every_header_as_source() {
    for &source in Source::HEADERS {
        let value = match source {
            Source::Ratelimit | Source::RatelimitPolicy => r#""a";q=5;r=5;t=5"#,
            Source::AppRateLimit | Source::XAppRateLimit => "5:1",
            // A count means nothing without its limit.
            Source::AppRateLimitCount | Source::XAppRateLimitCount => continue,
            _ => "5",
        };
        let name = source.as_str().to_uppercase();
        let hint = read(429, &[(&name, value)]);
        assert_eq!(hint.source, Some(source));
        let names_wait = source.as_str().contains("reset") || source.names_wait();
        assert_eq!(hint.wait.is_some(), names_wait, "{name}");
    }
}

#[test]
fn reads_both_forms_of_a_window() {
    for value in ["100;w=60", "100, 100;window=60", "100, 9;w=1, 100;w=1m"] {
        let hint = read(200, &[("RateLimit-Limit", value)]);
        assert_eq!(hint.limit, Some(100), "{value}");
        assert_eq!(hint.period.map(|period| period.as_secs()), Some(60));
    }
    for value in ["100;w=0", "100;w=x", "100;w=1794722400", "100, 9;w=60"] {
        assert_eq!(read(200, &[("RateLimit-Limit", value)]).period, None);
    }
}

#[test]
fn unnamed_policy_completes_an_unnamed_limit() {
    let policy = ("RateLimit-Policy", "10;w=1;x=1, 50;w=60, 7");
    let hint = read(200, &[policy, ("RateLimit", "remaining=5;reset=3")]);
    assert_eq!((hint.limit, hint.remaining), (Some(50), Some(5)));
    let hint = read(200, &[policy, ("RateLimit", "limit=10, remaining=5")]);
    assert_eq!(hint.period.map(|period| period.as_secs()), Some(1));
    let hint = read(200, &[policy, ("RateLimit", "limit=99, remaining=5")]);
    assert_eq!((hint.limit, hint.period), (Some(99), None));
}

#[test]
fn repeated_headers_keep_the_stricter_value() {
    let hint = read(
        429,
        &[
            ("x-ratelimit-remaining", "4, 2"),
            ("x-ratelimit-remaining", "3"),
            ("x-ratelimit-reset", "5, 9"),
            ("x-ratelimit-reset", "7"),
        ],
    );
    assert_eq!(hint.remaining, Some(2));
    assert_eq!(hint.reset.map(|reset| reset.as_secs()), Some(9));
    assert_eq!(hint.wait, None);
}

#[test]
fn names_are_printable_and_bounded() {
    let named = |value: &[u8]| {
        let response = Response {
            status: 200,
            headers: [("ratelimit", value)],
            body: b"",
        };
        hint::read(&response, None)
            .scope
            .unwrap()
            .as_str()
            .to_owned()
    };
    assert_eq!(named(b"\"say \\\"hi\\\"\";r=1"), "say \"hi\"");
    assert_eq!(named(b"\"a\x07\xff\";r=1"), "a\u{fffd}\u{fffd}");
    assert_eq!(named(b"default;r=1"), "default");
    let long = format!("\"{}\";r=1", "x".repeat(1000));
    assert_eq!(named(long.as_bytes()).len(), 64);
    assert_eq!(
        read(200, &[("ratelimit", "tokens;r=1")]).scope,
        Some(Scope::Tokens)
    );
    assert_eq!(
        read(200, &[("ratelimit", "requests;r=1")]).scope,
        Some(Scope::Requests)
    );
}

#[test]
fn ignores_limits_beyond_the_table() {
    let many: Vec<String> = (0..40).map(|n| format!("\"p{n}\";r={}", 100 - n)).collect();
    let hint = read(
        200,
        &[
            ("ratelimit", &many.join(",")),
            ("x-ratelimit-limit", "1"),
            ("x-ratelimit-remaining", "1"),
            ("x-ratelimit-reset", "1"),
            ("app-rate-limit", "1:1"),
        ],
    );
    assert_eq!(hint.scope, Some(Scope::Named("p15".into())));
}

#[test]
fn ignores_values_longer_than_4_kib() {
    let wait = |length: usize| {
        let value = format!("{:>length$}", "7");
        read(429, &[("retry-after", &value)]).wait
    };
    assert_eq!(wait(4096), Some(std::time::Duration::from_secs(7)));
    assert_eq!(wait(4097), None);
    assert_eq!(wait(10_000), None);
}

#[test]
fn reads_the_period_from_the_header_name() {
    for (window, seconds) in [("minute", 60), ("hour", 3600), ("day", 86_400)] {
        for (subject, scope) in [("requests", Scope::Requests), ("tokens", Scope::Tokens)] {
            let name = |kind: &str| format!("X-RateLimit-{kind}-{subject}-{window}");
            let hint = read(
                429,
                &[
                    (&name("Limit"), "30000"),
                    (&name("Remaining"), "0"),
                    (&name("Reset"), "7.5"),
                ],
            );
            assert_eq!(hint.wait.map(|wait| wait.as_millis()), Some(7500));
            assert_eq!((hint.limit, hint.remaining), (Some(30_000), Some(0)));
            assert_eq!(hint.period.map(|period| period.as_secs()), Some(seconds));
            assert_eq!(hint.scope, Some(scope));
            let source = hint.source.map(Source::as_str);
            assert_eq!(source, Some(&*name("Reset").to_lowercase()));
        }
    }
}

#[test]
fn finds_the_binding_limit_among_windows() {
    let hint = read(
        200,
        &[
            ("x-ratelimit-limit-requests-day", "14400"),
            ("x-ratelimit-remaining-requests-day", "14399"),
            ("x-ratelimit-limit-tokens-minute", "60000"),
            ("x-ratelimit-remaining-tokens-minute", "100"),
            ("x-ratelimit-remaining-req-minute", "4"),
            ("x-ratelimit-limit-req-minute", "5"),
        ],
    );
    assert_eq!((hint.remaining, hint.wait), (Some(100), None));
    assert_eq!(hint.scope, Some(Scope::Tokens));
    let hint = read(
        429,
        &[
            ("ratelimitbysize-remaining", "0"),
            ("ratelimitbysize-reset", "12"),
        ],
    );
    assert_eq!(hint.wait.map(|wait| wait.as_secs()), Some(12));
}

#[test]
fn last_duplicate_parameter_counts() {
    let hint = read(429, &[("ratelimit", r#""a";r=0;r=7;t=9;t=3"#)]);
    assert_eq!((hint.remaining, hint.wait), (Some(7), None));
    assert_eq!(hint.reset.map(|reset| reset.as_secs()), Some(3));
    let hint = read(
        429,
        &[(
            "ratelimit",
            "limit=5, limit=50, remaining=9, remaining=0, reset=4",
        )],
    );
    assert_eq!((hint.limit, hint.remaining), (Some(50), Some(0)));
    let hint = read(200, &[("ratelimit-policy", r#""a";q=5;w=60;q=9;w=30"#)]);
    assert_eq!(hint.limit, Some(9));
    assert_eq!(hint.period.map(|period| period.as_secs()), Some(30));
    let hint = read(200, &[("ratelimit-limit", "100;w=60;w=30")]);
    assert_eq!(hint.period.map(|period| period.as_secs()), Some(30));
    let hint = read(200, &[("ratelimit", r#""a";r=5, "a";r=3"#)]);
    assert_eq!(hint.remaining, Some(3), "two members are two statements");
}

#[test]
fn date_equal_to_now_is_a_zero_wait_and_a_past_date_none() {
    let now = "Sun, 15 Nov 2026 06:00:00 GMT";
    for (date, wait) in [
        (now, Some(0)),
        ("Sun, 15 Nov 2026 06:00:01 GMT", Some(1)),
        ("Sun, 15 Nov 2026 05:59:59 GMT", None),
    ] {
        let hint = read(429, &[("date", now), ("retry-after", date)]);
        assert_eq!(hint.wait.map(|wait| wait.as_secs()), wait, "{date}");
    }
}
