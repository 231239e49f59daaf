//! What the policies that follow something over time are told: results and texts, attempts through
//! an endpoint, the state of a job.

use std::borrow::Cow;

use policy::outcome::Failure;
use policy::rules::Class;
use serde_json::value::RawValue;

use super::super::problem::Problem;
use super::raw::{bytes, lossy, text, whole};
use super::{Answered, Event, one_of, read_failure, read_status};

/// What an event of the failure queue tells: exactly one of `result`, `text` and `ask`.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::replay) enum Tidings<'a> {
    /// An attempt ended in this class.
    Result(Class),
    /// An attempt ended with these words.
    Text(Cow<'a, str>),
    /// Nothing happened; how long would one wait now?
    Ask,
}

/// What an event of protection does: exactly one of `start`, `finish`, `enable` and `ask`.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::replay) enum Move {
    /// The attempt with this number starts.
    Start(u64),
    /// The attempt with this number ends.
    Finish(u64),
    /// A person enables the endpoint.
    Enable,
    /// Nothing happens.
    Ask,
}

/// How an attempt through an endpoint ended.
#[derive(Debug)]
pub(in crate::replay) enum Ending<'a> {
    /// Well.
    Success,
    /// With an answer, if a status is known, and whatever else is.
    Answered(Option<u16>, Answered<'a>),
    /// Without an answer.
    Failed(Failure),
}

impl<'a> Event<'a> {
    pub(in crate::replay) fn tidings(&self) -> Result<Tidings<'a>, Problem> {
        let fields = [
            ("result", self.result),
            ("text", self.text),
            ("ask", self.ask),
        ];
        match one_of(&fields, QUEUE_EVENTS)? {
            ("result", value) => read_result(value).map(Tidings::Result),
            ("text", value) => read_text(value).map(Tidings::Text),
            (name, value) => is_true(name, value, QUEUE_EVENTS).map(|()| Tidings::Ask),
        }
    }

    pub(in crate::replay) fn movement(&self) -> Result<Move, Problem> {
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
            (name @ "start", value) => number(name, value).map(Move::Start),
            (name @ "finish", value) => number(name, value).map(Move::Finish),
            (name, value) => {
                is_true(name, value, ENDPOINT_EVENTS)?;
                Ok(if name == "enable" {
                    Move::Enable
                } else {
                    Move::Ask
                })
            }
        }
    }

    /// How an attempt through an endpoint ended: with `success`, `status`, `failure` or only
    /// `text`.
    pub(in crate::replay) fn ending(&self) -> Result<Ending<'a>, Problem> {
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
            (true, _, None) => Ok(Ending::Success),
            (false, None, Some(failure)) => Ok(Ending::Failed(read_failure(failure)?)),
            (false, None, None) if self.text.is_none() => Err(Problem::new(
                "has none of `status`, `text`, `failure` and `success`, expected how it ended",
                ENDINGS,
            )),
            (false, status, None) => {
                let answered = self.answered(status.unwrap_or_default())?;
                Ok(Ending::Answered(status, answered))
            }
        }
    }

    /// The words that came with it, if any did.
    pub(in crate::replay) fn words(&self) -> Result<Option<Cow<'a, str>>, Problem> {
        self.text.map(read_text).transpose()
    }

    /// What the event knows of a job, in the words of its server.
    pub(in crate::replay) fn job(&self) -> Result<Option<Cow<'a, str>>, Problem> {
        let read = |value| {
            text(value).ok_or_else(|| Problem::value("job", value, "a word, as a string", JOBS))
        };
        self.job.map(read).transpose()
    }

    /// How far the job is, in per cent.
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

/// Any string: what is no text in it is replaced.
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
