//! Scripts: the response to the n-th request.
//!
//! The last response repeats, so that `503*3,200` is a server that recovers; with `repeat` at the
//! end, the whole script starts over.

use std::time::Duration;

use policy::{duration, setting};

/// Responses in order, one per request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    parts: Vec<Part>,
    /// Whether it starts over after the last.
    repeats: bool,
}

/// One step, repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    step: ScriptStep,
    times: u64,
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScriptStep {
    /// A response.
    Respond {
        status: u16,
        /// `Retry-After` in seconds.
        retry_after: Option<u64>,
        /// `None`: the latency of the upstream.
        latency: Option<Duration>,
    },
    /// The connection is reset without a response.
    Reset,
    /// No response ever.
    Silent,
    /// The body of the response is cut off in the middle.
    Cut,
}

impl Script {
    /// Parses responses separated by commas: `200,200@2500ms,429:3,503*2,reset,200`.
    ///
    /// # Errors
    ///
    /// What was expected instead of the first invalid part.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let repeats = parts.last() == Some(&"repeat");
        if repeats {
            parts.pop();
        }
        if parts.is_empty() {
            return Err(format!("{AN_ANSWER} before `repeat`"));
        }
        let parts = parts.into_iter().map(part);
        Ok(Self {
            parts: parts.collect::<Result<_, _>>()?,
            repeats,
        })
    }

    /// The step for the request with this number, counted from 0.
    pub(super) fn step(&self, number: u64) -> ScriptStep {
        let length: u64 = self.parts.iter().map(|part| part.times).sum();
        let mut left = if self.repeats {
            number % length
        } else {
            number
        };
        for part in &self.parts {
            if left < part.times {
                return part.step;
            }
            left -= part.times;
        }
        self.parts
            .last()
            .map_or(ScriptStep::Reset, |part| part.step)
    }
}

const AN_ANSWER: &str =
    "an answer such as `200`, `200@2500ms`, `429:3`, `503*5`, `reset`, `silent` or `cut`";

fn part(text: &str) -> Result<Part, String> {
    let (step, times) = match text.split_once('*') {
        Some((step, times)) => (
            step,
            setting::whole(times, 1, 1_000_000).map_err(|expected| {
                invalid(text, format!("{expected} after `*`, as in `503*5`"))
            })?,
        ),
        None => (text, 1),
    };
    Ok(Part {
        step: self::step(step).map_err(|expected| invalid(text, expected))?,
        times,
    })
}

fn invalid(text: &str, expected: impl std::fmt::Display) -> String {
    format!("{expected}, not `{text}`")
}

fn step(text: &str) -> Result<ScriptStep, String> {
    match text {
        "reset" => return Ok(ScriptStep::Reset),
        "silent" | "timeout" => return Ok(ScriptStep::Silent),
        "cut" => return Ok(ScriptStep::Cut),
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
    Ok(ScriptStep::Respond {
        // A status below 200 is an interim response.
        status: setting::whole(status, 200, 599).map_err(|_| AN_ANSWER.to_owned())?,
        retry_after,
        latency,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn respond(status: u16, retry_after: Option<u64>, latency_ms: Option<u64>) -> ScriptStep {
        ScriptStep::Respond {
            status,
            retry_after,
            latency: latency_ms.map(Duration::from_millis),
        }
    }

    fn steps(text: &str, count: u64) -> Vec<ScriptStep> {
        let script = Script::parse(text).unwrap();
        (0..count).map(|number| script.step(number)).collect()
    }

    #[test]
    fn steps_are_in_order_and_the_last_repeats() {
        let ok = respond(200, None, None);
        assert_eq!(
            steps("200, 200@2500ms,429:3,503:1@5ms", 6),
            [
                ok,
                respond(200, None, Some(2500)),
                respond(429, Some(3), None),
                respond(503, Some(1), Some(5)),
                respond(503, Some(1), Some(5)),
                respond(503, Some(1), Some(5)),
            ]
        );
        assert_eq!(
            steps("reset,silent,timeout,cut,200", 5),
            [
                ScriptStep::Reset,
                ScriptStep::Silent,
                ScriptStep::Silent,
                ScriptStep::Cut,
                ok
            ]
        );
    }

    #[test]
    fn parts_have_counts_and_scripts_may_start_over() {
        let (bad, ok) = (respond(503, None, None), respond(200, None, None));
        assert_eq!(steps("503*2,200", 5), [bad, bad, ok, ok, ok]);
        assert_eq!(
            steps("503*2,200,repeat", 7),
            [bad, bad, ok, bad, bad, ok, bad]
        );
        assert_eq!(steps("200*1000000", 1), [ok]);
    }

    #[test]
    fn invalid_parts_are_reported() {
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
        fn any_text_is_parsed_or_rejected(
            text in "[0-9a-z ,@:*é]{0,24}",
            number: u64,
        ) {
            if let Ok(script) = Script::parse(&text) {
                script.step(number);
            }
        }
    }
}
