//! The log: one event, one line on stderr, for people or as JSON.
//!
//! Events are `tracing` events, and every one is written by a method of [`Log`]: its name, level,
//! fields and sentence are in one place, and a value that may hold a secret has to arrive as a type
//! of [`redact`](crate::redact). Lines are made by a layer of `tracing-subscriber`; an exporter is
//! another layer in [`Log::new`].
//!
//! A log has a dispatcher of its own and makes it current only while it writes an event. To make it
//! the default of every thread instead would be less work for an event, but events are rare, every
//! thread that ever reports one would have to do it, and several servers in one process, as in
//! tests, could not share a thread. An event whose level is off costs one comparison.
//!
//! Writing does not block the caller: a line goes to a thread that writes. If the sink is too slow,
//! [`Log::MAX_QUEUED`] lines wait and further ones are dropped and counted; when there is room
//! again, a `lines_dropped` event reports their number. A sink that fails, such as a closed pipe,
//! is ignored.

use std::fmt;
use std::io::Write;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tidegate::Clock;
pub use tracing::Level;
use tracing::{Dispatch, dispatcher};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};

mod event;
mod line;
mod writer;

pub use event::{EVENTS, ItemId, RequestEnd, Retry};

use line::LineLayer;
pub(crate) use line::rfc3339;
pub(crate) use writer::Writer;

/// Writes events to a sink. Cheap to clone; clones are the same log.
///
/// ```
/// use app::log::{Format, Level, Log};
/// use tidegate::Clock;
///
/// let log = Log::new(Box::new(std::io::sink()), Format::Json, Level::INFO, &Clock::system());
/// log.stopped();
/// log.flush();
/// ```
#[derive(Clone)]
pub struct Log(Option<Arc<Shared>>);

struct Shared {
    dispatch: Dispatch,
    max_level: LevelFilter,
    clock: Clock,
    writer: Writer,
}

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Time, level, name and a sentence.
    Human {
        /// Whether the level has a colour.
        has_colour: bool,
    },
    /// A JSON object for each line.
    Json,
}

/// Which events are written: all up to a level, or by name as `RUST_LOG` does it.
///
/// ```
/// use app::log::{Filter, Level};
///
/// let _by_level = Filter::from(Level::WARN);
/// let _by_name: Filter = "info,endpoint=off,request=debug".parse().unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Filter(Targets);

impl From<Level> for Filter {
    fn from(level: Level) -> Self {
        Self(Targets::new().with_default(level))
    }
}

impl FromStr for Filter {
    type Err = String;

    /// Reads `LEVEL`, `EVENT=LEVEL` and `EVENT` (at any level), separated by commas. `EVENT` is the name of an event or how
    /// several begin, `LEVEL` is `off`, `error`, `warn`, `info`, `debug` or `trace`; the longest
    /// name that fits counts.
    fn from_str(text: &str) -> Result<Self, String> {
        // An empty part would switch everything on.
        let has_empty = text.split(',').any(|part| part.trim().is_empty());
        let targets = text.parse().ok().filter(|_| !has_empty);
        let Some(targets): Option<Targets> = targets else {
            let levels = "off, error, warn, info, debug or trace";
            return Err(format!(
                "`{text}`, expected LEVEL or EVENT=LEVEL, separated by commas, with a level of {levels}"
            ));
        };
        let is_unknown = |name: &&str| !EVENTS.iter().any(|event| event.starts_with(name));
        match targets.iter().map(|(name, _)| name).find(is_unknown) {
            Some(name) => Err(format!("no event is called or begins with `{name}`")),
            None => Ok(Self(targets)),
        }
    }
}

/// Where lines for people go, and which.
pub struct Logs {
    /// Where they are written.
    pub sink: Box<dyn Write + Send>,
    /// For people or for programs.
    pub format: Format,
    /// Which events are written.
    pub filter: Filter,
    /// Where the access log is written that has no file.
    pub access: Box<dyn Write + Send>,
}

impl Logs {
    /// Nowhere.
    pub fn silent() -> Self {
        Self {
            sink: Box::new(std::io::sink()),
            format: Format::Json,
            filter: Level::ERROR.into(),
            access: Box::new(std::io::sink()),
        }
    }
}

impl fmt::Debug for Logs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logs")
            .field("format", &self.format)
            .field("filter", &self.filter)
            .finish_non_exhaustive()
    }
}

impl Log {
    /// How many lines wait for a slow sink before further ones are dropped.
    pub const MAX_QUEUED: usize = 1024;

    /// How long [`Log::flush`] waits for a sink that takes nothing.
    pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

    /// Writes the events that `filter` lets pass to `sink`, by a thread that ends after the last
    /// clone is dropped. Instants in events are of `clock`.
    pub fn new(
        sink: Box<dyn Write + Send>,
        format: Format,
        filter: impl Into<Filter>,
        clock: &Clock,
    ) -> Self {
        let Filter(targets) = filter.into();
        let levels = targets.iter().map(|(_, level)| level);
        let max_level = levels.chain(targets.default_level()).max();
        let gap_clock = clock.clone();
        let writer = Writer::start("tidegate-log", sink, Self::MAX_QUEUED, move |count| {
            Some(line::gap(count, format, &gap_clock))
        });
        let layer = LineLayer::new(format, clock, &writer);
        let lines = tracing_subscriber::registry().with(layer.with_filter(targets));
        Self(Some(Arc::new(Shared {
            dispatch: Dispatch::new(lines),
            max_level: max_level.unwrap_or(LevelFilter::OFF),
            clock: clock.clone(),
            writer,
        })))
    }

    /// Writes nothing.
    pub const fn silent() -> Self {
        Self(None)
    }

    /// Whether some event of this level would be written: to skip the work of preparing one.
    #[inline]
    pub fn has(&self, level: Level) -> bool {
        let shared = self.0.as_ref();
        shared.is_some_and(|shared| level <= shared.max_level)
    }

    /// Waits until all lines so far have reached the sink, at most [`Log::FLUSH_TIMEOUT`]. Returns
    /// `false` if that was not enough.
    pub fn flush(&self) -> bool {
        let shared = self.0.as_ref();
        shared.is_none_or(|shared| shared.writer.flush(Self::FLUSH_TIMEOUT))
    }

    /// How many lines were dropped because the sink was too slow.
    pub fn dropped(&self) -> u64 {
        let shared = self.0.as_ref();
        shared.map_or(0, |shared| shared.writer.dropped())
    }

    /// Runs `write` with this log's dispatcher, if the level is on.
    fn emit(&self, level: Level, write: impl FnOnce()) {
        if let Some(shared) = &self.0
            && level <= shared.max_level
        {
            dispatcher::with_default(&shared.dispatch, write);
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.0.as_ref().map(|shared| shared.max_level);
        f.debug_tuple("Log").field(&level).finish()
    }
}

#[cfg(test)]
mod tests;
