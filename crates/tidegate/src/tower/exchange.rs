//! What an answer means at the gate that its request went through.

use std::time::Duration;

use http::Response;
use policy::classify::Judgement;
use policy::outcome::Outcome;

use crate::http::Head;
use crate::limiter::Limiter;

/// The outcome of an attempt that was answered with `response` just now, and the judgement on it by
/// the rules of its host. Rules about bodies never hold, for the body is not looked at.
pub(super) fn judged<R>(
    limiter: &Limiter,
    key: &str,
    response: &Response<R>,
    latency: Duration,
) -> (Outcome, Judgement) {
    let head = Head::of(response);
    let outcome = head.outcome(latency, limiter.clock().wall());
    let rules = limiter.rules(key);
    let judgement = head.judge(&rules, &outcome.hint);
    (outcome, judgement)
}
