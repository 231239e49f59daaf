//! Events of a replay: every field that any policy reads.
//!
//! Fields stay raw until a policy reads them, so that a message can quote the value as written.
//! Other fields are ignored: traces carry notes. A field that is null counts as missing; one that
//! is given twice is a bad line.

mod kinds;
mod raw;

use std::borrow::Cow;
use std::time::Duration;

use policy::hint::Response;
use policy::outcome::{Failure, Phase};
use policy::time::WallTime;
use serde::Deserialize;
use serde_json::value::RawValue;

pub(super) use self::kinds::{FinishResult, ProtectionEvent, QueueEvent};
use self::raw::{Headers, bytes, text, whole};
use super::at::{At, Timeline, scaled};
use super::problem::Problem;
use super::rfc3339;

#[derive(Debug, Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow)]
    at: Option<&'a RawValue>,
    #[serde(borrow)]
    now: Option<&'a RawValue>,
    #[serde(borrow)]
    acquire: Option<&'a RawValue>,
    #[serde(borrow)]
    settle: Option<&'a RawValue>,
    #[serde(borrow)]
    attempt: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    failure: Option<&'a RawValue>,
    #[serde(borrow)]
    latency_ms: Option<&'a RawValue>,
    #[serde(borrow)]
    headers: Option<&'a RawValue>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    ask: Option<&'a RawValue>,
    #[serde(borrow)]
    start: Option<&'a RawValue>,
    #[serde(borrow)]
    finish: Option<&'a RawValue>,
    #[serde(borrow)]
    success: Option<&'a RawValue>,
    #[serde(borrow)]
    enable: Option<&'a RawValue>,
    #[serde(borrow)]
    job: Option<&'a RawValue>,
    #[serde(borrow)]
    progress: Option<&'a RawValue>,
}

/// The result of an attempt: exactly one of `status` and `failure`.
#[derive(Debug)]
pub(super) enum EventResult<'a> {
    /// A response.
    Response(EventResponse<'a>),
    /// No response.
    Failed(Failure),
}

/// A response with headers and body.
#[derive(Debug)]
pub(super) struct EventResponse<'a> {
    status: u16,
    headers: Headers<'a>,
    body: Cow<'a, [u8]>,
}

/// What an event of the gate does: exactly one of `acquire` and `settle`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GateEvent<'a> {
    /// Ask at this key's gate.
    Acquire(Cow<'a, str>),
    /// Settle the attempt of the n-th acquire.
    Settle(u64),
}

impl<'a> Event<'a> {
    pub(super) fn read(line: &'a str) -> Result<Self, Problem> {
        match line.bytes().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{') => serde_json::from_str(line).map_err(|error| not_json(&error)),
            Some(_) => Err(Problem::new("not a JSON object", ONE_OBJECT)),
            None => Err(Problem::new("blank, expected a JSON object", ONE_OBJECT)),
        }
    }

