//! A line of an access log: `json`, or `combined` with or without our fields behind.
//!
//! Only the time and the status are needed. Of a line without our fields, the request was sent once,
//! and when it arrived.

use std::borrow::Cow;

use serde::Deserialize;

use super::limit::Response;

/// Why a line cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineProblem {
    /// It is no JSON object with the fields of a request.
    #[error("expected a JSON object with `time` and `status`: {0}")]
    Json(String),
    /// It is not in the `combined` format.
    #[error(
        "expected a line of the access log: a JSON object, or `- - - [15/Nov/2026:06:00:00 +0000] \"GET / HTTP/1.1\" 200 0 …`"
    )]
    Combined,
    /// Its time cannot be read.
    #[error(
        "`{0}` is not a time such as `2026-11-15T06:00:00.123Z` or `15/Nov/2026:06:00:00 +0000`"
    )]
    Time(String),
    /// Its status is none of HTTP.
    #[error("`{0}` is not a status, expected 100 to 599")]
    Status(String),
}

/// A request in a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LoggedRequest {
    /// When it arrived, in seconds since 1970.
    pub(super) at_s: f64,
    /// How often it was sent.
    attempts: u32,
    /// How many of its attempts were refused.
    pub(super) refused: u32,
    /// Whether its last attempt was accepted.
    pub(super) is_accepted: bool,
    /// How long its last attempt took, in seconds.
    pub(super) latency_s: Option<f64>,
    /// When its last attempt was sent, in seconds after it arrived.
    last_sent_s: f64,
}

impl LoggedRequest {
    /// How many attempts were neither accepted nor refused.
    pub(super) fn failed(&self) -> u32 {
        let known = self.refused.saturating_add(self.is_accepted.into());
        self.attempts.saturating_sub(known)
    }

    /// Whether all that came back were refusals.
    pub(super) fn is_only_refused(&self) -> bool {
        self.refused > 0 && self.refused == self.attempts
    }

    /// The answers of the server's limit, in seconds after `first`. A log says when the last attempt
    /// was made; the ones before it are taken to be evenly spaced.
    pub(super) fn responses(&self, first: f64) -> impl Iterator<Item = Response> {
        let start = self.at_s - first;
        let gaps = f64::from(self.attempts.saturating_sub(1).max(1));
        let last = self.last_sent_s;
        let refusals = (0..self.refused).map(move |number| Response {
            at_s: start + last * (f64::from(number) / gaps).min(1.0),
            is_accepted: false,
        });
        let accepted = self.is_accepted.then_some(Response {
            at_s: start + last,
            is_accepted: true,
        });
        refusals.chain(accepted)
    }
}

/// The fields of a line that are used.
#[derive(Debug, Default, Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    time: Cow<'a, str>,
    status: u16,
    #[serde(borrow, default)]
    route: Option<Cow<'a, str>>,
    attempts: Option<u32>,
    refused: Option<u32>,
    wait_ms: Option<u64>,
    latency_ms: Option<u64>,
    duration_ms: Option<u64>,
}

/// The route and the request of a line.
pub(super) fn parse(line: &str) -> Result<(Cow<'_, str>, LoggedRequest), LineProblem> {
    let line = line.trim();
    let fields: Fields<'_> = match line.starts_with('{') {
        true => serde_json::from_str(line).map_err(|error| LineProblem::Json(error.to_string()))?,
        false => parse_combined(line)?,
    };
    if !(100..600).contains(&fields.status) {
        return Err(LineProblem::Status(fields.status.to_string()));
    }
    let at_s = time(&fields.time).ok_or_else(|| LineProblem::Time(shortened(&fields.time)))?;
    let request = request(&fields, at_s);
    Ok((fields.route.unwrap_or_default(), request))
}

