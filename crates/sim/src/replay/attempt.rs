//! What came of an attempt, as an event tells it: read, judged, ready for a policy to learn from.

use std::time::Duration;

use policy::classify;
use policy::hint::{self, Hint};
use policy::outcome::{Answer, Outcome, Verdict};

use super::event::{Event, Reply, phase};
use super::problem::Problem;

#[derive(Debug)]
pub(super) struct Attempt {
    answer: Answer,
    hint: Hint,
    latency: Option<Duration>,
    pub(super) verdict: Option<Verdict>,
}

impl Attempt {
    pub(super) fn read(event: &Event<'_>) -> Result<Self, Problem> {
        let latency = event.latency()?;
        let now = event.now()?;
        Ok(match event.reply()? {
            Reply::Answered(answered) => {
                let response = answered.response();
                let hint = hint::read(&response, now);
                Self {
                    answer: Answer::Status(response.status),
                    verdict: classify::response(&[], &response, &hint).verdict,
                    hint,
                    latency,
                }
            }
            Reply::Failed(failure) => Self {
                answer: Answer::Failed {
                    failure,
                    phase: phase(failure),
                },
                verdict: classify::failure(failure).verdict,
                hint: Hint::default(),
                latency,
            },
        })
    }

    /// The outcome, with `otherwise` where the event names no latency.
    pub(super) fn outcome(self, otherwise: Duration) -> Outcome {
        Outcome {
            answer: self.answer,
            latency: self.latency.unwrap_or(otherwise),
            hint: self.hint,
            used: None,
        }
    }
}
