//! What a failure costs: how often the same thing is sent until it is accepted.
//!
//! Most controllers put back into the backlog what was not accepted, and do not care which of all
//! things leaves next. So it is said here, and changes nothing else: what has failed leaves before
//! what has not, in the order in which it came back.

use std::collections::{BTreeMap, VecDeque};

use super::controller::{FlightId, Kept, Outstanding};
use crate::measure::{AfterFailures, Class};

/// Everything of a client that has failed at least once, or is under way.
#[derive(Debug, Default)]
pub(super) struct Tries {
    under_way: Outstanding<Tried>,
    /// In the backlog.
    back: VecDeque<Tried>,
    /// Kept by the controller.
    kept: BTreeMap<Kept, Tried>,
    sum: AfterFailures,
}

/// How one thing has fared.
#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    failures: u64,
    /// Since the first failure.
    sends: u64,
}

impl Tries {
    /// Something from the backlog leaves.
    pub(super) fn sent_fresh(&mut self, id: FlightId) {
        let tried = self.back.pop_front().unwrap_or_default();
        self.sent(id, tried);
    }

    /// What was kept leaves again.
    pub(super) fn sent_again(&mut self, id: FlightId, kept: Kept) {
        let tried = self.kept.remove(&kept).unwrap_or_default();
        self.sent(id, tried);
    }

    fn sent(&mut self, id: FlightId, mut tried: Tried) {
        tried.sends += u64::from(tried.failures > 0);
        self.under_way.put(id, tried);
    }

    /// An attempt has ended, and this is what it was.
    pub(super) fn ended(&mut self, id: FlightId, class: Class) -> Ended<'_> {
        let mut tried = self.under_way.take(id).unwrap_or_default();
        match class {
            Class::Accepted => {
                self.sum.failures += tried.failures;
                self.sum.sends += tried.sends;
                tried = Tried::default();
            }
            Class::Failed => tried.failures += 1,
            Class::Refused => {}
        }
        Ended { tries: self, tried }
    }

    pub(super) fn sum(&self) -> AfterFailures {
        self.sum
    }
}

/// What has just ended, if it is to be sent once more.
#[derive(Debug)]
pub(super) struct Ended<'a> {
    tries: &'a mut Tries,
    tried: Tried,
}

impl Ended<'_> {
    pub(super) fn put_back(self) {
        if self.tried.failures > 0 {
            self.tries.back.push_back(self.tried);
        }
    }

    pub(super) fn keep(self, kept: Kept) {
        if self.tried.failures > 0 {
            self.tries.kept.insert(kept, self.tried);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_costs_every_send_until_the_thing_is_accepted() {
        let mut tries = Tries::default();
        let id = FlightId(0);
        for class in [Class::Refused, Class::Failed, Class::Refused, Class::Failed] {
            tries.sent_fresh(id);
            tries.ended(id, class).put_back();
        }
        assert_eq!(tries.sum(), AfterFailures::default(), "not accepted yet");
        tries.sent_fresh(id);
        tries.ended(id, Class::Accepted);
        let sum = AfterFailures {
            failures: 2,
            sends: 3,
        };
        assert_eq!(tries.sum(), sum);
        tries.sent_fresh(id);
        tries.ended(id, Class::Accepted);
        assert_eq!(tries.sum(), sum, "this one never failed");
    }

    #[test]
    fn what_is_kept_is_known_again_by_its_name() {
        let mut tries = Tries::default();
        let [first, second] = [FlightId(0), FlightId(1)];
        tries.sent_fresh(first);
        tries.sent_fresh(second);
        tries.ended(first, Class::Refused).keep(Kept(7));
        tries.ended(second, Class::Failed).keep(Kept(8));
        for kept in [7, 8] {
            tries.sent_again(first, Kept(kept));
            tries.ended(first, Class::Accepted);
        }
        let AfterFailures { failures, sends } = tries.sum();
        assert_eq!((failures, sends), (1, 1));
    }
}
