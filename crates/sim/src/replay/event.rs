//! Events of a replay: every field that any policy reads.
//!
//! Fields stay raw until a policy reads them, so that a message can quote the value as written.
//! Unknown fields are ignored, because traces contain notes. A null field counts as missing; a
//! duplicate field is a bad line.

mod raw;

use std::borrow::Cow;
use std::time::Duration;

use policy::hint::Response;
use policy::outcome::{Failure, Phase};
use policy::rules::Class;
use policy::time::WallTime;
use serde_json::value::RawValue;

use self::raw::{Headers, bytes, lossy, text, whole};
use super::at::{At, Timeline, scaled};
use super::problem::Problem;
use super::rfc3339;

/// Every field that any policy reads.
const FIELDS: [&str; 19] = [
    "at",
    "now",
    "acquire",
    "settle",
    "attempt",
    "status",
    "failure",
    "latency_ms",
    "headers",
    "body",
    "result",
    "text",
    "ask",
    "start",
    "finish",
    "success",
    "enable",
    "job",
    "progress",
];

/// The fields of [`FIELDS`] that a line has; `None` for null.
#[derive(Debug)]
pub(super) struct Event<'a>(Vec<(&'static str, Option<&'a RawValue>)>);

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

/// An event of the failure queue: exactly one of `result`, `text` and `ask`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum QueueEvent<'a> {
    /// An attempt ended in this class.
    Result(Class),
    /// An attempt ended with this text.
    Text(Cow<'a, str>),
    /// No result: only asks for the wait.
    Ask,
}

/// An event of protection: exactly one of `start`, `finish`, `enable` and `ask`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProtectionEvent {
    /// The attempt with this number starts.
    Start(u64),
    /// The attempt with this number ends.
    Finish(u64),
    /// A person enables the endpoint.
    Enable,
    /// Only asks for the state.
    Ask,
}

