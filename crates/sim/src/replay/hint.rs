//! `hint`: the hint of each response.
//!
//! Events are independent. One without a status is read as 200. `at` is optional; if given, it is
//! echoed and must not go back.

use std::time::Duration;

use policy::hint::{self, Hint, Scope, Source};

use super::Replay;
use super::at::Timeline;
use super::event::Event;
use super::explain;
use super::object::Object;
use super::problem::Problem;

#[derive(Debug, Default)]
pub(super) struct HintReplay {
    timeline: Timeline,
    explain: bool,
}

impl HintReplay {
    pub(super) fn new(explain: bool) -> Self {
        Self {
            explain,
            ..Self::default()
        }
    }
}

impl Replay for HintReplay {
    fn line(&mut self, line: &str, out: &mut Vec<u8>) -> Result<(), Problem> {
        let event = Event::read(line)?;
        let answer = event.any_response()?;
        let hint = hint::read(&answer.response(), event.now()?);
        let at = event.next_at(&mut self.timeline)?;
        let sentence = self.explain.then(|| explain::hinted(&hint));
        write(Object::answering(at, out), &hint, sentence);
        Ok(())
    }
}

fn write(object: Object<'_>, hint: &Hint, sentence: Option<String>) {
    let object = object.number("wait_ms", hint.wait.map(millis));
    if says_nothing(hint) {
        return object.explained(sentence).end();
    }
    object
        .text("source", hint.source.map(Source::as_str))
        .number("remaining", hint.remaining)
        .number("reset_ms", hint.reset.map(millis))
        .text("scope", hint.scope.as_ref().map(Scope::as_str))
        .explained(sentence)
        .end();
}

fn says_nothing(hint: &Hint) -> bool {
    hint.wait.is_none() && hint.remaining.is_none() && hint.reset.is_none() && hint.scope.is_none()
}

/// Rounded up, so that a wait is never too short.
pub(super) fn millis(duration: Duration) -> u128 {
    duration.as_nanos().div_ceil(1_000_000)
}
