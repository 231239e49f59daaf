//! `protection`: attempts at one endpoint, and its ladder.
//!
//! The endpoint counts as one of a pool, so it is protected unless `enabled=false`. An attempt may
//! start while the endpoint is paused or disabled, like one that was already in flight.

use std::collections::HashMap;
use std::time::Duration;

use policy::duration::{Rounded, whole_seconds};
use policy::hint::Source;
use policy::ladder::{EndpointResult, Ladder, LadderSettings, LadderStep};
use policy::rate::Strategy;
use policy::time::Timestamp;

use super::Replay;
use super::at::{At, Timeline};
use super::event::{Event, FinishResult, ProtectionEvent};
use super::object::Object;
use super::problem::Problem;

#[derive(Debug)]
pub(super) struct ProtectionReplay {
    settings: LadderSettings,
    timeline: Timeline,
    ladder: Ladder,
    /// Attempts in flight, with the epoch they started in.
    in_flight: HashMap<u64, u32>,
    explain: bool,
}

impl ProtectionReplay {
    pub(super) fn new(settings: LadderSettings, explain: bool) -> Self {
        Self {
            settings,
            timeline: Timeline::default(),
            ladder: Ladder::new(),
            in_flight: HashMap::new(),
            explain,
        }
    }

    fn start(&mut self, number: u64) -> Result<String, Problem> {
        if self.in_flight.contains_key(&number) {
            return Err(already_started(number));
        }
        let epoch = self.ladder.epoch();
        self.in_flight.insert(number, epoch);
        Ok(format!("attempt {number} starts in epoch {epoch}"))
    }

    fn finish(
        &mut self,
        number: u64,
        ended: &EndpointResult<'_>,
        now: Timestamp,
    ) -> Result<String, Problem> {
        let Some(epoch) = self.in_flight.remove(&number) else {
            return Err(not_in_flight(number));
        };
        if !self.is_on() {
            return Ok("changes nothing: protection is switched off".to_owned());
        }
        let step = self.ladder.settle(&self.settings, epoch, ended, now);
        Ok(self.describe(step))
    }

    fn is_on(&self) -> bool {
        self.settings.enabled() != Some(false)
    }

    /// What a result changed.
    fn describe(&self, step: LadderStep) -> String {
        let last = self.ladder.last_error().unwrap_or("no error");
        match step {
            LadderStep::Late => {
                "changes nothing: it started before the last pause, or before a person \
                           interfered"
                    .to_owned()
            }
            LadderStep::Unchanged if self.ladder.is_enabled() => {
                "changes nothing: it is not an error, and there is nothing to clear".to_owned()
            }
            LadderStep::Unchanged => "changes nothing: only a person enables it again".to_owned(),
            LadderStep::Cleared => "a success: pause, count and last error are cleared".to_owned(),
            LadderStep::NotCounted => format!("noted, no step: not an error that climbs ({last})"),
            LadderStep::Probed => format!("noted, no step: our own probing ({last})"),
            LadderStep::Paused { pause, source } => self.climbed(pause, source, "paused for"),
            LadderStep::DisabledByErrors { pause, source } => self.climbed(
                pause,
                source,
                "disabled until a person enables it, and paused for",
            ),
            LadderStep::DisabledByQuota => {
                format!("disabled until a person enables it: the quota is used up ({last})")
            }
        }
    }

    fn climbed(&self, pause: Duration, source: Source, what: &str) -> String {
        let count = ordinal(self.ladder.consecutive_errors());
        let last = self.ladder.last_error().unwrap_or("no error");
        let told = match source {
            Source::Assumed => String::new(),
            source => format!(", as the server asks (`{source}`)"),
        };
        format!(
            "{what} {}{told}: {count} error in a row ({last})",
            Rounded(pause)
        )
    }

    /// The state of the endpoint.
    fn state(&self, now: Timestamp) -> String {
        if let Some(why) = self.ladder.describe(now) {
            return why;
        }
        match self.ladder.consecutive_errors() {
            0 => "free: no error since the last success".to_owned(),
            count => format!(
                "recovering: one request at a time until one succeeds, the next error is the {}",
                ordinal(count + 1)
            ),
        }
    }

    fn write(&self, at: At<'_>, sentence: String, out: &mut Vec<u8>) {
        let (ladder, now) = (&self.ladder, at.time);
        Object::answering(Some(at), out)
            .switch("enabled", ladder.is_enabled())
            .switch("paused", ladder.is_paused(now))
            .time("paused_until", ladder.paused_until())
            .number("remaining_s", Some(whole_seconds(ladder.remaining(now))))
            .number("consecutive_errors", Some(ladder.consecutive_errors()))
            .text("last_error", ladder.last_error())
            .explained(self.explain.then_some(sentence))
            .end();
    }
}

impl Replay for ProtectionReplay {
    fn line(&mut self, line: &str, out: &mut Vec<u8>) -> Result<(), Problem> {
        let event = Event::read(line)?;
        let at = event.required_at()?;
        let protection_event = event.protection_event()?;
        let sentence = match protection_event {
            ProtectionEvent::Start(number) => {
                self.timeline.advance(at)?;
                self.start(number)?
            }
            ProtectionEvent::Finish(number) => {
                let (ending, words, now) = (event.finish_result()?, event.words()?, event.now()?);
                let text = words.as_deref().unwrap_or_default();
                let ended = match &ending {
                    FinishResult::Success => EndpointResult::success(),
                    FinishResult::Failed(failure) => EndpointResult::failure(*failure, text),
                    FinishResult::Response(status, answered) => {
                        let response = answered.response();
                        let body = match response.body {
                            [] => text.as_bytes(),
                            body => body,
                        };
                        EndpointResult::read(
                            &self.settings,
                            *status,
                            response.headers,
                            body,
                            text,
                            now,
                        )
                    }
                };
                self.timeline.advance(at)?;
                self.finish(number, &ended.with_strategy(Strategy::Adaptive), at.time)?
            }
            ProtectionEvent::Enable => {
                self.timeline.advance(at)?;
                self.ladder.enable();
                "enabled by a person: all error state is cleared".to_owned()
            }
            ProtectionEvent::Ask => {
                let now = self.timeline.advance(at)?;
                self.state(now)
            }
        };
        self.write(at, sentence, out);
        Ok(())
    }
}

fn ordinal(number: u32) -> String {
    const WORDS: [&str; 10] = [
        "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
        "tenth",
    ];
    let index = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
    match index.and_then(|index| WORDS.get(index)) {
        Some(&word) => word.to_owned(),
        None => format!("{number}th"),
    }
}

fn already_started(number: u64) -> Problem {
    Problem::new(
        format!("`start` is `{number}`, which is under way already, expected another number"),
        ATTEMPTS,
    )
}

fn not_in_flight(number: u64) -> Problem {
    Problem::new(
        format!(
            "`finish` is `{number}`, which has not started or is finished already, \
             expected one that is under way"
        ),
        ATTEMPTS,
    )
}

const ATTEMPTS: &str = "every attempt has a number, is started once and finished once";