    /// The event's time, if it has one.
    pub(super) fn at(&self) -> Result<Option<At<'a>>, Problem> {
        self.at.map(At::read).transpose()
    }

    /// The event's time, where there must be one.
    pub(super) fn required_at(&self) -> Result<At<'a>, Problem> {
        self.at()?.ok_or_else(At::missing)
    }

    /// The event's time, if it has one, seen to be no earlier than the last.
    pub(super) fn next_at(&self, timeline: &mut Timeline) -> Result<Option<At<'a>>, Problem> {
        let at = self.at()?;
        at.map(|at| timeline.advance(at)).transpose()?;
        Ok(at)
    }

    /// Calendar time, against which dates in hints are read.
    pub(super) fn now(&self) -> Result<Option<WallTime>, Problem> {
        let Some(value) = self.now else {
            return Ok(None);
        };
        let expected = || {
            Problem::value(
                "now",
                value,
                "a time as in RFC 3339",
                "write it as `\"2026-11-15T06:00:00Z\"`",
            )
        };
        let text = text(value).ok_or_else(expected)?;
        rfc3339::parse(&text).map(Some).ok_or_else(expected)
    }

    pub(super) fn gate_event(&self) -> Result<GateEvent<'a>, Problem> {
        match (self.acquire, self.settle) {
            (Some(key), None) => Ok(GateEvent::Acquire(text(key).ok_or_else(|| {
                Problem::value("acquire", key, "a key, as a string", GATE_EVENTS)
            })?)),
            (None, Some(number)) => Ok(GateEvent::Settle(whole(number).ok_or_else(|| {
                let expected = "the number of an acquire line, from 1";
                Problem::value("settle", number, expected, GATE_EVENTS)
            })?)),
            (Some(_), Some(_)) => Err(Problem::new(
                "has both `acquire` and `settle`, expected one of them",
                GATE_EVENTS,
            )),
            (None, None) => Err(Problem::new(
                "has neither `acquire` nor `settle`, expected one of them",
                GATE_EVENTS,
            )),
        }
    }

    /// Which send of an item this is, from 1, if the event says so.
    pub(super) fn attempt(&self) -> Result<Option<u32>, Problem> {
        let Some(value) = self.attempt else {
            return Ok(None);
        };
        let number = whole(value).and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| *number > 0).ok_or_else(|| {
            Problem::value(
                "attempt",
                value,
                "a whole number from 1 to 4294967295",
                "`attempt` says which send this is; leave it out to have it counted",
            )
        })?;
        Ok(Some(number))
    }

    /// How long the attempt took, if the event says so.
    pub(super) fn latency(&self) -> Result<Option<Duration>, Problem> {
        let Some(value) = self.latency_ms else {
            return Ok(None);
        };
        let nanos = scaled(value.get(), 6).ok_or_else(|| {
            Problem::value(
                "latency_ms",
                value,
                "milliseconds, 0 or more",
                "leave it out to have it counted from the admission",
            )
        })?;
        Ok(Some(Duration::from_nanos(nanos)))
    }

    pub(super) fn attempt_result(&self) -> Result<EventResult<'a>, Problem> {
        match (self.status, self.failure) {
            (Some(status), None) => Ok(EventResult::Response(self.response(read_status(status)?)?)),
            (None, Some(failure)) => Ok(EventResult::Failed(read_failure(failure)?)),
            (Some(_), Some(_)) => Err(Problem::new(
                "has both `status` and `failure`, expected one of them",
                REPLIES,
            )),
            (None, None) => Err(Problem::new(
                "has neither `status` nor `failure`, expected one of them",
                REPLIES,
            )),
        }
    }

    /// The answer, where its status does not matter: 200 if there is none.
    pub(super) fn any_response(&self) -> Result<EventResponse<'a>, Problem> {
        self.response(self.status.map_or(Ok(200), read_status)?)
    }

    fn response(&self, status: u16) -> Result<EventResponse<'a>, Problem> {
        Ok(EventResponse {
            status,
            headers: self
                .headers
                .map(Headers::read)
                .transpose()?
                .unwrap_or_default(),
            body: self.body.map(read_body).transpose()?.unwrap_or_default(),
        })
    }
}

impl EventResponse<'_> {
    /// The answer as hints and verdicts read it.
    pub(super) fn response(&self) -> Response<'_, impl Iterator<Item = (&str, &[u8])> + Clone> {
        Response {
            status: self.status,
            headers: self
                .headers
                .0
                .iter()
                .map(|(name, value)| (&**name, &**value)),
            body: &self.body,
        }
    }
}

/// The one field of several that the event has.
fn one_of<'f, 'a>(
    fields: &[(&'f str, Option<&'a RawValue>)],
    hint: &'static str,
) -> Result<(&'f str, &'a RawValue), Problem> {
    let mut given = fields
        .iter()
        .filter_map(|&(name, value)| Some((name, value?)));
    match (given.next(), given.next()) {
        (Some(only), None) => Ok(only),
        (Some((one, _)), Some((other, _))) => Err(Problem::new(
            format!("has both `{one}` and `{other}`, expected one of them"),
            hint,
        )),
        (None, _) => {
            let names: Vec<_> = fields.iter().map(|(name, _)| format!("`{name}`")).collect();
            let names = names.join(", ");
            Err(Problem::new(
                format!("has none of {names}, expected one of them"),
                hint,
            ))
        }
    }
}

fn read_status(value: &RawValue) -> Result<u16, Problem> {
    whole(value)
        .and_then(|status| u16::try_from(status).ok())
        .filter(|status| (100..=999).contains(status))
        .ok_or_else(|| Problem::value("status", value, "a whole number from 100 to 999", REPLIES))
}

