//! The outcome and verdict of an attempt, read from an event.

use std::time::Duration;

use policy::classify::{self, Judgement};
use policy::hint::{self, Hint};
use policy::outcome::{Outcome, UpstreamResponse};

use super::event::{Event, EventResult, phase};
use super::problem::Problem;

#[derive(Debug)]
pub(super) struct Attempt {
    response: UpstreamResponse,
    hint: Hint,
    latency: Option<Duration>,
    /// The verdict and what decided it.
    pub(super) judgement: Judgement,
}

impl Attempt {
    pub(super) fn read(event: &Event<'_>) -> Result<Self, Problem> {
        let latency = event.latency()?;
        let now = event.now()?;
        Ok(match event.attempt_result()? {
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
                    failure,
                    phase: phase(failure),
                },
                judgement: classify::failure(failure),
                hint: Hint::default(),
                latency,
            },
        })
    }

    /// The outcome, with `otherwise` where the event names no latency.
    pub(super) fn outcome(self, otherwise: Duration) -> Outcome {
        Outcome {
            response: self.response,
            latency: self.latency.unwrap_or(otherwise),
            hint: self.hint,
            used: None,
        }
    }
}
