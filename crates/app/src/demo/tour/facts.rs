//! What has really happened in a round.

use std::time::Duration;

use policy::operation::OperationState;

use crate::demo::plan;

/// What has happened in the present round. Times are those since the start of the demo.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::demo) struct Facts {
    /// The number of the round, counted from 0.
    pub(in crate::demo) round: u32,
    /// When it began.
    pub(in crate::demo) began: Duration,
    /// The crawl, or why it could not be started.
    pub(in crate::demo) job: Option<Result<JobFacts, String>>,
    /// When the upstream `steady` first accepted nine tenths of its capacity.
    pub(in crate::demo) learned_at: Option<Duration>,
    pub(in crate::demo) orders: Vec<OperationFacts>,
    /// When `polite` was first held by a Retry-After.
    pub(in crate::demo) held_at: Option<Duration>,
    /// Its last hold.
    pub(in crate::demo) hold: Option<HoldFacts>,
    /// The change of the profile.
    pub(in crate::demo) profile: Option<OperationFacts>,
    /// The breaker of the endpoint with the outage.
    pub(in crate::demo) breaker: Option<BreakerFacts>,
    /// Requests of the pool's clients that ended without success so far.
    pub(in crate::demo) pool_failed: u64,
    /// The endpoint that answers 503.
    pub(in crate::demo) endpoint: EndpointFacts,
}

/// The job of a round, as the demo's own status checks see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::demo) struct JobFacts {
    pub(in crate::demo) id: String,
    pub(in crate::demo) started_at: Duration,
    pub(in crate::demo) checks: StatusChecks,
    /// In per cent, as last seen.
    pub(in crate::demo) progress: Option<f64>,
    /// Its stage, as last seen.
    pub(in crate::demo) stage: Option<String>,
    /// Its end, as last seen: `done`, `error` or `cancelled`.
    pub(in crate::demo) end: Option<String>,
}

/// The demo's own status checks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::demo) struct StatusChecks {
    /// How many were answered.
    pub(in crate::demo) answered: u32,
    /// When the first one was refused.
    pub(in crate::demo) refused_at: Option<Duration>,
    /// The wait after each refused one.
    pub(in crate::demo) waits: Vec<Duration>,
    /// When one was answered again.
    pub(in crate::demo) recovered_at: Option<Duration>,
    /// When the next one is due.
    pub(in crate::demo) next_at: Option<Duration>,
}

/// An operation of the script.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::demo) struct OperationFacts {
    pub(in crate::demo) id: String,
    pub(in crate::demo) state: OperationState,
    /// How often it was sent.
    pub(in crate::demo) sent: u32,
    /// When it reached its state.
    pub(in crate::demo) since: Duration,
}

/// A hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::demo) struct HoldFacts {
    pub(in crate::demo) at: Duration,
    pub(in crate::demo) until: Duration,
    /// The wait that the server named, in whole seconds as Retry-After has it.
    pub(in crate::demo) named: Duration,
    /// The most requests that waited meanwhile.
    pub(in crate::demo) waiting: u32,
    /// Requests that its gate admitted meanwhile.
    pub(in crate::demo) admitted: u32,
}

/// A breaker that opened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::demo) struct BreakerFacts {
    pub(in crate::demo) opened_at: Duration,
    pub(in crate::demo) closed_at: Option<Duration>,
    /// [`Facts::pool_failed`] when it opened, and when it closed.
    pub(in crate::demo) failed_before: u64,
    pub(in crate::demo) failed_after: u64,
}

/// An endpoint that is paused, disabled and enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::demo) struct EndpointFacts {
    /// When it was first paused.
    pub(in crate::demo) paused_at: Option<Duration>,
    /// The end of its last pause.
    pub(in crate::demo) paused_until: Duration,
    /// Errors in a row.
    pub(in crate::demo) errors: u32,
    /// When it was disabled by errors.
    pub(in crate::demo) disabled_at: Option<Duration>,
    /// When it was enabled after that.
    pub(in crate::demo) enabled_at: Option<Duration>,
    /// Whether the script did that.
    pub(in crate::demo) is_enabled_by_script: bool,
}

