//! Spans of a fetch: one for each URL, over its attempts and redirects, and one for each attempt below it.
//!
//! Every URL is a trace of its own: one of all URLs of a crawl would be too large to look at.

use std::time::Duration;

use policy::item::Step;
use policy::outcome::{Outcome, Verdict};
use policy::time::Timestamp;

use super::engine::{Engine, whole_millis};
use super::item::FetchItem;
use super::record::UrlError;
use crate::observe::{AttemptSummary, FinishedAttempt, FinishedWork, StartTime, TraceContext};
use crate::redact;

/// When an attempt of an item was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentAttempt {
    /// How long the item had waited for it.
    pub(super) waited: Duration,
    pub(super) at: Timestamp,
}

impl Engine {
    /// The place of a new item in a trace, if traces are exported.
    pub(super) fn trace_context(&self) -> Option<TraceContext> {
        let sample = self.core.observers().spans()?.sample;
        let random = &mut *self.random.borrow_mut();
        let high = u128::from(random.next_u64());
        let id = high << 64 | u128::from(random.next_u64().max(1));
        Some(TraceContext::new(id, None, sample))
    }

    /// Records the last attempt of an item, and what follows it.
    pub(super) fn record_attempt(
        &self,
        item: &FetchItem,
        key: &str,
        sent: SentAttempt,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        step: Step,
    ) {
        let Some(trace) = &item.trace else {
            return;
        };
        let attempt = AttemptSummary {
            number: item.sent,
            method: "GET",
            key,
            ended: sent.at + outcome.latency,
            outcome,
            verdict,
            waited: sent.waited,
        };
        let observers = self.core.observers();
        observers.finish_attempt(FinishedAttempt::new(**trace, &attempt, step));
    }

    /// Records a URL that has ended. `error`: why it has no result.
    pub(super) fn record_url(&self, item: &FetchItem, error: Option<UrlError>) {
        let Some(trace) = &item.trace else {
            return;
        };
        let mut numbers = vec![
            ("tidegate.attempts", u64::from(item.sent)),
            ("tidegate.wait_ms", whole_millis(item.waited)),
        ];
        let status = item.status.map(u64::from);
        numbers.extend(status.map(|status| ("http.response.status_code", status)));
        self.core.observers().finish_work(FinishedWork {
            trace: **trace,
            name: format!("fetch {}", item.url.host_str().unwrap_or_default()),
            started: StartTime::Clock(item.began),
            ended: self.core.clock().now(),
            texts: vec![("url.path", redact::Url::new(item.url.path()).to_string())],
            numbers,
            error: error.map(UrlError::as_str),
        });
    }
}
