//! How a run is shown: a picture on a terminal, lines elsewhere, JSON if that is wanted.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use app::run::{FailReason, FailedItem, ItemResult, RunEvent, RunSummary, StopLevel};
use policy::duration::Rounded;
use policy::failure_queue::FailureQueueSettings;
use serde_json::Value;

use super::draw::View;
use super::record;
use crate::commands::Failure;
use crate::output::{Live, Output, escape, escape_json, unless_closed};

pub(super) struct Screen<'o> {
    output: &'o Output,
    data: Box<dyn Write + 'o>,
    /// On a terminal.
    live: Option<(Live, View)>,
    settings: FailureQueueSettings,
    /// Why stdout could not be written. The run goes on, and reports it at its end.
    error: Option<io::Error>,
}

impl<'o> Screen<'o> {
    pub(super) fn new(output: &'o Output, settings: FailureQueueSettings) -> Self {
        let live = output.live().filter(|_| !output.is_json());
        let view = View::new(settings.attempts(), settings.base(), Instant::now());
        Self {
            output,
            data: Box::new(output.data()),
            live: live.map(|live| (live, view)),
            settings,
            error: None,
        }
    }

    /// How often the picture is drawn, if there is one.
    pub(super) fn interval(&self) -> Option<Duration> {
        self.live.as_ref().map(|_| Duration::from_millis(250))
    }

    pub(super) fn draw(&mut self) {
        if let Some((live, view)) = &mut self.live {
            let frame = view.frame(live.canvas(), Instant::now());
            self.error = self.error.take().or_else(|| live.draw(&frame).err());
        }
    }

    pub(super) fn stopping(&mut self, level: StopLevel) {
        match &mut self.live {
            Some((_, view)) => {
                view.stop = level;
                self.draw();
            }
            None if level == StopLevel::Finish => self
                .output
                .notice("finishing what is in flight; a second signal quits at once"),
            None => {}
        }
    }

    pub(super) fn event(&mut self, event: &RunEvent<'_>) {
        if let Some((_, view)) = &mut self.live {
            view.event(event, Instant::now());
            return;
        }
        if self.output.is_json() {
            self.json(&record::event(event));
        } else if !self.output.is_quiet()
            && let Some(line) = line(event, &self.settings)
        {
            self.line(&line);
        }
        self.try_write(|data| data.flush());
    }

    /// Shows how it ended, in place of the picture.
    pub(super) fn close(mut self, summary: &mut RunSummary) -> Result<(), Failure> {
        if let Some((live, _)) = &mut self.live {
            self.error = self.error.take().or_else(|| live.draw("").err());
        }
        let is_shown = !self.output.is_quiet() || summary.failed > 0;
        if !self.output.is_json() && is_shown {
            self.line(&totals(summary));
        }
        while let Some(failed) = summary.next_failed() {
            match self.output.is_json() {
                true => self.json(&record::failed(&failed)),
                false => self.line(&failed_line(&failed)),
            }
        }
        if self.output.is_json() {
            self.json(&record::summary(summary));
        }
        self.try_write(|data| data.flush());
        self.error.map_or(Ok(()), unless_closed)
    }

    fn json(&mut self, record: &Value) {
        self.try_write(|data| {
            let text = record.to_string();
            writeln!(data, "{}", escape_json(&text))
        });
    }

    fn line(&mut self, line: &str) {
        self.try_write(|data| writeln!(data, "{}", escape(line)));
    }

    fn try_write(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        if self.error.is_none() {
            self.error = write(&mut self.data).err();
        }
    }
}

/// An event in one line; `None` if it is not shown.
fn line(event: &RunEvent<'_>, settings: &FailureQueueSettings) -> Option<String> {
    let attempts = settings.attempts();
    match event {
        RunEvent::Started { .. } => None,
        RunEvent::Ended {
            item,
            attempt,
            class,
            rule,
            text,
            elapsed,
            result,
            ..
        } => {
            let item = shortened(&item.text, MAX_ITEM);
            let by = rule.map_or(String::new(), |rule| format!(" by {rule}"));
            Some(match result {
                ItemResult::Done => format!("done {item} in {}", Rounded(*elapsed)),
                ItemResult::Retry => format!(
                    "retry {item}: {text} ({}{by}, attempt {attempt} of {attempts})",
                    class.as_str()
                ),
                ItemResult::Failed(reason) => format!(
                    "failed {item}: {text} ({}{by}, attempt {attempt} of {attempts})",
                    reason.as_str()
                ),
            })
        }
        RunEvent::Refused { item, why } => Some(format!(
            "failed {}: {why} (refused)",
            shortened(&item.text, MAX_ITEM)
        )),
        RunEvent::Waiting { wait, .. } if *wait < Duration::from_secs(1) => None,
        RunEvent::Waiting {
            wait,
            failures,
            site,
            ..
        } => Some(format!(
            "waiting {}{}: base {}, {}",
            Rounded(*wait),
            at(*site),
            Rounded(settings.base()),
            gap_reason(*failures)
        )),
        RunEvent::GaveUp { site } => {
            let after = settings.give_up_after().unwrap_or_default();
            let after = Rounded(after);
            Some(format!("gave up{}: no success for {after}", at(*site)))
        }
    }
}

pub(super) fn at(site: Option<&str>) -> String {
    site.map_or(String::new(), |site| format!(" for {site}"))
}

pub(super) fn gap_reason(failures: usize) -> String {
    match failures {
        0 => "no recent failure".to_owned(),
        1 => "1 recent failure".to_owned(),
        failures => format!("{failures} recent failures"),
    }
}

fn totals(summary: &RunSummary) -> String {
    let RunSummary {
        done,
        failed,
        elapsed,
        ..
    } = summary;
    let earlier = match summary.earlier {
        0 => String::new(),
        earlier => format!(", {earlier} of them earlier"),
    };
    let rest = match summary.is_interrupted {
        true => ", interrupted: the rest was not run",
        false => "",
    };
    let elapsed = Rounded(*elapsed);
    format!("{done} done, {failed} failed{earlier} in {elapsed}{rest}")
}

fn failed_line(failed: &FailedItem) -> String {
    let FailedItem {
        item,
        reason,
        attempts,
        rule,
        text,
    } = failed;
    let reason = match (reason, rule) {
        (FailReason::Rejected, Some(rule)) => format!("rejected by {rule}"),
        (FailReason::Exhausted, _) => format!("exhausted after {attempts} attempts"),
        (reason, _) => reason.as_str().to_owned(),
    };
    let separator = if text.is_empty() { "" } else { ": " };
    format!("  {}  {reason}{separator}{text}", shortened(item, MAX_ITEM))
}

/// Longer items are cut in lines for people.
const MAX_ITEM: usize = 300;

fn shortened(text: &str, max: usize) -> String {
    match text.chars().count() > max {
        true => text.chars().take(max - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}
