//! Events of the failure queue, of protection and of poll.

use std::borrow::Cow;

use policy::outcome::Failure;
use policy::rules::Class;
use serde_json::value::RawValue;

use super::super::problem::Problem;
use super::raw::{bytes, lossy, text, whole};
use super::{Event, EventResponse, one_of, read_failure, read_status};

/// An event of the failure queue: exactly one of `result`, `text` and `ask`.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::replay) enum QueueEvent<'a> {
    /// An attempt ended in this class.
    Result(Class),
    /// An attempt ended with this text.
    Text(Cow<'a, str>),
    /// No result: only the wait is asked for.
    Ask,
}

/// An event of protection: exactly one of `start`, `finish`, `enable` and `ask`.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::replay) enum ProtectionEvent {
    /// The attempt with this number starts.
    Start(u64),
    /// The attempt with this number ends.
    Finish(u64),
    /// A person enables the endpoint.
    Enable,
    /// Only the state is asked for.
    Ask,
}

/// The result of an attempt through an endpoint.
#[derive(Debug)]
pub(in crate::replay) enum FinishResult<'a> {
    /// A success.
    Success,
    /// A response, whose status may be unknown.
    Response(Option<u16>, EventResponse<'a>),
    /// No response.
    Failed(Failure),
}

impl<'a> Event<'a> {
    pub(in crate::replay) fn queue_event(&self) -> Result<QueueEvent<'a>, Problem> {
        let fields = [
            ("result", self.result),
            ("text", self.text),
            ("ask", self.ask),
        ];
        match one_of(&fields, QUEUE_EVENTS)? {
            ("result", value) => read_result(value).map(QueueEvent::Result),
            ("text", value) => read_text(value).map(QueueEvent::Text),
            (name, value) => is_true(name, value, QUEUE_EVENTS).map(|()| QueueEvent::Ask),
        }
    }

    pub(in crate::replay) fn protection_event(&self) -> Result<ProtectionEvent, Problem> {
        let fields = [
            ("start", self.start),
            ("finish", self.finish),
            ("enable", self.enable),
            ("ask", self.ask),
        ];
        let number = |name, value| {
            let expected = "the number of an attempt";
            whole(value).ok_or_else(|| Problem::value(name, value, expected, ENDPOINT_EVENTS))
        };
        match one_of(&fields, ENDPOINT_EVENTS)? {
            (name @ "start", value) => number(name, value).map(ProtectionEvent::Start),
            (name @ "finish", value) => number(name, value).map(ProtectionEvent::Finish),
            (name, value) => {
                is_true(name, value, ENDPOINT_EVENTS)?;
                Ok(if name == "enable" {
                    ProtectionEvent::Enable
                } else {
                    ProtectionEvent::Ask
                })
            }
        }
    }

    /// The result of an attempt through an endpoint: with `success`, `status`, `failure` or only
    /// `text`.
    pub(in crate::replay) fn finish_result(&self) -> Result<FinishResult<'a>, Problem> {
        let claims_success = match self.success.map(|value| (value, value.get())) {
            None | Some((_, "false")) => false,
            Some((_, "true")) => true,
            Some((value, _)) => {
                return Err(Problem::value(
                    "success",
                    value,
                    "`true` or `false`",
                    ENDINGS,
                ));
            }
        };
        let status = self.status.map(read_status).transpose()?;
        match (claims_success, status, self.failure) {
            (_, Some(_), Some(_)) => Err(Problem::new(
                "has both `status` and `failure`, expected one of them",
                ENDINGS,
            )),
            (true, Some(400..), None) | (true, None, Some(_)) => Err(Problem::new(
                "has `success` and an error, expected one of them",
                ENDINGS,
            )),
            (true, _, None) => Ok(FinishResult::Success),
            (false, None, Some(failure)) => Ok(FinishResult::Failed(read_failure(failure)?)),
            (false, None, None) if self.text.is_none() => Err(Problem::new(
                "has none of `status`, `text`, `failure` and `success`, expected how it ended",
                ENDINGS,
            )),
            (false, status, None) => {
                let answered = self.response(status.unwrap_or_default())?;
                Ok(FinishResult::Response(status, answered))
            }
        }
    }

    /// The text, if there is one.
    pub(in crate::replay) fn words(&self) -> Result<Option<Cow<'a, str>>, Problem> {
        self.text.map(read_text).transpose()
    }

    /// The job's status as its server calls it.
    pub(in crate::replay) fn job(&self) -> Result<Option<Cow<'a, str>>, Problem> {
        let read = |value| {
            text(value).ok_or_else(|| Problem::value("job", value, "a word, as a string", JOBS))
        };
        self.job.map(read).transpose()
    }

    /// The job's progress in per cent.
    pub(in crate::replay) fn progress(&self) -> Result<Option<f64>, Problem> {
        let read = |value: &RawValue| {
            let number = value
                .get()
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite());
            number.ok_or_else(|| Problem::value("progress", value, "a number of per cent", JOBS))
        };
        self.progress.map(read).transpose()
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
    let words = bytes(value).map(lossy);
    let hint = "write it as `\"text\":\"Too Many Requests\"`";
    words.ok_or_else(|| Problem::kind("`text`", value, "a string", hint))
}

const QUEUE_EVENTS: &str = "events are `{\"at\":0,\"result\":\"retryable\"}`, \
                            `{\"at\":1,\"text\":\"Private video\"}` and `{\"at\":9,\"ask\":true}`";
const ENDPOINT_EVENTS: &str = "events are `{\"at\":0,\"start\":1}`, \
                               `{\"at\":1,\"finish\":1,\"status\":429}`, \
                               `{\"at\":5,\"enable\":true}` and `{\"at\":31,\"ask\":true}`";
const ENDINGS: &str = "an attempt ends with `\"status\":429`, `\"text\":\"…\"`, \
                       `\"failure\":\"timeout\"` or `\"success\":true`";
const JOBS: &str = "write it as `\"job\":\"running\",\"progress\":12`";
