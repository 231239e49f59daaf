//! From a line to its text.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use policy::duration::Rounded;
use policy::time::{Timestamp, WallTime};
use tidegate::Clock;

use super::calendar::{Rfc3339, TimeOfDay, Until};
use super::escape::Escaped;
use super::fields::Fields;
use super::line::{Line, Whose, Why};
use super::{Format, Level};

/// How lines look.
pub(super) struct Style {
    pub(super) format: Format,
    pub(super) colour: AtomicBool,
    pub(super) clock: Clock,
}

impl Style {
    /// The text of a line, with its end.
    pub(super) fn render(&self, line: &Line<'_>) -> String {
        let wall = self.clock.wall();
        let message = Message {
            line,
            clock: &self.clock,
            now: self.clock.now(),
            wall,
        };
        match self.format {
            Format::Human => self.human(&message),
            Format::Json => {
                let mut fields = Fields::new(&self.clock);
                fields.text("ts", Rfc3339(wall).to_string());
                fields.text("level", line.level().as_str());
                fields.text("event", line.event());
                fields.of(line);
                fields.text("message", message.to_string());
                fields.end()
            }
        }
    }

    fn human(&self, message: &Message<'_>) -> String {
        let (begin, end) = match self.colour.load(Ordering::Relaxed) {
            true => (colour(message.line.level()), RESET),
            false => ("", ""),
        };
        let time = TimeOfDay(message.wall);
        let level = message.line.level().as_str().to_ascii_uppercase();
        let event = message.line.event();
        // The longest names fit into the column, so that sentences begin below each other.
        format!("{time} {begin}{level:<5}{end} {event:<17} {message}\n")
    }
}

const fn colour(level: Level) -> &'static str {
    match level {
        Level::Error => "\u{1b}[31m",
        Level::Warn => "\u{1b}[33m",
        Level::Info => "\u{1b}[32m",
        Level::Debug => "\u{1b}[2m",
    }
}

const RESET: &str = "\u{1b}[0m";

/// What a line says to people.
struct Message<'a> {
    line: &'a Line<'a>,
    clock: &'a Clock,
    now: Timestamp,
    wall: WallTime,
}

impl Message<'_> {
    /// `until 06:00:20Z (20s)`.
    fn until(&self, f: &mut fmt::Formatter<'_>, at: Timestamp) -> fmt::Result {
        let until = Until {
            at: self.clock.wall_at(at),
            now: self.wall,
        };
        write!(f, "until {until} ({})", Rounded(at.since(self.now)))
    }
}

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.line {
            Line::RetryScheduled {
                whose,
                key,
                attempt,
                delay,
                reason,
                ..
            } => {
                let id = match whose {
                    Whose::Request(id) | Whose::Operation(id) => Escaped(id),
                };
                let (key, delay, reason) = (Escaped(key), In(delay), reason.as_str());
                write!(
                    f,
                    "{id} again {delay} at {key} after attempt {attempt}: {reason}"
                )
            }
            Line::OperationFailed {
                operation_id,
                key,
                reason,
                ..
            } => {
                let (id, key) = (Escaped(operation_id), Escaped(key));
                write!(f, "{id} at {key} will not be sent again: {reason}")
            }
            Line::Request {
                request_id,
                route,
                status,
                outcome,
                attempts,
                wait,
                latency,
                ..
            } => {
                let (id, route) = (Escaped(request_id), Escaped(route));
                let (wait, latency) = (wait.as_millis(), latency.as_millis());
                let outcome = outcome.as_str();
                write!(
                    f,
                    "{id} {route} {status} {outcome}, attempts {attempts}, waited {wait}ms, took {latency}ms"
                )
            }
            Line::HoldStarted { key, until, source } => {
                write!(f, "{} held ", Escaped(key))?;
                self.until(f, until)?;
                write!(f, " by {source}")
            }
            Line::BreakerOpened { key, until } => {
                write!(f, "{} lets nobody through ", Escaped(key))?;
                match until {
                    Some(until) => self.until(f, until),
                    None => f.write_str("until a person releases it"),
                }
            }
            Line::BreakerClosed { key } => write!(f, "{} works again", Escaped(key)),
            Line::EndpointPaused {
                pool,
                endpoint,
                until,
                errors,
                last_error,
            } => {
                write!(f, "{}/{} left alone ", Escaped(pool), Escaped(endpoint))?;
                self.until(f, until)?;
                write!(f, ", errors in a row: {errors}")?;
                last_error.map_or(Ok(()), |text| write!(f, ", the last: {text}"))
            }
            Line::EndpointDisabled {
                pool,
                endpoint,
                why,
                last_error,
            } => {
                let (pool, endpoint, why) = (Escaped(pool), Escaped(endpoint), Why(why));
                write!(f, "{pool}/{endpoint} switched off {why}")?;
                last_error.map_or(Ok(()), |text| write!(f, ", the last: {text}"))
            }
            Line::EndpointEnabled { pool, endpoint } => {
                write!(f, "{}/{} is used again", Escaped(pool), Escaped(endpoint))
            }
            Line::Refreshed {
                credential,
                succeeded,
            } => match succeeded {
                true => write!(f, "{} is new", Escaped(credential)),
                false => write!(f, "{} could not be refreshed", Escaped(credential)),
            },
            Line::Poll { key: _, notice } => write!(f, "{notice}"),
            Line::Listening { what, address } => write!(f, "{} on {address}", Escaped(what)),
            Line::Reloaded => f.write_str("the settings were read again"),
            Line::ReloadFailed { problem } => {
                let problem = Escaped(problem);
                write!(f, "the settings stay as they were: {problem}")
            }
            Line::Draining { in_flight } => {
                write!(f, "nothing new is taken, still under way: {in_flight}")
            }
            Line::Stopped => f.write_str("everything has stopped"),
            Line::StoreDegraded { problem } => {
                write!(f, "nothing can be written down: {problem}")
            }
            Line::StoreRecovered => f.write_str("everything is written down again"),
            Line::LinesDropped { count } => write!(f, "lines missing here: {count}"),
        }
    }
}

/// A delay that nobody notices reads as none: rounded up it would be a second.
struct In(Duration);

impl fmt::Display for In {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 < Duration::from_millis(1) {
            true => f.write_str("at once"),
            false => write!(f, "in {}", Rounded(self.0)),
        }
    }
}
