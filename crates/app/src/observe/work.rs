//! What is recorded of work that no client waits for: operations, URLs that are fetched, and their attempts.
//!
//! Such work may last for days, be claimed by several processes and survive a restart, so that there is
//! no trail with all of it. Each attempt is recorded when its result is known, and the work itself when
//! it ends. The id of its span is computed from that of the work, so that attempts of all processes name
//! the same one.

use std::time::Duration;

use policy::item::{DelaySource, ResendReason, Step};
use policy::outcome::{Outcome, UpstreamResponse, Verdict};
use policy::time::{Timestamp, WallTime};

use super::TraceContext;

/// An attempt of an operation or of a fetch, whose result is known.
#[derive(Clone, Debug)]
pub(crate) struct FinishedAttempt {
    pub(crate) trace: TraceContext,
    /// Counted from 1.
    pub(crate) number: u32,
    pub(crate) method: String,
    /// The gate that admitted it.
    pub(crate) key: String,
    /// When the head of its response came, or it failed.
    pub(crate) ended: Timestamp,
    pub(crate) latency: Duration,
    pub(crate) response: UpstreamResponse,
    pub(crate) verdict: Option<Verdict>,
    /// How long it waited before, since it was due.
    pub(crate) waited: Duration,
    /// The attempt that follows.
    pub(crate) resend: Option<Resend>,
}

/// What is decided about a further attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resend {
    /// After this time.
    pub(crate) delay: Duration,
    pub(crate) source: DelaySource,
    pub(crate) reason: ResendReason,
}

/// An operation or a URL that has ended.
#[derive(Clone, Debug)]
pub(crate) struct FinishedWork {
    pub(crate) trace: TraceContext,
    /// What it is, in one or two words.
    pub(crate) name: String,
    pub(crate) started: StartTime,
    pub(crate) ended: Timestamp,
    pub(crate) texts: Vec<(&'static str, String)>,
    pub(crate) numbers: Vec<(&'static str, u64)>,
    /// Why it failed, in one word.
    pub(crate) error: Option<&'static str>,
}

/// When work began.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StartTime {
    /// In this process.
    Clock(Timestamp),
    /// Perhaps in another, or before a restart.
    Wall(WallTime),
}

/// What an attempt and its result were.
pub(crate) struct AttemptSummary<'a> {
    pub(crate) number: u32,
    pub(crate) method: &'a str,
    pub(crate) key: &'a str,
    pub(crate) ended: Timestamp,
    pub(crate) outcome: &'a Outcome,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) waited: Duration,
}

impl FinishedAttempt {
    /// An attempt of the work with this place in its trace, and what follows it.
    pub(crate) fn new(trace: TraceContext, attempt: &AttemptSummary<'_>, step: Step) -> Self {
        Self {
            trace,
            number: attempt.number,
            method: attempt.method.to_owned(),
            key: attempt.key.to_owned(),
            ended: attempt.ended,
            latency: attempt.outcome.latency,
            response: attempt.outcome.response,
            verdict: attempt.verdict,
            waited: attempt.waited,
            resend: Resend::of(step),
        }
    }
}

impl Resend {
    fn of(step: Step) -> Option<Self> {
        match step {
            Step::SendAt {
                delay,
                source,
                reason,
                ..
            } => Some(Self {
                delay,
                source,
                reason,
            }),
            Step::Done | Step::Refresh | Step::Conflict | Step::Failed(_) => None,
        }
    }
}
