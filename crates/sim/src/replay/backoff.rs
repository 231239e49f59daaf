//! `backoff`: one item over all its attempts: whether and when it is resent.
//!
//! The file is one item without a method, so it is safe to resend, and without time bounds.
//! `attempt` is the number of the send that an event is about: it determines the next delay and
//! whether an attempt is left. If it is missing, the item counts itself. Events after the end are
//! still judged, so that one file can be a table of attempts.
//!
//! A refresh of the credential is assumed to succeed: the next event is the response to the resend.

use std::collections::BTreeMap;
use std::iter;
use std::time::Duration;

use policy::backoff::{BackoffOptions, BackoffSettings};
use policy::classify::Classification;
use policy::duration::Exact;
use policy::item::{DelaySource, Item, ItemKind, Step, TerminalReason};
use policy::jitter::{Jitter, RetryAfterJitter};
use policy::preset::Preset;
use policy::random::Random;
use policy::time::Timestamp;

use super::at::Timeline;
use super::event::Event;
use super::explain;
use super::object::Object;
use super::problem::Problem;
use super::response::{Attempt, millis};
use super::{Replay, ReplayOptions, SettingProblem, built};

/// Builds the settings from a preset, the section with its name, and the options on top of both. A
/// section with another name is applied to the preset `standard`. Reports all problems together.
pub(super) fn settings<'s>(
    sections: &BTreeMap<String, BackoffOptions>,
    given: impl IntoIterator<Item = (&'s str, &'s str)>,
    preset: Option<&str>,
) -> Result<BackoffSettings, Vec<SettingProblem>> {
    let name = preset.unwrap_or(Preset::Standard.as_str());
    let section = sections.get(name);
    let (preset, unknown) = match (name.parse::<Preset>(), section) {
        (Ok(preset), _) => (preset, None),
        (Err(_), Some(_)) => (Preset::Standard, None),
        (Err(unknown), None) => (Preset::Standard, Some(SettingProblem::Preset(unknown))),
    };
    let options = section.cloned().unwrap_or_default();
    let build = |options: BackoffOptions| options.build_over(preset.settings());
    match (unknown, built(options, given, build)) {
        (None, built) => built,
        (Some(unknown), Ok(_)) => Err(vec![unknown]),
        (Some(unknown), Err(problems)) => Err(iter::once(unknown).chain(problems).collect()),
    }
}

/// Removes all randomness from the settings.
fn without_jitter(settings: BackoffSettings) -> BackoffSettings {
    let options = BackoffOptions {
        jitter: Some(Jitter::None),
        retry_after_jitter: Some(RetryAfterJitter::UpTo(Duration::ZERO)),
        ..BackoffOptions::default()
    };
    options
        .build_over(settings)
        .expect("settings without jitter are consistent")
}

#[derive(Debug)]
pub(super) struct BackoffReplay {
    settings: BackoffSettings,
    random: Random,
    item: Item,
    timeline: Timeline,
    explain: bool,
}

impl BackoffReplay {
    pub(super) fn new(settings: BackoffSettings, options: &ReplayOptions) -> Self {
        Self {
            settings: if options.jitter {
                settings
            } else {
                without_jitter(settings)
            },
            random: Random::from_seed(options.seed),
            item: Item::new(ItemKind::of("GET"), Timestamp::ZERO),
            timeline: Timeline::default(),
            explain: options.explain,
        }
    }

    fn bounds(&self, source: DelaySource, wait: Option<Duration>) -> (Duration, Duration) {
        match (source, wait) {
            (DelaySource::RetryAfter, Some(wait)) => self.settings.directed_bounds(wait),
            (DelaySource::Backoff, _) => self.settings.bounds(self.item.attempts()),
            _ => (Duration::ZERO, Duration::ZERO),
        }
    }

    /// `wait` is the wait that the server named.
    fn explain_retry(
        &self,
        judgement: &Classification,
        source: DelaySource,
        delay: Duration,
        wait: Option<Duration>,
    ) -> String {
        let judged = explain::judged(judgement);
        let delay = Exact(Duration::from_millis(
            u64::try_from(millis(delay)).unwrap_or(u64::MAX),
        ));
        let failed = || {
            let (sent, most) = (self.item.attempts(), self.settings.max_attempts());
            format!("attempt {sent} of {most} failed")
        };
        let why = match source {
            // Only a wait above zero does not count as an attempt.
            DelaySource::RetryAfter if wait == Some(Duration::ZERO) => {
                format!("as the server asks, {}", failed())
            }
            DelaySource::RetryAfter => "as the server asks, which uses no attempt up".to_owned(),
            DelaySource::Refresh => "the credential is refreshed, which uses none up".to_owned(),
            DelaySource::Backoff
            | DelaySource::Gate
            | DelaySource::Failover
            | DelaySource::Resolution => failed(),
        };
        format!("{judged}; sent again after {delay}: {why}")
    }
}

impl Replay for BackoffReplay {
    fn line(&mut self, line: &str, out: &mut Vec<u8>) -> Result<(), Problem> {
        let event = Event::read(line)?;
        let attempt = Attempt::read(&event)?;
        let number = event.attempt()?;
        let at = event.next_at(&mut self.timeline)?;
        let now = at.map_or(Timestamp::ZERO, |at| at.time);

        if let Some(number) = number {
            self.item.set_attempts(number - 1);
        }
        let judgement = attempt.judgement;
        let verdict = judgement.verdict;
        let outcome = attempt.outcome(Duration::ZERO);
        let (settings, random) = (&self.settings, &mut self.random);
        let mut step = self.item.after(settings, &outcome, verdict, now, random);
        if step == Step::Refresh {
            step = self.item.refreshed(true, now);
        }

        let object = Object::answering(at, out);
        let Step::SendAt {
            delay,
            source,
            reason,
            ..
        } = step
        else {
            let reason = step.terminal_reason().map(TerminalReason::as_str);
            let sentence = self.explain.then(|| explain_end(&judgement, reason));
            write_end(object, reason, sentence);
            return Ok(());
        };
        let (least, most) = self.bounds(source, outcome.hint.wait);
        object
            .number("retry", Some(true))
            .number("delay_ms", Some(millis(delay)))
            .number("min_ms", Some(millis(least)))
            .number("max_ms", Some(millis(most)))
            .text("source", Some(source.as_str()))
            .text("reason", Some(reason.as_str()))
            .explained(
                self.explain
                    .then(|| self.explain_retry(&judgement, source, delay, outcome.hint.wait)),
            )
            .end();
        Ok(())
    }
}

fn explain_end(judgement: &Classification, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("{}; it ends here: {reason}", explain::judged(judgement)),
        None => format!("{}; it is done", explain::judged(judgement)),
    }
}

fn write_end(object: Object<'_>, reason: Option<&str>, sentence: Option<String>) {
    object
        .number("retry", Some(false))
        .number("delay_ms", None::<u128>)
        .number("min_ms", None::<u128>)
        .number("max_ms", None::<u128>)
        .text("source", None)
        .text("reason", reason)
        .explained(sentence)
        .end();
}