fn request(fields: &Fields<'_>, at_s: f64) -> LoggedRequest {
    let is_refusal = matches!(fields.status, 429 | 503);
    let attempts = fields.attempts.unwrap_or(1).min(MAX_ATTEMPTS);
    let refused = fields.refused.unwrap_or_else(|| is_refusal.into());
    let refused = refused.min(attempts);
    let seconds = |millis: Option<u64>| millis.map(|millis| millis as f64 / 1000.0);
    let wait = seconds(fields.wait_ms).unwrap_or(0.0);
    let latency_s = seconds(fields.latency_ms);
    let last_sent_s = match (attempts, seconds(fields.duration_ms), latency_s) {
        (2.., Some(duration), Some(latency)) => (duration - latency).max(wait),
        _ => wait,
    };
    LoggedRequest {
        at_s,
        attempts,
        refused,
        is_accepted: attempts > refused && !is_refusal && fields.status < 499,
        latency_s: latency_s.or_else(|| seconds(fields.duration_ms)),
        last_sent_s,
    }
}

/// More than any policy allows; a wrong number must not fill memory.
const MAX_ATTEMPTS: u32 = 200;

/// `HOST - USER [TIME] "REQUEST" STATUS BYTES "REFERER" "AGENT" name=value …`
fn parse_combined(line: &str) -> Result<Fields<'_>, LineProblem> {
    let parts = || {
        let (_, rest) = line.split_once('[')?;
        let (time, rest) = rest.split_once(']')?;
        let (_, rest) = rest.split_once('"')?;
        let (_, rest) = rest.split_once("\" ")?;
        let (status, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        Some((time, status, rest))
    };
    let (time, status, rest) = parts().ok_or(LineProblem::Combined)?;
    let status = status
        .parse()
        .map_err(|_| LineProblem::Status(shortened(status)))?;
    let mut fields = Fields {
        time: time.into(),
        status,
        ..Fields::default()
    };
    for word in rest.split(' ') {
        let Some((name, value)) = word.split_once('=') else {
            continue;
        };
        match name {
            "route" => fields.route = Some(value.into()),
            "attempts" => fields.attempts = value.parse().ok(),
            "refused" => fields.refused = value.parse().ok(),
            "wait_ms" => fields.wait_ms = value.parse().ok(),
            "latency_ms" => fields.latency_ms = value.parse().ok(),
            "duration_ms" => fields.duration_ms = value.parse().ok(),
            _ => {}
        }
    }
    Ok(fields)
}

/// A wrong value may be anything.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Seconds since 1970.
fn time(text: &str) -> Option<f64> {
    match text.contains('T') {
        true => rfc3339(text),
        false => common(text),
    }
}

/// `2026-11-15T06:00:00.123Z`, or with an offset such as `+01:00`.
fn rfc3339(text: &str) -> Option<f64> {
    let (date, clock) = text.split_once('T')?;
    let mut date = date.split('-');
    let (year, month, day) = (date.next()?, date.next()?, date.next()?);
    let end = clock.find(['Z', '+', '-'])?;
    let (clock, zone) = clock.split_at(end);
    let days = days(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)?;
    Some(days * DAY + time_of_day(clock)? - offset(zone)?)
}

