//! What is recorded of every request of the data plane when it has ended: a line of the access log,
//! and spans for a collector. Operations and fetches have spans too.
//!
//! Both are off by default, and then a request pays for one load of a flag. When one is on, the
//! gateway notes what is needed when a request begins, and hands it over when the body of the
//! response has ended, so that bytes and durations are those of the whole response. Handing over
//! never waits: both have bounded queues, and what finds no room is dropped and counted.

mod span_queue;
mod trace_context;
mod work;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::{Method, Version};
use policy::outcome::{UpstreamResponse, Verdict};
use tidegate::call::{CallDecision, Trail};
use tidegate::{Clock, Timestamp};

use crate::access_log::{AccessFormat, AccessLog, SharedSink};
use crate::log::Log;
use crate::metrics::RequestOutcome;
use crate::settings;

pub(crate) use span_queue::{Finished, Signal, SpanQueue};
pub use trace_context::TraceContext;
pub(crate) use trace_context::{TRACEPARENT, TraceParent};
pub(crate) use work::{AttemptSummary, FinishedAttempt, FinishedWork, StartTime};

/// A request that has ended, up to the body of its response.
#[derive(Clone, Debug)]
pub struct FinishedRequest {
    /// When it arrived.
    pub started: Timestamp,
    /// When the body of its response had ended.
    pub ended: Timestamp,
    /// Its client, by the name in the settings.
    pub client: Option<Box<str>>,
    /// `None` if its bytes could not be read.
    pub method: Option<Method>,
    /// The version of HTTP that its client used.
    pub version: Version,
    /// Its path, redacted.
    pub path: Box<str>,
    /// Its pool, or what metrics say for none.
    pub route: Arc<str>,
    /// The endpoint that it was sent to last.
    pub endpoint: Option<Arc<str>>,
    /// The status of the response; 499 if the client disconnected before it.
    pub status: u16,
    /// Bytes of the response's body that were handed to the client's connection.
    pub bytes: u64,
    /// The body of its response broke off.
    pub is_truncated: bool,
    /// How often it was sent.
    pub attempts: u32,
    /// How long it waited, in lines and between attempts.
    pub wait: Duration,
    /// How it ended.
    pub outcome: RequestOutcome,
    /// Its id.
    pub request_id: String,
    /// Its trace.
    pub trace_id: u128,
    /// Its place in the trace, if traces are exported.
    pub trace: Option<TraceContext>,
    /// What was decided about it.
    pub trail: Trail,
}

/// The reason of a response that began as a success.
const TRUNCATED: &str = "truncated";

impl FinishedRequest {
    /// Why it ended, in one word; `None` if it succeeded.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        match self.outcome {
            RequestOutcome::Success => self.is_truncated.then_some(TRUNCATED),
            outcome => Some(outcome.as_str()),
        }
    }

    /// From its arrival to the end of the response.
    pub(crate) fn duration(&self) -> Duration {
        self.ended.since(self.started)
    }

    /// How long its last attempt took, from sending to the head of the response or to its failure.
    pub(crate) fn latency(&self) -> Option<Duration> {
        let mut steps = self.trail.steps().iter().rev();
        steps.find_map(|step| match step.decision {
            CallDecision::Settled { latency, .. } => Some(latency),
            _ => None,
        })
    }

    /// How many of its attempts the server refused: throttled ones, and those answered 503.
    pub(crate) fn refused(&self) -> usize {
        let steps = self.trail.steps().iter();
        steps.filter(|step| is_refusal(&step.decision)).count()
    }
}

fn is_refusal(decision: &CallDecision) -> bool {
    let CallDecision::Settled {
        response, verdict, ..
    } = decision
    else {
        return false;
    };
    *verdict == Some(Verdict::Throttled) || *response == UpstreamResponse::Status(503)
}

/// What records requests that have ended: the access log and the exporter of spans.
pub struct Observers {
    is_on: AtomicBool,
    clock: Clock,
    log: Log,
    /// Where the access log goes without a file.
    stdout: Mutex<Option<SharedSink>>,
    access_log: ArcSwapOption<AccessLog>,
    /// Lines dropped by access logs that were replaced.
    dropped_before: AtomicU64,
    spans: OnceLock<Arc<SpanQueue>>,
}

/// The file of the access log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot open the access log `{}`: {error}\nhint: `server.access_log_file` names a file in a folder that exists and \
     that this user may write to", path.display()
)]
pub struct AccessLogError {
    path: PathBuf,
    error: io::Error,
}

