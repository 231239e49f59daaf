//! Classifies responses by the settings of the gate.

use std::time::Duration;

use http::Response;
use policy::classify::Classification;
use policy::outcome::Outcome;

use crate::http::Head;
use crate::limiter::Limiter;

/// The outcome of an attempt whose response has just arrived, and its classification by the rules
/// of its host. Rules on bodies never match, because the body is not read.
pub(super) fn classified<R>(
    limiter: &Limiter,
    key: &str,
    response: &Response<R>,
    latency: Duration,
) -> (Outcome, Classification) {
    let head = Head::of(response);
    let outcome = head.outcome(latency, limiter.clock().wall());
    let rules = limiter.rules_if_any(key);
    let rules = rules.as_deref().unwrap_or_default();
    let classification = head.classify(rules, &outcome.hint);
    (outcome, classification)
}