fn read_failure(value: &RawValue) -> Result<Failure, Problem> {
    match text(value).as_deref() {
        Some("connect") => Ok(Failure::Connect),
        Some("timeout") => Ok(Failure::Timeout),
        Some("reset") => Ok(Failure::Reset),
        Some("dns") => Ok(Failure::Dns),
        Some("tls") => Ok(Failure::Tls),
        _ => Err(Problem::value(
            "failure",
            value,
            "`connect`, `timeout`, `reset`, `dns` or `tls`",
            REPLIES,
        )),
    }
}

/// How far an attempt got that failed like this. Nothing was written before a connection stood;
/// where the events do not say more, the rest is taken to have been sent.
pub(super) fn phase(failure: Failure) -> Phase {
    match failure {
        Failure::Connect | Failure::Dns | Failure::Tls => Phase::Connecting,
        Failure::Reset | Failure::Timeout | Failure::RefusedStream => Phase::Waiting,
    }
}

fn read_body(value: &RawValue) -> Result<Cow<'_, [u8]>, Problem> {
    bytes(value).ok_or_else(|| {
        Problem::kind(
            "`body`",
            value,
            "a string",
            "a JSON body is written as a string: `\"{\\\"error\\\":\\\"…\\\"}\"`",
        )
    })
}

/// The parser's message without its position in the one-line input, which is given in our words.
fn not_json(error: &serde_json::Error) -> Problem {
    let message = error.to_string();
    let what = message.split(" at line ").next().unwrap_or(&message);
    Problem::new(
        format!("not a JSON object: {what} at column {}", error.column()),
        ONE_OBJECT,
    )
}

const ONE_OBJECT: &str = "every line is one event, written as one JSON object";
const GATE_EVENTS: &str = "events are `{\"at\":0,\"acquire\":\"example.com\"}` and \
                           `{\"at\":1,\"settle\":1,\"status\":200}`";
const REPLIES: &str = "an attempt ends with `\"status\":200` or `\"failure\":\"timeout\"`";

#[cfg(test)]
mod tests {
    use super::*;

    fn event(line: &str) -> Event<'_> {
        Event::read(line).unwrap()
    }

    fn headers(line: &str) -> Vec<(String, Vec<u8>)> {
        let answer = event(line).any_response().unwrap();
        let headers = answer.response().headers;
        headers
            .map(|(name, value)| (name.to_owned(), value.to_vec()))
            .collect()
    }

    #[test]
    fn any_string_is_a_header_value() {
        assert_eq!(
            headers(r#"{"headers":{"A":"","b":"\u0000\ud800","a":"é","\udc00":"x"}}"#),
            [
                ("A".into(), b"".to_vec()),
                ("b".into(), b"\0\xed\xa0\x80".to_vec()),
                ("a".into(), "é".into()),
                ("\u{fffd}\u{fffd}\u{fffd}".into(), b"x".to_vec()),
            ]
        );
    }

    #[test]
    fn headers_may_be_repeated() {
        let twice = [
            ("a".to_owned(), b"1".to_vec()),
            ("a".to_owned(), b"2".to_vec()),
        ];
        assert_eq!(headers(r#"{"headers":{"a":["1","2"]}}"#), twice);
        assert_eq!(headers(r#"{"headers":{"a":"1","a":"2"}}"#), twice);
        assert_eq!(headers(r#"{"headers":{"a":[]}}"#), []);
    }

    #[test]
    fn null_is_missing() {
        let line = r#"{"at":null,"headers":null,"body":null,"now":null,"status":null,
                       "failure":"reset","latency_ms":null,"acquire":null,"settle":3}"#;
        let event = event(line);
        assert_eq!(event.at().unwrap(), None);
        assert_eq!(event.now().unwrap(), None);
        assert_eq!(event.latency().unwrap(), None);
        assert_eq!(event.gate_event().unwrap(), GateEvent::Settle(3));
        assert!(matches!(
            event.attempt_result().unwrap(),
            EventResult::Failed(Failure::Reset)
        ));
    }

    #[test]
    fn unknown_fields_are_ignored_whatever_they_hold() {
        let deep = format!(
            r#"{{"x":{}{},"y":1e999,"settle":1}}"#,
            "[".repeat(5000),
            "]".repeat(5000)
        );
        assert_eq!(event(&deep).gate_event().unwrap(), GateEvent::Settle(1));
    }

    #[test]
    fn latency_is_exact() {
        let line = r#"{"latency_ms":0.0015}"#;
        assert_eq!(
            event(line).latency().unwrap(),
            Some(Duration::from_nanos(1500))
        );
    }
}