/// The result of an attempt at an endpoint.
#[derive(Debug)]
pub(super) enum FinishResult<'a> {
    /// A success.
    Success,
    /// A response, whose status may be unknown.
    Response(Option<u16>, EventResponse<'a>),
    /// No response.
    Failed(Failure),
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
        self.field("at").map(At::read).transpose()
    }

    /// The event's time, which is required.
    pub(super) fn required_at(&self) -> Result<At<'a>, Problem> {
        self.at()?.ok_or_else(At::missing)
    }

    /// The event's time, if any, checked to be no earlier than the last.
    pub(super) fn next_at(&self, timeline: &mut Timeline) -> Result<Option<At<'a>>, Problem> {
        let at = self.at()?;
        at.map(|at| timeline.advance(at)).transpose()?;
        Ok(at)
    }

    /// The wall time, for dates in hints.
    pub(super) fn now(&self) -> Result<Option<WallTime>, Problem> {
        let hint = "write it as `\"2026-11-15T06:00:00Z\"`";
        self.value("now", "a time as in RFC 3339", hint, |value| {
            rfc3339::parse(&text(value)?)
        })
    }

    pub(super) fn gate_event(&self) -> Result<GateEvent<'a>, Problem> {
        let (name, value) = self.one_of(&["acquire", "settle"], GATE_EVENTS)?;
        let (event, expected) = match name {
            "acquire" => (text(value).map(GateEvent::Acquire), "a key, as a string"),
            _ => (
                whole(value).map(GateEvent::Settle),
                "the number of an acquire line, from 1",
            ),
        };
        event.ok_or_else(|| Problem::value(name, value, expected, GATE_EVENTS))
    }

    /// The number of the send, counted from 1, if the event has it.
    pub(super) fn attempt(&self) -> Result<Option<u32>, Problem> {
        let expected = "a whole number from 1 to 4294967295";
        let hint = "`attempt` says which send this is; leave it out to have it counted";
        self.value("attempt", expected, hint, |value| {
            let number = u32::try_from(whole(value)?).ok();
            number.filter(|number| *number > 0)
        })
    }

    /// The latency of the attempt, if the event has it.
    pub(super) fn latency(&self) -> Result<Option<Duration>, Problem> {
        let hint = "leave it out to have it counted from the admission";
        self.value("latency_ms", "milliseconds, 0 or more", hint, |value| {
            scaled(value.get(), 6).map(Duration::from_nanos)
        })
    }

    pub(super) fn attempt_result(&self) -> Result<EventResult<'a>, Problem> {
        self.one_of(&["status", "failure"], REPLIES)?;
        match self.failure()? {
            Some(failure) => Ok(EventResult::Failed(failure)),
            None => self.any_response().map(EventResult::Response),
        }
    }

    /// The response if its status does not matter: 200 if there is none.
    pub(super) fn any_response(&self) -> Result<EventResponse<'a>, Problem> {
        self.response(self.status()?.unwrap_or(200))
    }

    pub(super) fn queue_event(&self) -> Result<QueueEvent<'a>, Problem> {
        match self.one_of(&["result", "text", "ask"], QUEUE_EVENTS)? {
            ("result", value) => read_result(value).map(QueueEvent::Result),
            ("text", value) => read_text(value).map(QueueEvent::Text),
            (name, value) => is_true(name, value, QUEUE_EVENTS).map(|()| QueueEvent::Ask),
        }
    }

    pub(super) fn protection_event(&self) -> Result<ProtectionEvent, Problem> {
        let number = |name, value| {
            let expected = "the number of an attempt";
            whole(value).ok_or_else(|| Problem::value(name, value, expected, ENDPOINT_EVENTS))
        };
        match self.one_of(&["start", "finish", "enable", "ask"], ENDPOINT_EVENTS)? {
            (name @ "start", value) => number(name, value).map(ProtectionEvent::Start),
            (name @ "finish", value) => number(name, value).map(ProtectionEvent::Finish),
            (name, value) => {
                is_true(name, value, ENDPOINT_EVENTS)?;
                Ok(match name {
                    "enable" => ProtectionEvent::Enable,
                    _ => ProtectionEvent::Ask,
                })
            }
        }
    }

    /// The result of an attempt at an endpoint: with `success`, `status`, `failure` or only `text`.
    pub(super) fn finish_result(&self) -> Result<FinishResult<'a>, Problem> {
        let success = self.value("success", "`true` or `false`", ENDINGS, |value| {
            value.get().parse().ok()
        });
        let claims_success = success? == Some(true);
        let status = self.status()?;
        let contradiction = match (claims_success, status, self.field("failure")) {
            (_, Some(_), Some(_)) => "has both `status` and `failure`, expected one of them",
            (true, Some(400..), None) | (true, None, Some(_)) => {
                "has `success` and an error, expected one of them"
            }
            (true, _, None) => return Ok(FinishResult::Success),
            (false, None, None) if self.field("text").is_none() => {
                "has none of `status`, `text`, `failure` and `success`, expected how it ended"
            }
            (false, ..) => {
                return Ok(match self.failure()? {
                    Some(failure) => FinishResult::Failed(failure),
                    None => {
                        FinishResult::Response(status, self.response(status.unwrap_or_default())?)
                    }
                });
            }
        };
        Err(Problem::new(contradiction, ENDINGS))
    }

    /// The text, if there is one.
    pub(super) fn words(&self) -> Result<Option<Cow<'a, str>>, Problem> {
        self.field("text").map(read_text).transpose()
    }

    /// The job's status as its server writes it.
    pub(super) fn job(&self) -> Result<Option<Cow<'a, str>>, Problem> {
        self.value("job", "a word, as a string", JOBS, text)
    }

    /// The job's progress in percent.
    pub(super) fn progress(&self) -> Result<Option<f64>, Problem> {
        self.value("progress", "a number of per cent", JOBS, |value| {
            let number = value.get().parse().ok();
            number.filter(|number: &f64| number.is_finite())
        })
    }

    fn status(&self) -> Result<Option<u16>, Problem> {
        let expected = "a whole number from 100 to 999";
        self.value("status", expected, REPLIES, |value| {
            let status = u16::try_from(whole(value)?).ok();
            status.filter(|status| (100..=999).contains(status))
        })
    }

    fn failure(&self) -> Result<Option<Failure>, Problem> {
        let expected = "`connect`, `timeout`, `reset`, `dns` or `tls`";
        self.value("failure", expected, REPLIES, |value| match &*text(value)? {
            "connect" => Some(Failure::Connect),
            "timeout" => Some(Failure::Timeout),
            "reset" => Some(Failure::Reset),
            "dns" => Some(Failure::Dns),
            "tls" => Some(Failure::Tls),
            _ => None,
        })
    }

    fn response(&self, status: u16) -> Result<EventResponse<'a>, Problem> {
        let headers = self.field("headers").map(Headers::read).transpose()?;
        let body = self.field("body").map(read_body).transpose()?;
        Ok(EventResponse {
            status,
            headers: headers.unwrap_or_default(),
            body: body.unwrap_or_default(),
        })
    }

    fn field(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.and_then(|(_, value)| *value)
    }

    /// The value of a field, if it has one.
    fn value<T>(
        &self,
        name: &str,
        expected: &str,
        hint: &'static str,
        read: impl FnOnce(&'a RawValue) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let Some(value) = self.field(name) else {
            return Ok(None);
        };
        let read = read(value);
        read.map(Some)
            .ok_or_else(|| Problem::value(name, value, expected, hint))
    }

    /// The one field of several that the event has.
    fn one_of<'f>(
        &self,
        names: &[&'f str],
        hint: &'static str,
    ) -> Result<(&'f str, &'a RawValue), Problem> {
        let mut given = names
            .iter()
            .filter_map(|name| Some((*name, self.field(name)?)));
        let what = match (given.next(), given.next(), names) {
            (Some(only), None, _) => return Ok(only),
            (Some((one, _)), Some((other, _)), _) => format!("both `{one}` and `{other}`"),
            (None, _, [one, other]) => format!("neither `{one}` nor `{other}`"),
            (None, ..) => format!("none of `{}`", names.join("`, `")),
        };
        Err(Problem::new(
            format!("has {what}, expected one of them"),
            hint,
        ))
    }
}