impl AccessLogError {
    /// Which file, and why, in one line.
    pub(crate) fn reason(&self) -> String {
        format!("`{}`: {}", self.path.display(), self.error)
    }
}

impl Observers {
    /// Records nothing yet. Problems are logged in `log`.
    pub(crate) fn new(clock: Clock, log: Log) -> Self {
        Self {
            is_on: AtomicBool::new(false),
            clock,
            log,
            stdout: Mutex::default(),
            access_log: ArcSwapOption::empty(),
            dropped_before: AtomicU64::new(0),
            spans: OnceLock::new(),
        }
    }

    /// Whether anything is recorded.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Sets where the access log goes without a file.
    pub fn set_stdout(&self, sink: Box<dyn Write + Send>) {
        *self.lock_stdout() = Some(SharedSink::new(sink));
    }

    /// Writes the access log as `server` says from now on. A file is opened anew, so that it can be
    /// rotated; lines of requests that have ended still go to the old one.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened; then nothing changes.
    pub fn reload(&self, server: &settings::Server) -> Result<(), AccessLogError> {
        let log = match AccessFormat::parse(&server.access_log) {
            None => None,
            Some(format) => {
                let sink = self.sink(server.access_log_file.as_deref())?;
                Some(Arc::new(AccessLog::start(
                    format,
                    sink,
                    &self.log,
                    &self.clock,
                )))
            }
        };
        if let Some(replaced) = self.access_log.swap(log) {
            self.dropped_before
                .fetch_add(replaced.dropped(), Ordering::Relaxed);
        }
        self.update();
        Ok(())
    }

    /// Hands spans to `queue` from now on; only the first call counts.
    pub(crate) fn export_spans(&self, queue: Arc<SpanQueue>) {
        _ = self.spans.set(queue);
        self.update();
    }

    /// The queue of spans, if they are exported.
    pub(crate) fn spans(&self) -> Option<&Arc<SpanQueue>> {
        self.spans.get()
    }

    /// The clock of the times in what is recorded.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Records a request. Never waits.
    pub(crate) fn finish(&self, request: FinishedRequest) {
        if let Some(log) = &*self.access_log.load() {
            log.write(&request);
        }
        if let (Some(spans), Some(trace)) = (self.spans(), request.trace)
            && trace.is_sampled
        {
            spans.push(Finished::Request(Box::new(request)));
        }
    }

    /// Records an attempt of an operation or of a fetch. Never waits.
    pub(crate) fn finish_attempt(&self, attempt: FinishedAttempt) {
        if let Some(spans) = self.spans().filter(|_| attempt.trace.is_sampled) {
            spans.push(Finished::Attempt(attempt));
        }
    }

    /// Records an operation or a URL that has ended. Never waits.
    pub(crate) fn finish_work(&self, work: FinishedWork) {
        if let Some(spans) = self.spans().filter(|_| work.trace.is_sampled) {
            spans.push(Finished::Work(work));
        }
    }

    /// Waits until all lines so far have reached the file, for a bounded time.
    pub fn flush(&self) {
        if let Some(log) = &*self.access_log.load() {
            log.flush();
        }
    }

    /// How many lines of the access log were dropped.
    pub(crate) fn access_lines_dropped(&self) -> u64 {
        let log = self.access_log.load();
        let dropped = log.as_ref().map_or(0, |log| log.dropped());
        dropped.saturating_add(self.dropped_before.load(Ordering::Relaxed))
    }

    fn sink(&self, file: Option<&Path>) -> Result<Box<dyn Write + Send>, AccessLogError> {
        let Some(path) = file else {
            let stdout = self.lock_stdout().clone();
            return Ok(match stdout {
                Some(sink) => Box::new(sink),
                None => Box::new(io::sink()),
            });
        };
        match crate::access_log::open(path) {
            Ok(file) => Ok(Box::new(file)),
            Err(error) => Err(AccessLogError {
                path: path.to_owned(),
                error,
            }),
        }
    }

    fn update(&self) {
        let is_on = self.access_log.load().is_some() || self.spans().is_some();
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    fn lock_stdout(&self) -> std::sync::MutexGuard<'_, Option<SharedSink>> {
        self.stdout.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Observers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observers")
            .field("is_on", &self.is_on())
            .finish_non_exhaustive()
    }
}
