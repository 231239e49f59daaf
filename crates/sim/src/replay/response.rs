//! Responses: `hint` reads the hint, `classify` the verdict; other policies use both as the outcome
//! of an attempt.
//!
//! Events of `hint` and `classify` are independent. `at` is optional; if given, it is echoed and
//! must not go back. For `hint` an event without a status is read as 200.

use std::time::Duration;

use policy::classify::{self, Classification};
use policy::hint::{self, Hint, Scope, Source};
use policy::outcome::{Outcome, UpstreamResponse, Verdict};
use policy::time::WallTime;

use super::Replay;
use super::at::Timeline;
use super::event::{Event, EventResult, phase};
use super::explain;
use super::object::Object;
use super::problem::Problem;

#[derive(Debug)]
pub(super) struct HintReplay {
    pub(super) timeline: Timeline,
    pub(super) explain: bool,
}

impl Replay for HintReplay {
    fn line(&mut self, line: &str, out: &mut Vec<u8>) -> Result<(), Problem> {
        let event = Event::read(line)?;
        let answer = event.any_response()?;
        let hint = hint::read(&answer.response(), event.now()?);
        let at = event.next_at(&mut self.timeline)?;
        let mut object = Object::answering(at, out).number("wait_ms", hint.wait.map(millis));
        if hint.wait.is_some()
            || hint.remaining.is_some()
            || hint.reset.is_some()
            || hint.scope.is_some()
        {
            object = object
                .text("source", hint.source.map(Source::as_str))
                .number("remaining", hint.remaining)
                .number("reset_ms", hint.reset.map(millis))
                .text("scope", hint.scope.as_ref().map(Scope::as_str));
        }
        object
            .explained(self.explain.then(|| explain::hinted(&hint)))
            .end();
        Ok(())
    }
}

/// Rounded up, so that a wait is never too short.
pub(super) fn millis(duration: Duration) -> u128 {
    duration.as_nanos().div_ceil(1_000_000)
}

#[derive(Debug)]
pub(super) struct ClassifyReplay {
    pub(super) timeline: Timeline,
    pub(super) explain: bool,
}

impl Replay for ClassifyReplay {
    fn line(&mut self, line: &str, out: &mut Vec<u8>) -> Result<(), Problem> {
        let event = Event::read(line)?;
        let result = event.attempt_result()?;
        let Attempt { judgement, .. } = Attempt::of(&result, event.now()?, None);
        let at = event.next_at(&mut self.timeline)?;
        Object::answering(at, out)
            .text("verdict", judgement.verdict.map(Verdict::as_str))
            .text("because", Some(&judgement.because.to_string()))
            .explained(self.explain.then(|| explain::judged(&judgement)))
            .end();
        Ok(())
    }
}

/// The outcome and verdict of an attempt.
#[derive(Debug)]
pub(super) struct Attempt {
    response: UpstreamResponse,
    hint: Hint,
    latency: Option<Duration>,
    /// The verdict and its reason.
    pub(super) judgement: Classification,
}

impl Attempt {
    pub(super) fn read(event: &Event<'_>) -> Result<Self, Problem> {
        let (latency, now) = (event.latency()?, event.now()?);
        Ok(Self::of(&event.attempt_result()?, now, latency))
    }

    fn of(result: &EventResult<'_>, now: Option<WallTime>, latency: Option<Duration>) -> Self {
        match result {
            EventResult::Response(answered) => {
                let response = answered.response();
                let hint = hint::read(&response, now);
                Self {
                    response: UpstreamResponse::Status(response.status),
                    judgement: classify::response(&[], &response, &hint),
                    hint,
                    latency,
                }
            }
            EventResult::Failed(failure) => Self {
                response: UpstreamResponse::Failed {
                    failure: *failure,
                    phase: phase(*failure),
                },
                judgement: classify::failure(*failure),
                hint: Hint::default(),
                latency,
            },
        }
    }

    /// The outcome, with `otherwise` as latency if the event has none.
    pub(super) fn outcome(self, otherwise: Duration) -> Outcome {
        Outcome {
            response: self.response,
            latency: self.latency.unwrap_or(otherwise),
            hint: self.hint,
            used: None,
        }
    }
}
