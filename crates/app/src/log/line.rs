//! From an event to its line.
//!
//! Keys, names of endpoints and messages of servers come from outside. Whatever an event holds, its
//! line is escaped here as a whole: nothing in it can end the line, begin another, or make a
//! terminal or an editor hide a part of it. No text takes more than [`MAX_TEXT`] characters.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use policy::time::WallTime;
use serde_json::Value;
use tidegate::Clock;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::Format;
use super::writer::{Queue, Writer};

/// Makes a line of every event.
pub(super) struct LineLayer {
    format: Format,
    clock: Clock,
    queue: Arc<Queue>,
}

impl LineLayer {
    pub(super) fn new(format: Format, clock: &Clock, writer: &Writer) -> Self {
        Self {
            format,
            clock: clock.clone(),
            queue: writer.queue(),
        }
    }
}

impl<S: Subscriber> Layer<S> for LineLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let line = fields.line(self.format, &self.clock, *metadata.level(), metadata.name());
        self.queue.push(line);
    }
}

/// What an event holds.
#[derive(Default)]
struct Fields {
    values: Vec<(&'static str, Value)>,
    message: String,
}

impl Fields {
    /// The line of an event, with its end.
    fn line(self, format: Format, clock: &Clock, level: Level, event: &str) -> String {
        let time = rfc3339(clock.wall());
        match format {
            Format::Human { has_colour } => {
                let time = &time[DATE_LENGTH + 1..];
                let (begin, end) = match has_colour {
                    true => (colour(level), RESET),
                    false => ("", ""),
                };
                let message = escape(&self.message, |c, out| {
                    write!(out, "{}", c.escape_default())
                });
                // The longest names fit into the column, so that sentences are aligned.
                format!("{time} {begin}{level:<5}{end} {event:<17} {message}\n")
            }
            Format::Json => {
                let level = level.as_str().to_ascii_lowercase();
                let head = [("ts", time), ("level", level), ("event", event.to_owned())];
                let head = head.map(|(name, value)| (name, value.into()));
                let all = head.into_iter().chain(self.values);
                let all = all.chain([("message", self.message.into())]);
                let all: Vec<String> = all
                    .map(|(name, value)| format!("\"{name}\":{value}"))
                    .collect();
                // What JSON leaves as it is can only be inside of a string.
                let object = escape(&all.join(","), |c, out| {
                    let mut units = [0; 2];
                    let mut units = c.encode_utf16(&mut units).iter();
                    units.try_for_each(|unit| write!(out, "\\u{unit:04x}"))
                });
                format!("{{{object}}}\n")
            }
        }
    }

    fn push(&mut self, field: &Field, value: impl Into<Value>) {
        self.values.push((field.name(), value.into()));
    }
}

impl Visit for Fields {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, bounded(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = bounded(&format!("{value:?}"));
        match field.name() {
            "message" => self.message = text,
            _ => self.push(field, text),
        }
    }
}

/// The line in place of `count` others that were dropped.
pub(super) fn gap(count: u64, format: Format, clock: &Clock) -> String {
    let message = format!("{count} lines are missing here: the log could not be written as fast");
    let fields = Fields {
        values: vec![("count", count.into())],
        message,
    };
    fields.line(format, clock, Level::WARN, "lines_dropped")
}

/// `2026-11-15T06:00:00.123Z`: UTC, so that lines of several machines sort. A time before 1970 or
/// after 9999 is shown as the nearest of those that can be written.
pub(crate) fn rfc3339(time: WallTime) -> String {
    let millis = u64::try_from(time.as_unix_millis()).unwrap_or(0);
    let time = UNIX_EPOCH + Duration::from_millis(millis.min(LAST_MILLIS));
    humantime::format_rfc3339_millis(time).to_string()
}

/// The length of `2026-11-15`.
pub(super) const DATE_LENGTH: usize = 10;

/// 9999-12-31T23:59:59.999Z.
const LAST_MILLIS: u64 = 253_402_300_799_999;

/// Enough for a full description of a problem; a full queue stays at some megabytes.
const MAX_TEXT: usize = 2000;

fn bounded(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Replaces control characters and those that separate lines, turn the direction of writing or are
/// invisible.
fn escape(text: &str, mut write: impl FnMut(char, &mut String) -> fmt::Result) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || crate::redact::is_invisible(c) {
            // Writing into a string cannot fail.
            _ = write(c, &mut out);
        } else {
            out.push(c);
        }
    }
    out
}

const fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\u{1b}[31m",
        Level::WARN => "\u{1b}[33m",
        Level::INFO => "\u{1b}[32m",
        Level::DEBUG | Level::TRACE => "\u{1b}[2m",
    }
}

const RESET: &str = "\u{1b}[0m";
