//! A client that polls jobs, one after the other, each until it ends.

use std::time::Duration;

use policy::outcome::UpstreamResponse;
use policy::poll::{JobStatus, Poll, PollSettings, ResponseKind, StatusResponse};
use policy::random::Random;
use policy::time::Timestamp;

use super::controller::{
    Action, AttemptId, AttemptResult, Controller, ControllerState, FollowUp, ResendId,
};

#[derive(Debug)]
pub(super) struct PollController {
    settings: PollSettings,
    /// How long a job takes; `None`: it never ends.
    job_length: Option<Duration>,
    current: Option<PolledJob>,
}

#[derive(Debug)]
struct PolledJob {
    poll: Poll,
    started: Timestamp,
    /// `None` while an attempt is in flight.
    next_at: Option<Timestamp>,
}

impl PollController {
    pub(super) fn new(settings: PollSettings, job_length: Option<Duration>) -> Self {
        Self {
            settings,
            job_length,
            current: None,
        }
    }
}

impl Controller for PollController {
    fn next_action(
        &mut self,
        _: AttemptId,
        has_backlog: bool,
        now: Timestamp,
        _: &mut Random,
    ) -> Action {
        match &mut self.current {
            None if has_backlog => {
                self.current = Some(PolledJob {
                    poll: Poll::new(now),
                    started: now,
                    next_at: None,
                });
                Action::Send
            }
            None => Action::Wait { until: None },
            Some(job) if job.next_at.is_some_and(|at| at <= now) => {
                job.next_at = None;
                Action::Resend(CURRENT_JOB)
            }
            Some(job) => Action::Wait { until: job.next_at },
        }
    }

    fn attempt_ended(
        &mut self,
        _: AttemptId,
        result: &AttemptResult,
        now: Timestamp,
        _: &mut Random,
    ) -> FollowUp {
        let Some(current) = &mut self.current else {
            return FollowUp::Done;
        };
        let kind = response_kind(result);
        let is_success = kind == ResponseKind::Success;
        let response = StatusResponse {
            kind,
            job: is_success.then(|| job_at(self.job_length, now.since(current.started))),
        };
        let next = current.poll.after(&self.settings, &response, now);
        current.next_at = next.wait.map(|wait| now + wait);
        if current.next_at.is_none() {
            self.current = None;
            return FollowUp::Done;
        }
        FollowUp::Resend(CURRENT_JOB)
    }

    fn state(&self, now: Timestamp) -> ControllerState {
        let slowed = self.current.as_ref().filter(|job| job.poll.banner());
        ControllerState {
            hold_until: slowed.and_then(|job| job.next_at.filter(|at| *at > now)),
            ..ControllerState::default()
        }
    }
}

/// There is only one job at a time.
const CURRENT_JOB: ResendId = ResendId(0);

fn response_kind(result: &AttemptResult) -> ResponseKind {
    let wait = result.outcome.hint.wait;
    match result.outcome.response {
        UpstreamResponse::Status(200..400) => ResponseKind::Success,
        UpstreamResponse::Status(404) => ResponseKind::NotFound,
        UpstreamResponse::Status(429) => ResponseKind::Throttled { wait },
        UpstreamResponse::Status(_) | UpstreamResponse::Failed { .. } => {
            ResponseKind::Failed { wait }
        }
    }
}

/// The job's state after `elapsed`. Its progress is linear.
fn job_at(length: Option<Duration>, elapsed: Duration) -> JobStatus {
    match length {
        Some(length) if elapsed >= length => JobStatus::Done,
        Some(length) => JobStatus::Running {
            progress: Some(100.0 * elapsed.as_secs_f64() / length.as_secs_f64()),
        },
        None => JobStatus::Running { progress: None },
    }
}
