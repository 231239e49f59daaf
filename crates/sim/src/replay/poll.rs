//! `poll`: responses to status requests, and when to poll next.
//!
//! The first event is the first request; each event is the response at its time.

use policy::duration::Exact;
use policy::hint;
use policy::poll::{JobStatus, Poll, PollSettings, PollStep, ResponseKind, StatusResponse};

use super::Replay;
use super::at::Timeline;
use super::event::{Event, EventResult};
use super::object::Object;
use super::problem::Problem;
use super::response::millis;

#[derive(Debug)]
pub(super) struct PollReplay {
    settings: PollSettings,
    timeline: Timeline,
    /// `None` before the first request.
    poll: Option<Poll>,
    explain: bool,
}

impl PollReplay {
    pub(super) fn new(settings: PollSettings, explain: bool) -> Self {
        Self {
            settings,
            timeline: Timeline::default(),
            poll: None,
            explain,
        }
    }
}

impl Replay for PollReplay {
    fn line(&mut self, line: &str, out: &mut Vec<u8>) -> Result<(), Problem> {
        let event = Event::read(line)?;
        let at = event.required_at()?;
        let response = StatusResponse {
            kind: kind(&event)?,
            job: job(&event)?,
        };
        let now = self.timeline.advance(at)?;
        let poll = self.poll.get_or_insert_with(|| Poll::new(now));
        let next = poll.after(&self.settings, &response, now);
        Object::answering(Some(at), out)
            .text("state", Some(next.state.as_str()))
            .number("next_ms", next.wait.map(millis))
            .number("consecutive_429", Some(poll.consecutive_429()))
            .switch("banner", poll.banner())
            .explained(self.explain.then(|| explained(&next, poll)))
            .end();
        Ok(())
    }
}

fn kind(event: &Event<'_>) -> Result<ResponseKind, Problem> {
    let answered = match event.attempt_result()? {
        EventResult::Failed(_) => return Ok(ResponseKind::Failed { wait: None }),
        EventResult::Response(answered) => answered,
    };
    let response = answered.response();
    let wait = hint::read(&response, event.now()?).wait;
    Ok(match response.status {
        200..400 => ResponseKind::Success,
        404 => ResponseKind::NotFound,
        429 => ResponseKind::Throttled { wait },
        _ => ResponseKind::Failed { wait },
    })
}

/// The job's status in the event: any word that does not end it means that it is running.
fn job(event: &Event<'_>) -> Result<Option<JobStatus>, Problem> {
    let progress = event.progress()?;
    Ok(match (event.job()?.as_deref(), progress) {
        (Some("done"), _) => Some(JobStatus::Done),
        (Some("error" | "cancelled"), _) => Some(JobStatus::Failed),
        (Some(_), _) | (None, Some(_)) => Some(JobStatus::Running { progress }),
        (None, None) => None,
    })
}

fn explained(next: &PollStep, poll: &Poll) -> String {
    let why = match poll.consecutive_429() {
        0 => next.reason.to_string(),
        1 => format!("{} (one 429 since the last success)", next.reason),
        count => format!("{} ({count} times 429 since the last success)", next.reason),
    };
    match next.wait {
        Some(wait) => format!("asks again in {}: {why}", Exact(wait)),
        None => format!("never asks again, {}: {why}", next.state.as_str()),
    }
}