/// `15/Nov/2026:06:00:00 +0000`
fn common(text: &str) -> Option<f64> {
    let (date, rest) = text.split_once(':')?;
    let (clock, zone) = rest.split_once(' ')?;
    let mut date = date.split('/');
    let (day, month, year) = (date.next()?, date.next()?, date.next()?);
    let month = MONTHS.iter().position(|name| *name == month)?;
    let month = u32::try_from(month).ok()? + 1;
    let days = days(year.parse().ok()?, month, day.parse().ok()?)?;
    Some(days * DAY + time_of_day(clock)? - offset(zone)?)
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

const DAY: f64 = 86_400.0;

/// `06:00:00.123`
fn time_of_day(text: &str) -> Option<f64> {
    let mut parts = text.split(':');
    let hours: u32 = parts.next()?.parse().ok()?;
    let minutes: u32 = parts.next()?.parse().ok()?;
    let seconds: f64 = parts.next()?.parse().ok()?;
    let is_time = hours < 24 && minutes < 60 && (0.0..61.0).contains(&seconds);
    is_time.then(|| f64::from(hours) * 3600.0 + f64::from(minutes) * 60.0 + seconds)
}

/// `Z`, `+0000` or `+00:00`, in seconds.
fn offset(text: &str) -> Option<f64> {
    if text == "Z" {
        return Some(0.0);
    }
    let sign = match text.get(..1)? {
        "+" => 1.0,
        "-" => -1.0,
        _ => return None,
    };
    let digits = text.get(1..)?.replace(':', "");
    let (hours, minutes) = (digits.get(..2)?, digits.get(2..)?);
    let hours: u32 = hours.parse().ok()?;
    let minutes: u32 = minutes.parse().ok()?;
    Some(sign * (f64::from(hours) * 3600.0 + f64::from(minutes) * 60.0))
}

/// Days from 1970 to a date of the Gregorian calendar, from 1970 to 9999.
fn days(year: u32, month: u32, day: u32) -> Option<f64> {
    let is_date =
        (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date {
        return None;
    }
    // Years begin in March here, so that the leap day is their last.
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    let of_year = (153 * month + 2) / 5 + day - 1;
    let days = i64::from(365 * year + leap_days + of_year) - DAYS_TO_1970;
    Some(days as f64)
}

/// From March of year 0 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times_of_both_formats() {
        let check = |text: &str, expected: f64| assert_eq!(time(text), Some(expected), "{text}");
        check("1970-01-01T00:00:00.000Z", 0.0);
        check("2026-11-15T06:00:00.123Z", 1_794_722_400.123);
        check("2026-11-15T07:00:00+01:00", 1_794_722_400.0);
        check("15/Nov/2026:06:00:00 +0000", 1_794_722_400.0);
        check("15/Nov/2026:01:00:00 -0500", 1_794_722_400.0);
        check("2024-02-29T00:00:00Z", 1_709_164_800.0);
        for bad in [
            "",
            "T",
            "2026-13-01T00:00:00Z",
            "2026-11-15T25:00:00Z",
            "15/Foo/2026:06:00:00 +0000",
        ] {
            assert_eq!(time(bad), None, "{bad}");
        }
    }

    #[test]
    fn both_formats_give_the_same_request() {
        let json = r#"{"time":"2026-11-15T06:00:00.000Z","client":null,"method":"GET","route":"llm","endpoint":"a","path":"/llm/x","status":200,"bytes":5,"attempts":3,"refused":2,"wait_ms":100,"latency_ms":50,"duration_ms":1050,"reason":null,"request_id":"1","trace_id":"2"}"#;
        let combined = "- - - [15/Nov/2026:06:00:00 +0000] \"GET /llm/x HTTP/1.1\" 200 5 \"-\" \"-\" route=llm endpoint=a attempts=3 refused=2 wait_ms=100 latency_ms=50 duration_ms=1050 reason=- request_id=1 trace_id=2";
        let (route, request) = parse(json).unwrap();
        assert_eq!(route, "llm");
        assert_eq!(parse(combined).unwrap(), (route, request));
        assert!(request.is_accepted && request.refused == 2 && request.failed() == 0);
        let responses: Vec<Response> = request.responses(request.at_s).collect();
        let at: Vec<f64> = responses.iter().map(|response| response.at_s).collect();
        assert_eq!(at, [0.0, 0.5, 1.0]);
        assert!(responses[2].is_accepted && !responses[1].is_accepted);
    }

    #[test]
    fn lines_of_other_servers_have_one_attempt() {
        let line =
            r#"10.0.0.1 - ann [15/Nov/2026:06:00:00 +0000] "GET /x HTTP/1.1" 429 0 "-" "curl/8""#;
        let (route, request) = parse(line).unwrap();
        assert_eq!(route, "");
        assert!(request.is_only_refused());
    }

    #[test]
    fn says_what_is_wrong_with_a_line() {
        let problem = |line: &str| parse(line).unwrap_err().to_string();
        assert!(problem("{}").contains("missing field `time`"));
        assert!(problem("hello").contains("expected a line of the access log"));
        assert!(problem(r#"{"time":"yesterday","status":200}"#).contains("`yesterday`"));
        assert!(problem(r#"{"time":"2026-11-15T06:00:00Z","status":20}"#).contains("`20`"));
    }
}
