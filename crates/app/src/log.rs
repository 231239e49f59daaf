//! Lines for people and programs who look on: one event, one line.
//!
//! Everything that is ever logged is a variant of [`Line`], with its level, its name and its
//! fields, so that nobody writes a line of their own and nothing secret slips in by a format
//! string. Where lines go is for whoever makes the [`Log`] to say.
//!
//! Logging never keeps anyone waiting: a line is put together at once and handed to a thread that
//! writes. If the sink cannot keep up, [`Log::MOST_WAITING`] lines wait and further ones are
//! dropped and counted; as soon as there is room again, a line says how many are missing. A sink
//! that fails, as a pipe does that nobody reads, is ignored: a log is no reason to stop.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate::Clock;

mod calendar;
mod escape;
mod fields;
mod line;
mod render;
mod writer;

pub use line::{Line, Whose};

use render::Style;
use writer::Writer;

/// Where lines go. Cheap to clone; clones are the same log.
///
/// ```
/// use app::log::{Format, Level, Line, Log};
/// use tidegate::Clock;
///
/// let log = Log::new(Box::new(std::io::sink()), Format::Json, Level::Info, &Clock::system());
/// log.write(&Line::BreakerClosed { key: "api.example.com" });
/// log.flush();
/// ```
#[derive(Clone)]
pub struct Log(Option<Arc<Shared>>);

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Time, level, name and a sentence. The default.
    #[default]
    Human,
    /// A JSON object for each line.
    Json,
}

/// How much a line matters, the most important first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something will not be done unless a person interferes.
    Error,
    /// Something is not as usual, and is being dealt with.
    Warn,
    /// Worth knowing. The default.
    #[default]
    Info,
    /// What also happens while all is normal.
    Debug,
}

impl Level {
    /// Every level.
    pub const ALL: [Self; 4] = [Self::Error, Self::Warn, Self::Info, Self::Debug];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

struct Shared {
    level: Level,
    style: Arc<Style>,
    writer: Writer,
}

impl Log {
    /// So many lines wait for a slow sink before further ones are dropped.
    pub const MOST_WAITING: usize = 1024;

    /// [`Log::flush`] waits so long for a sink that takes nothing.
    pub const FLUSH_FOR: Duration = Duration::from_secs(2);

    /// Writes lines of `level` and those that matter more to `sink`, by a thread that ends with
    /// the last clone. `clock` is the one that the instants in lines are of.
    pub fn new(sink: Box<dyn Write + Send>, format: Format, level: Level, clock: &Clock) -> Self {
        let style = Arc::new(Style {
            format,
            colour: AtomicBool::new(false),
            clock: clock.clone(),
        });
        let writer = Writer::start(sink, Arc::clone(&style));
        Self(Some(Arc::new(Shared {
            level,
            style,
            writer,
        })))
    }

    /// Writes nothing.
    pub const fn silent() -> Self {
        Self(None)
    }

    /// The same log, its levels in colour or not; they are not unless told. JSON never is.
    #[must_use]
    pub fn with_colour(self, colour: bool) -> Self {
        if let Some(shared) = &self.0 {
            shared.style.colour.store(colour, Ordering::Relaxed);
        }
        self
    }

    /// Would a line of this level be written? For callers to whom making one is work.
    pub fn has(&self, level: Level) -> bool {
        let shared = self.0.as_ref();
        shared.is_some_and(|shared| level <= shared.level)
    }

    /// Writes a line, if its level is wanted. Does not wait for the sink.
    pub fn write(&self, line: &Line<'_>) {
        if let Some(shared) = &self.0
            && line.level() <= shared.level
        {
            shared.writer.push(shared.style.render(line));
        }
    }

    /// Waits until what was written so far has reached the sink, at most [`Log::FLUSH_FOR`].
    /// `false` if that was not enough.
    pub fn flush(&self) -> bool {
        let shared = self.0.as_ref();
        shared.is_none_or(|shared| shared.writer.flush(Self::FLUSH_FOR))
    }

    /// How many lines were dropped because the sink could not keep up.
    pub fn dropped(&self) -> u64 {
        let shared = self.0.as_ref();
        shared.map_or(0, |shared| shared.writer.dropped())
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(shared) => write!(f, "Log({:?}, {:?})", shared.style.format, shared.level),
            None => f.write_str("Log(silent)"),
        }
    }
}

#[cfg(test)]
mod tests;
