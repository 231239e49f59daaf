//! Properties of reading a hint, for all inputs: it never panics, and a wait is never shorter than
//! written, nor more than a millisecond longer.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use proptest::prelude::*;
use tidegate_policy::classify;
use tidegate_policy::hint::{self, Hint, Response, Source};
use tidegate_policy::text::{contains_words, same_name};
use tidegate_policy::time::WallTime;

/// 2026-11-15T06:00:00Z.
const NOW_MILLIS: i64 = 1_794_722_400_000;

fn read(headers: &[(&str, &[u8])], status: u16, body: &[u8]) -> Hint {
    let response = Response {
        status,
        headers: headers.iter().copied(),
        body,
    };
    let hint = hint::read(&response, Some(WallTime::from_unix_millis(NOW_MILLIS)));
    let judgement = classify::response(&[], &response, &hint);
    assert_eq!(judgement.verdict.is_none(), status < 200);
    assert_eq!(
        hint.source.is_some(),
        hint.wait.is_some()
            || hint.remaining.is_some()
            || hint.reset.is_some()
            || hint.limit.is_some()
    );
    hint
}

/// Asserts that `value` is read as a wait of `nanos`, rounded up to milliseconds.
fn assert_wait(value: &str, nanos: u128) {
    let hint = read(&[("Retry-After", value.as_bytes())], 429, b"");
    let wait = hint.wait.map(|wait| wait.as_nanos());
    assert!(
        wait.is_some_and(|wait| wait >= nanos && wait - nanos < 1_000_000),
        "{value}: {nanos} ns read as {wait:?}"
    );
    assert_eq!(hint.source, Some(Source::RetryAfter));
}

fn any_header() -> impl Strategy<Value = (String, Vec<u8>)> {
    let names: Vec<String> = Source::HEADERS
        .iter()
        .map(|source| source.to_string())
        .chain(["Date".into(), "Server".into()])
        .collect();
    let values = prop_oneof![
        any::<Vec<u8>>(),
        "[ -~]{0,40}".prop_map(String::into_bytes),
        "[0-9smhTPZ:.,;=\"+ GMTSunNov-]{0,40}".prop_map(String::into_bytes),
    ];
    (prop::sample::select(names), values)
}

proptest! {
    #[test]
    fn accepts_any_bytes(
        status in any::<u16>(),
        headers in prop::collection::vec(any_header(), 0..12),
        body in prop_oneof![
            any::<Vec<u8>>(),
            "(\\{\"[a-z_]{0,12}\":|\\[|\\]|\\}|\"|,|5|retry_after|try again in 5s| ){0,30}".prop_map(String::into_bytes),
        ],
    ) {
        let headers: Vec<(&str, &[u8])> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
            .collect();
        read(&headers, status, &body);
    }

    #[test]
    fn seconds_are_never_shortened(seconds in 0u32..=1_000_000_000, fraction in "[0-9]{1,9}") {
        assert_wait(&seconds.to_string(), u128::from(seconds) * 1_000_000_000);
        if seconds < 1_000_000_000 {
            let nanos: u128 = format!("{fraction:0<9}").parse().unwrap();
            let nanos = nanos + u128::from(seconds) * 1_000_000_000;
            assert_wait(&format!("{seconds}.{fraction}"), nanos);
            assert_wait(&format!("PT{seconds}.{fraction}S"), nanos);
        }
    }

    #[test]
    fn durations_are_never_shortened(
        hours in 0u32..10_000,
        minutes in 0u32..100,
        nanos in 0u64..100_000_000_000,
    ) {
        let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let total = u128::from(hours) * 3_600_000_000_000
            + u128::from(minutes) * 60_000_000_000
            + u128::from(nanos);
        for value in [
            format!("{hours}h{minutes}m{seconds}.{rest:09}s"),
            format!("{hours} hours {minutes} min and {seconds}.{rest:09} seconds"),
            format!("{seconds}.{rest:09}s {minutes}m {hours}h"),
            format!("PT{hours}H{minutes}M{seconds}.{rest:09}S"),
            format!("{minutes}m{hours}h{nanos}ns"),
        ] {
            assert_wait(&value, total);
        }
    }

    #[test]
    fn milliseconds_are_never_shortened(nanos in 0u64..=1_000_000_000_000) {
        let value = format!("{}.{:06}", nanos / 1_000_000, nanos % 1_000_000);
        let hint = read(&[("retry-after-ms", value.as_bytes())], 429, b"");
        let wait = hint.wait.unwrap();
        prop_assert!(wait >= Duration::from_nanos(nanos));
        prop_assert!(wait < Duration::from_nanos(nanos + 1_000_000));
    }

    #[test]
    fn absolute_times_are_never_shortened(wait in 1i64..3_000_000_000) {
        let moment = NOW_MILLIS + wait;
        let nanos = u128::try_from(wait).unwrap() * 1_000_000;
        assert_wait(&moment.to_string(), nanos);
        assert_wait(&format!("{}.{:03}", moment / 1000, moment % 1000), nanos);
        assert_wait(&rfc3339(moment), nanos);
        // HTTP dates have whole seconds.
        let seconds = moment / 1000 * 1000;
        if seconds > NOW_MILLIS {
            let nanos = u128::try_from(seconds - NOW_MILLIS).unwrap() * 1_000_000;
            for value in http_dates(seconds) {
                assert_wait(&value, nanos);
            }
        }
    }

    #[test]
    fn only_the_difference_to_the_server_date_counts(
        date in 0i64..200_000_000_000,
        wait in 1i64..100_000_000,
    ) {
        let [date_text, ..] = http_dates(date * 1000);
        let moment = (date + wait) * 1000;
        for value in [rfc3339(moment), http_dates(moment)[0].clone()] {
            let headers = [("Retry-After", value.as_bytes()), ("Date", date_text.as_bytes())];
            let expected = Duration::from_secs(u64::try_from(wait).unwrap());
            prop_assert_eq!(read(&headers, 503, b"").wait, Some(expected));
        }
    }

    #[test]
    fn finds_words_at_any_position(
        before in "([a-z]{1,5} ){0,5}",
        after in "( [a-z]{1,5}){0,5}",
        joint in "[ _-]{1,4}",
    ) {
        let text = format!("{before}RATE{joint}Limit{after}");
        prop_assert!(contains_words(text.as_bytes(), "rate limit"));
        let name = format!("RATE{joint}Limit");
        prop_assert!(same_name(name.as_bytes(), "rateLimit"));
    }
}

