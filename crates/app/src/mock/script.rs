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
    format!("{expected}, not `{part}`")
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(status: u16, retry_after: Option<u64>, latency_ms: Option<u64>) -> Cue {
        Cue::Answer {
            status,
            retry_after,
            latency: latency_ms.map(Duration::from_millis),
        }
    }

    fn cues(text: &str, count: u64) -> Vec<Cue> {
        let script = Script::parse(text).unwrap();
        (0..count).map(|number| script.cue(number)).collect()
    }

    #[test]
    fn answers_come_in_their_order_and_the_last_for_ever() {
        let ok = answer(200, None, None);
        assert_eq!(
            cues("200, 200@2500ms,429:3,503:1@5ms", 6),
            [
                ok,
                answer(200, None, Some(2500)),
                answer(429, Some(3), None),
                answer(503, Some(1), Some(5)),
                answer(503, Some(1), Some(5)),
                answer(503, Some(1), Some(5)),
            ]
        );
        assert_eq!(
            cues("reset,silent,timeout,cut,200", 5),
            [Cue::Reset, Cue::Silent, Cue::Silent, Cue::Cut, ok]
        );
    }

    #[test]
    fn answers_can_be_counted_and_repeated() {
        let (bad, ok) = (answer(503, None, None), answer(200, None, None));
        assert_eq!(cues("503*2,200", 5), [bad, bad, ok, ok, ok]);
        assert_eq!(
            cues("503*2,200,repeat", 7),
            [bad, bad, ok, bad, bad, ok, bad]
        );
        assert_eq!(cues("200*1000000", 1), [ok]);
    }

    #[test]
    fn what_is_no_answer_is_named() {
        for text in [
            "",
            "200,",
            "repeat",
            "ok",
            "199",
            "600",
            "200@5",
            "429:x",
            "429:-1",
            "503*0",
            "503*x",
            "200@1s:3",
            "repeat,200",
        ] {
            let expected = Script::parse(text).expect_err(text);
            assert!(expected.contains('`'), "{text}: {expected}");
        }
        assert_eq!(
            Script::parse("200,429:soon").unwrap_err(),
            "whole seconds of Retry-After after `:`, as in `429:3`, not `429:soon`"
        );
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_or_refused(
            text in "[0-9a-z ,@:*é]{0,24}",
            number: u64,
        ) {
            if let Ok(script) = Script::parse(&text) {
                script.cue(number);
            }
        }
    }
}
