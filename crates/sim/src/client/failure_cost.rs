//! Counts how often a request is sent after its first failure until it is accepted.
//!
//! Most controllers return failed requests to the backlog and do not choose which request leaves
//! next. For this count, requests that have failed leave first, in the order in which they
//! returned; the choice affects nothing else.

use std::collections::{BTreeMap, VecDeque};

use super::controller::{AttemptId, FollowUp, InFlight, ResendId};
use crate::measure::{AttemptClass, FailureCost};

/// The requests of a client that are in flight or have failed at least once.
#[derive(Debug, Default)]
pub(super) struct FailureCounter {
    in_flight: InFlight<FailureCost>,
    /// In the backlog.
    requeued: VecDeque<FailureCost>,
    /// To be resent by the controller.
    resends: BTreeMap<ResendId, FailureCost>,
    total: FailureCost,
}

impl FailureCounter {
    /// A request from the backlog was sent.
    pub(super) fn sent(&mut self, id: AttemptId) {
        let cost = self.requeued.pop_front().unwrap_or_default();
        self.count_send(id, cost);
    }

    /// The controller resent a request.
    pub(super) fn resent(&mut self, id: AttemptId, resend: ResendId) {
        let cost = self.resends.remove(&resend).unwrap_or_default();
        self.count_send(id, cost);
    }

    fn count_send(&mut self, id: AttemptId, mut cost: FailureCost) {
        cost.sends += u64::from(cost.failures > 0);
        self.in_flight.insert(id, cost);
    }

    /// An attempt ended.
    pub(super) fn ended(&mut self, id: AttemptId, class: AttemptClass, follow_up: FollowUp) {
        let mut cost = self.in_flight.remove(id).unwrap_or_default();
        match class {
            AttemptClass::Accepted => {
                self.total += cost;
                cost = FailureCost::default();
            }
            AttemptClass::Failed => cost.failures += 1,
            AttemptClass::Refused => {}
        }
        if cost.failures == 0 {
            return;
        }
        match follow_up {
            FollowUp::Done => {}
            FollowUp::Requeue => self.requeued.push_back(cost),
            FollowUp::Resend(resend) => {
                self.resends.insert(resend, cost);
            }
        }
    }

    /// Over all requests that were accepted.
    pub(super) fn total(&self) -> FailureCost {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AttemptClass::{Accepted, Failed, Refused};

    #[test]
    fn counts_every_send_between_first_failure_and_acceptance() {
        let mut counter = FailureCounter::default();
        let id = AttemptId(0);
        for class in [Refused, Failed, Refused, Failed] {
            counter.sent(id);
            counter.ended(id, class, FollowUp::Requeue);
        }
        assert_eq!(counter.total(), FailureCost::default(), "not yet accepted");
        counter.sent(id);
        counter.ended(id, Accepted, FollowUp::Done);
        let total = FailureCost {
            failures: 2,
            sends: 3,
        };
        assert_eq!(counter.total(), total);
        counter.sent(id);
        counter.ended(id, Accepted, FollowUp::Done);
        assert_eq!(counter.total(), total, "this request never failed");
    }

    #[test]
    fn finds_resent_requests_by_their_id() {
        let mut counter = FailureCounter::default();
        let [first, second] = [AttemptId(0), AttemptId(1)];
        counter.sent(first);
        counter.sent(second);
        counter.ended(first, Refused, FollowUp::Resend(ResendId(7)));
        counter.ended(second, Failed, FollowUp::Resend(ResendId(8)));
        for resend in [7, 8] {
            counter.resent(first, ResendId(resend));
            counter.ended(first, Accepted, FollowUp::Done);
        }
        let FailureCost { failures, sends } = counter.total();
        assert_eq!((failures, sends), (1, 1));
    }
}