#[test]
fn hostile_megabytes_are_read_in_linear_time() {
    const SIZE: usize = 1 << 20;
    let pieces: [&[u8]; 16] = [
        b"1",
        b"1,",
        b"Sun,",
        b" ",
        b"\"",
        b"\"\\",
        b"{\"a\":",
        b"[",
        b"\"a\";r=1,",
        b"1s",
        b"1m, ",
        b"again in 1 ",
        b"rate ",
        b"{\"code\":\"______\",",
        b"retry after",
        b"\xff",
    ];
    for piece in pieces {
        let value = piece.repeat(SIZE / piece.len());
        for source in Source::HEADERS {
            read(&[(source.as_str(), &value)], 429, b"");
        }
        read(&[("date", &value)], 403, &value);
        let json = [b"{\"error\":", value.as_slice()].concat();
        read(&[], 403, &json);
    }
}

/// The three forms of HTTP.
fn http_dates(millis: i64) -> [String; 3] {
    let [year, month, day, hour, minute, second, _] = calendar(millis);
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
        [usize::try_from(millis.div_euclid(86_400_000).rem_euclid(7)).unwrap()];
    let month = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ][usize::try_from(month - 1).unwrap()];
    let clock = format!("{hour:02}:{minute:02}:{second:02}");
    [
        format!("{weekday}, {day:02} {month} {year:04} {clock} GMT"),
        format!("Wednesday, {day:02}-{month}-{:02} {clock} GMT", year % 100),
        format!("{weekday} {month} {day:2} {clock} {year:04}"),
    ]
}

fn rfc3339(millis: i64) -> String {
    let [year, month, day, hour, minute, second, milli] = calendar(millis);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Year, month, day and time of day, by counting days, months and years. Slow, and independent of
/// the reader's algorithm.
fn calendar(millis: i64) -> [i64; 7] {
    let mut days = millis.div_euclid(86_400_000);
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    while days >= 365 + i64::from(leap(year)) {
        days -= 365 + i64::from(leap(year));
        year += 1;
    }
    let lengths = [
        31,
        28 + i64::from(leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let mut month = 1;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let rest = millis.rem_euclid(86_400_000);
    [
        year,
        month,
        days + 1,
        rest / 3_600_000,
        rest / 60_000 % 60,
        rest / 1000 % 60,
        rest % 1000,
    ]
}
