//! `classify`: the verdict on each outcome, and what decided it.
//!
//! Events stand alone and have a status or a failure. `at` is not needed; where it is given it is
//! echoed and must not go back.

use policy::classify::{self, Judgement};
use policy::hint;
use policy::outcome::Verdict;
use policy::time::WallTime;

use super::Replay;
use super::at::Timeline;
use super::event::{Event, EventResult};
use super::explain;
use super::object::Object;
use super::problem::Problem;

#[derive(Debug, Default)]
pub(super) struct ClassifyReplay {
    timeline: Timeline,
    explain: bool,
}

impl ClassifyReplay {
    pub(super) fn new(explain: bool) -> Self {
        Self {
            explain,
            ..Self::default()
        }
    }
}

impl Replay for ClassifyReplay {
    fn line(&mut self, line: &str, out: &mut Vec<u8>) -> Result<(), Problem> {
        let event = Event::read(line)?;
        let judgement = judge(&event.attempt_result()?, event.now()?);
        let at = event.next_at(&mut self.timeline)?;
        Object::answering(at, out)
            .text("verdict", judgement.verdict.map(Verdict::as_str))
            .text("because", Some(&judgement.because.to_string()))
            .explained(self.explain.then(|| explain::judged(&judgement)))
            .end();
        Ok(())
    }
}

fn judge(reply: &EventResult<'_>, now: Option<WallTime>) -> Judgement {
    match reply {
        EventResult::Response(answer) => {
            let response = answer.response();
            classify::response(&[], &response, &hint::read(&response, now))
        }
        EventResult::Failed(failure) => classify::failure(*failure),
    }
}