impl Facts {
    /// The facts at the start of the next round: what still waits for a person stays.
    pub(in crate::demo) fn next_round(&mut self, now: Duration) {
        let last = std::mem::take(self);
        *self = Self {
            round: last.round + 1,
            began: now,
            learned_at: last.learned_at,
            orders: last.orders.into_iter().filter(is_failed).collect(),
            profile: last
                .profile
                .filter(|profile| profile.state == OperationState::Conflict),
            pool_failed: last.pool_failed,
            ..Self::default()
        };
    }

    /// The job, if it was started.
    pub(in crate::demo) fn job(&self) -> Option<&JobFacts> {
        self.job.as_ref()?.as_ref().ok()
    }

    pub(in crate::demo) fn job_mut(&mut self) -> Option<&mut JobFacts> {
        self.job.as_mut()?.as_mut().ok()
    }

    /// Operations whose state may still change.
    pub(in crate::demo) fn open_operations(&mut self) -> impl Iterator<Item = &mut OperationFacts> {
        let operations = self.orders.iter_mut().chain(&mut self.profile);
        operations.filter(|operation| operation.is_open())
    }

    pub(super) fn hold(&mut self, at: Duration, until: Duration) {
        self.held_at.get_or_insert(at);
        match &mut self.hold {
            // A hold that is extended is the same hold.
            Some(hold) if at < hold.until => hold.until = hold.until.max(until),
            hold => {
                let named = (until.saturating_sub(at)).as_secs_f64().round();
                *hold = Some(HoldFacts {
                    at,
                    until,
                    named: Duration::from_secs_f64(named),
                    waiting: 0,
                    admitted: 0,
                });
            }
        }
    }

    /// A request to `polite` was admitted.
    pub(super) fn admitted(&mut self, at: Duration) {
        let hold = self.hold.as_mut();
        if let Some(hold) = hold.filter(|hold| hold.at < at && at < hold.until) {
            hold.admitted += 1;
        }
    }

    pub(super) fn breaker_opened(&mut self, at: Duration) {
        let failed = self.pool_failed;
        self.breaker.get_or_insert(BreakerFacts {
            opened_at: at,
            closed_at: None,
            failed_before: failed,
            failed_after: failed,
        });
    }

    pub(super) fn breaker_closed(&mut self, at: Duration) {
        if let Some(breaker) = &mut self.breaker
            && breaker.closed_at.is_none()
        {
            breaker.closed_at = Some(at);
            breaker.failed_after = self.pool_failed;
        }
    }

    pub(super) fn endpoint_paused(&mut self, at: Duration, until: Duration, errors: u32) {
        // Before and afterwards it is paused by the limit that it has.
        let is_failing = at >= self.began + plan::FAILING.0;
        if !is_failing || self.endpoint.disabled_at.is_some() {
            return;
        }
        let endpoint = &mut self.endpoint;
        endpoint.paused_at.get_or_insert(at);
        endpoint.paused_until = until;
        endpoint.errors = errors;
    }

    pub(super) fn endpoint_disabled(&mut self, at: Duration, errors: u32) {
        self.endpoint.disabled_at.get_or_insert(at);
        self.endpoint.errors = errors;
    }

    pub(super) fn endpoint_enabled(&mut self, at: Duration) {
        if self.endpoint.disabled_at.is_some() {
            self.endpoint.enabled_at.get_or_insert(at);
        }
    }
}

fn is_failed(operation: &OperationFacts) -> bool {
    matches!(operation.state, OperationState::Failed(_))
}

impl OperationFacts {
    fn is_open(&self) -> bool {
        !matches!(
            self.state,
            OperationState::Completed | OperationState::Cancelled
        )
    }
}

impl StatusChecks {
    /// Counts a check.
    pub(in crate::demo) fn count(
        &mut self,
        is_refused: bool,
        wait: Option<Duration>,
        now: Duration,
    ) {
        self.next_at = wait.map(|wait| now + wait);
        if is_refused {
            self.refused_at.get_or_insert(now);
            self.waits.extend(wait);
        } else {
            self.answered += 1;
            if self.refused_at.is_some() {
                self.recovered_at.get_or_insert(now);
            }
        }
    }

    /// Whether checks are refused now.
    pub(in crate::demo) fn is_slowed(&self) -> bool {
        self.refused_at.is_some() && self.recovered_at.is_none()
    }
}
