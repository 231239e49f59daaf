//! Workers without a gate: each resends one request until it is done.
//!
//! A worker that waits before a resend is busy. So a client with many failing requests slows down
//! instead of sending ever more.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use policy::backoff::BackoffSettings;
use policy::item::{Item, ItemKind, Step};
use policy::random::Random;
use policy::time::Timestamp;

use super::controller::{
    Action, AttemptId, AttemptResult, Controller, FollowUp, InFlight, ResendId,
};

#[derive(Debug)]
pub(super) struct RetryController {
    settings: BackoffSettings,
    rule: RetryRule,
    workers: u32,
    busy: u32,
    in_flight: InFlight<RetriedRequest>,
    /// Resends by time, each with the index of its request in `requests`.
    waiting: BinaryHeap<Reverse<(Timestamp, usize)>>,
    requests: Vec<Option<RetriedRequest>>,
    /// Unused indexes of `requests`.
    free: Vec<usize>,
}

/// When and how often a request is resent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryRule {
    /// After every result that is not a success, without limit and ignoring hints.
    Naive,
    /// As `policy::item` decides.
    Item,
}

#[derive(Clone, Copy, Debug)]
enum RetriedRequest {
    Naive { attempts: u32 },
    Item(Item),
}

impl RetryController {
    pub(super) fn new(settings: BackoffSettings, rule: RetryRule, workers: u32) -> Self {
        Self {
            settings,
            rule,
            workers,
            busy: 0,
            in_flight: InFlight::new(),
            waiting: BinaryHeap::new(),
            requests: Vec::new(),
            free: Vec::new(),
        }
    }

    fn new_request(&self, now: Timestamp) -> RetriedRequest {
        match self.rule {
            RetryRule::Naive => RetriedRequest::Naive { attempts: 0 },
            RetryRule::Item => RetriedRequest::Item(Item::new(ItemKind::of("GET"), now)),
        }
    }

    /// When the request is resent; `None` if it is done.
    fn resend_at(
        &self,
        request: RetriedRequest,
        result: &AttemptResult,
        now: Timestamp,
        random: &mut Random,
    ) -> Option<(Timestamp, RetriedRequest)> {
        match request {
            RetriedRequest::Naive { .. } if result.is_accepted() => None,
            RetriedRequest::Naive { attempts } => {
                let attempts = attempts.saturating_add(1);
                let delay = self.settings.delay(attempts, random);
                Some((now + delay, RetriedRequest::Naive { attempts }))
            }
            RetriedRequest::Item(mut item) => {
                let AttemptResult { outcome, verdict } = result;
                match item.after(&self.settings, outcome, *verdict, now, random) {
                    Step::SendAt { at, .. } => Some((at, RetriedRequest::Item(item))),
                    Step::Done | Step::Refresh | Step::Conflict | Step::Failed(_) => None,
                }
            }
        }
    }

    fn schedule(&mut self, at: Timestamp, request: RetriedRequest) -> ResendId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() - 1
        });
        self.requests[index] = Some(request);
        self.waiting.push(Reverse((at, index)));
        ResendId(index)
    }

    fn take_due(&mut self, now: Timestamp) -> Option<(ResendId, RetriedRequest)> {
        let Reverse((at, index)) = *self.waiting.peek()?;
        if at > now {
            return None;
        }
        self.waiting.pop();
        self.free.push(index);
        let request = self.requests.get_mut(index)?.take()?;
        Some((ResendId(index), request))
    }
}

impl Controller for RetryController {
    fn next_action(
        &mut self,
        id: AttemptId,
        has_backlog: bool,
        now: Timestamp,
        _: &mut Random,
    ) -> Action {
        if let Some((resend, request)) = self.take_due(now) {
            self.in_flight.insert(id, request);
            return Action::Resend(resend);
        }
        if has_backlog && self.busy < self.workers {
            self.busy += 1;
            self.in_flight.insert(id, self.new_request(now));
            return Action::Send;
        }
        Action::Wait {
            until: self.waiting.peek().map(|Reverse((at, _))| *at),
        }
    }

    fn attempt_ended(
        &mut self,
        id: AttemptId,
        result: &AttemptResult,
        now: Timestamp,
        random: &mut Random,
    ) -> FollowUp {
        let request = self.in_flight.remove(id);
        match request.and_then(|request| self.resend_at(request, result, now, random)) {
            Some((at, request)) => FollowUp::Resend(self.schedule(at, request)),
            None => {
                self.busy = self.busy.saturating_sub(1);
                FollowUp::Done
            }
        }
    }
}
