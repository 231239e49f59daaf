//! Answers in a given order: what the n-th request gets.
//!
//! After the last answer the last one is given again and again, so that `503*3,200` is a server
//! that recovers; with `repeat` at the end, all of them begin anew.

use std::time::Duration;

use policy::{duration, setting};

/// Answers, one per request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    runs: Vec<Run>,
    /// Does it begin anew after the last?
    repeats: bool,
}

/// The same answer, so many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    cue: Cue,
    times: u64,
}

/// What one request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cue {
    /// An answer.
    Answer {
        status: u16,
        /// Seconds of `Retry-After`.
        retry_after: Option<u64>,
        /// How long it takes; `None`: as long as usual.
        latency: Option<Duration>,
    },
    /// The connection is reset without an answer.
    Reset,
    /// Nothing ever comes.
    Silent,
    /// The answer breaks off in its middle.
    Cut,
}

impl Script {
    /// Reads answers with commas between them: `200,200@2500ms,429:3,503*2,reset,200`.
    ///
    /// # Errors
    ///
    /// What was expected instead of the first part that is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let repeats = parts.last() == Some(&"repeat");
        if repeats {
            parts.pop();
        }
        if parts.is_empty() {
            return Err(format!("{AN_ANSWER} before `repeat`"));
        }
        let runs = parts.into_iter().map(run);
        Ok(Self {
            runs: runs.collect::<Result<_, _>>()?,
            repeats,
        })
    }

    /// The cue of the request with this number, counted from 0.
    pub(super) fn cue(&self, number: u64) -> Cue {
        let length: u64 = self.runs.iter().map(|run| run.times).sum();
        let mut left = if self.repeats {
            number % length
        } else {
            number
        };
        for run in &self.runs {
            if left < run.times {
                return run.cue;
            }
            left -= run.times;
        }
        self.runs.last().map_or(Cue::Reset, |run| run.cue)
    }
}

const AN_ANSWER: &str =
    "an answer such as `200`, `200@2500ms`, `429:3`, `503*5`, `reset`, `silent` or `cut`";

fn run(part: &str) -> Result<Run, String> {
    let (cue, times) = match part.split_once('*') {
        Some((cue, times)) => (
            cue,
            setting::whole(times, 1, 1_000_000)
                .map_err(|expected| wrong(part, format!("{expected} after `*`, as in `503*5`")))?,
        ),
        None => (part, 1),
    };
    Ok(Run {
        cue: self::cue(cue).map_err(|expected| wrong(part, expected))?,
        times,
    })
}

fn wrong(part: &str, expected: impl std::fmt::Display) -> String {
    format!("{expected} instead of `{part}`")
}

fn cue(text: &str) -> Result<Cue, String> {
    match text {
        "reset" => return Ok(Cue::Reset),
        "silent" | "timeout" => return Ok(Cue::Silent),
        "cut" => return Ok(Cue::Cut),
        _ => {}
    }
    let (rest, latency) = match text.split_once('@') {
        Some((rest, latency)) => {
            let latency = duration::parse(latency)
                .map_err(|expected| format!("{expected} after `@`, as in `200@2500ms`"))?;
            (rest, Some(latency))
        }
        None => (text, None),
    };
    let (status, retry_after) = match rest.split_once(':') {
        Some((status, seconds)) => {
            let seconds = setting::whole(seconds, 0, 86_400 * 365)
                .map_err(|_| "whole seconds of Retry-After after `:`, as in `429:3`".to_owned())?;
            (status, Some(seconds))
        }
        None => (rest, None),
    };
    Ok(Cue::Answer {
        // What is below 200 is no answer but a word before it.
        status: setting::whole(status, 200, 599).map_err(|_| AN_ANSWER.to_owned())?,
        retry_after,
        latency,
    })
}
