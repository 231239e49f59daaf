//! Hedging: a second attempt while the first has not been answered yet.
//!
//! A few responses of most servers are much slower than the others: a lost packet, a pause of a
//! garbage collector, a cold cache. A second request sent after the usual time is then answered
//! before the first, for a few percent more requests. The same second request is harmful where the
//! server is slow because it has too much to do. So it is an option of a call, and it needs all of
//! this:
//!
//! * **The request may run twice at once** ([`may_be_hedged`]): its method is safe or idempotent. An
//!   idempotency key is not enough, because servers answer a duplicate with 409 while the first
//!   request runs.
//! * **The server is well** ([`Gate::allows_hedge`](crate::gate::Gate::allows_hedge)): the breaker is
//!   Closed, no hold applies, the last attempt did not fail, the rate was not lowered last, and a
//!   permit is available at once without passing others in line.
//! * **It is paid for** ([`RetryBudget::withdraw_paid`](crate::budget::RetryBudget::withdraw_paid)):
//!   from what requests have added to the retry budget, not from its minimum. At most `ratio` of all
//!   requests are hedged, one in five by default, and fewer while there are retries.
//!
//! The first response that [ends the race](ends_race) is used, and the other attempt is dropped.
//! Together they count as one attempt against `max_attempts`.

use std::time::Duration;

use crate::item::{ItemKind, Safety};
use crate::outcome::Verdict;

/// When a second attempt is made if the first has not been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hedge {
    /// After this time.
    After(Duration),
    /// After the gate's 95th percentile of latency, so that at most about one request in twenty is
    /// sent twice; never before the gate has seen [`MIN_SAMPLES`] responses. The percentile is
    /// rounded up, by at most 68 %.
    AfterP95,
}

/// With fewer samples, the 95th percentile is just the slowest one.
pub const MIN_SAMPLES: u32 = 20;

/// Whether two attempts of such a request may run at once.
///
/// ```
/// use tidegate_policy::hedge::may_be_hedged;
/// use tidegate_policy::item::ItemKind;
///
/// assert!(may_be_hedged(&ItemKind::of("GET")));
/// assert!(!may_be_hedged(&ItemKind::of("POST")));
/// ```
pub fn may_be_hedged(kind: &ItemKind) -> bool {
    match kind.safety {
        Safety::Safe | Safety::Idempotent => true,
        Safety::Unsafe => false,
    }
}

/// Whether an outcome with this verdict is the result of both attempts. Otherwise the other attempt
/// may still succeed, so it is waited for.
pub fn ends_race(verdict: Option<Verdict>) -> bool {
    match verdict {
        None
        | Some(
            Verdict::Success
            | Verdict::Rejected
            | Verdict::Unauthorized
            | Verdict::Conflict
            | Verdict::QuotaExhausted,
        ) => true,
        Some(Verdict::Throttled | Verdict::Overloaded | Verdict::Unreachable) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_methods_decide_whether_a_request_may_be_hedged() {
        for method in ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"] {
            assert!(may_be_hedged(&ItemKind::of(method)), "{method}");
        }
        let with_key = ItemKind {
            has_idempotency_key: true,
            retry_unsafe: true,
            ..ItemKind::of("POST")
        };
        assert!(!may_be_hedged(&with_key));
    }

    #[test]
    fn failures_that_are_retried_do_not_end_the_race() {
        assert!(ends_race(None));
        for verdict in Verdict::ALL.iter().copied() {
            let is_retried = matches!(
                verdict,
                Verdict::Throttled | Verdict::Overloaded | Verdict::Unreachable
            );
            assert_eq!(ends_race(Some(verdict)), !is_retried, "{verdict:?}");
        }
    }
}