impl EventResponse<'_> {
    /// The response, as hints and verdicts read it.
    pub(super) fn response(&self) -> Response<'_, impl Iterator<Item = (&str, &[u8])> + Clone> {
        let headers = self.headers.0.iter();
        Response {
            status: self.status,
            headers: headers.map(|(name, value)| (&**name, &**value)),
            body: &self.body,
        }
    }
}

/// The phase that an attempt with this failure reached. Nothing was written before the connection
/// was established; otherwise the request counts as sent, because the events do not say more.
pub(super) fn phase(failure: Failure) -> Phase {
    match failure {
        Failure::Connect | Failure::Dns | Failure::Tls => Phase::Connecting,
        _ => Phase::Waiting,
    }
}

fn is_true(name: &str, value: &RawValue, hint: &'static str) -> Result<(), Problem> {
    match value.get() {
        "true" => Ok(()),
        _ => Err(Problem::value(name, value, "`true`", hint)),
    }
}

fn read_result(value: &RawValue) -> Result<Class, Problem> {
    match text(value).as_deref() {
        Some("success") => Ok(Class::Success),
        Some("retryable") => Ok(Class::Retryable),
        Some("terminal") => Ok(Class::Terminal),
        _ => {
            let expected = "`success`, `retryable` or `terminal`";
            Err(Problem::value("result", value, expected, QUEUE_EVENTS))
        }
    }
}

/// Any string; invalid UTF-8 is replaced.
fn read_text(value: &RawValue) -> Result<Cow<'_, str>, Problem> {
    let hint = "write it as `\"text\":\"Too Many Requests\"`";
    let words = bytes(value).map(lossy);
    words.ok_or_else(|| Problem::kind("`text`", value, "a string", hint))
}

fn read_body(value: &RawValue) -> Result<Cow<'_, [u8]>, Problem> {
    let hint = "a JSON body is written as a string: `\"{\\\"error\\\":\\\"…\\\"}\"`";
    bytes(value).ok_or_else(|| Problem::kind("`body`", value, "a string", hint))
}

/// The parser's message without its position, which we report ourselves.
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
const QUEUE_EVENTS: &str = "events are `{\"at\":0,\"result\":\"retryable\"}`, \
                            `{\"at\":1,\"text\":\"Private video\"}` and `{\"at\":9,\"ask\":true}`";
const ENDPOINT_EVENTS: &str = "events are `{\"at\":0,\"start\":1}`, \
                               `{\"at\":1,\"finish\":1,\"status\":429}`, \
                               `{\"at\":5,\"enable\":true}` and `{\"at\":31,\"ask\":true}`";
const ENDINGS: &str = "an attempt ends with `\"status\":429`, `\"text\":\"…\"`, \
                       `\"failure\":\"timeout\"` or `\"success\":true`";
const JOBS: &str = "write it as `\"job\":\"running\",\"progress\":12`";

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
    fn accepts_any_string_as_header_value() {
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
    fn accepts_repeated_headers() {
        let twice = [
            ("a".to_owned(), b"1".to_vec()),
            ("a".to_owned(), b"2".to_vec()),
        ];
        assert_eq!(headers(r#"{"headers":{"a":["1","2"]}}"#), twice);
        assert_eq!(headers(r#"{"headers":{"a":"1","a":"2"}}"#), twice);
        assert_eq!(headers(r#"{"headers":{"a":[]}}"#), []);
    }

    #[test]
    fn null_counts_as_missing() {
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
    fn ignores_unknown_fields() {
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
