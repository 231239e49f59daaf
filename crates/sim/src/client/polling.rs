//! A client that follows jobs: each is asked for until it ends, one after the other.

use std::time::Duration;

use policy::outcome::Answer as Answered;
use policy::poll::{Answer, Job, Poll, PollSettings, Told};
use policy::random::Random;
use policy::time::Timestamp;

use super::controller::{Afterwards, Attempt, Controller, FlightId, Kept, Next, Standing};

#[derive(Debug)]
pub(super) struct Polling {
    settings: PollSettings,
    /// How long a job takes; `None`: for ever.
    job: Option<Duration>,
    present: Option<Present>,
}

/// The job that is followed.
#[derive(Debug)]
struct Present {
    poll: Poll,
    started: Timestamp,
    /// `None` while a request is under way.
    next_at: Option<Timestamp>,
}

impl Polling {
    pub(super) fn new(settings: PollSettings, job: Option<Duration>) -> Self {
        Self {
            settings,
            job,
            present: None,
        }
    }
}

impl Controller for Polling {
    fn next(&mut self, _: FlightId, has_fresh: bool, now: Timestamp, _: &mut Random) -> Next {
        match &mut self.present {
            None if has_fresh => {
                self.present = Some(Present {
                    poll: Poll::new(now),
                    started: now,
                    next_at: None,
                });
                Next::SendFresh
            }
            None => Next::Wait { until: None },
            Some(present) if present.next_at.is_some_and(|at| at <= now) => {
                present.next_at = None;
                Next::SendAgain(THE_JOB)
            }
            Some(present) => Next::Wait {
                until: present.next_at,
            },
        }
    }

    fn answered(
        &mut self,
        _: FlightId,
        attempt: &Attempt,
        now: Timestamp,
        _: &mut Random,
    ) -> Afterwards {
        let Some(present) = &mut self.present else {
            return Afterwards::Over;
        };
        let answer = answer(attempt);
        let is_known = answer == Answer::Success;
        let told = Told {
            answer,
            job: is_known.then(|| progress(self.job, now.since(present.started))),
        };
        let next = present.poll.answered(&self.settings, &told, now);
        present.next_at = next.wait.map(|wait| now + wait);
        if present.next_at.is_none() {
            self.present = None;
            return Afterwards::Over;
        }
        Afterwards::Kept(THE_JOB)
    }

    fn standing(&self, now: Timestamp) -> Standing {
        let slowed = self
            .present
            .as_ref()
            .filter(|present| present.poll.banner());
        Standing {
            hold_until: slowed.and_then(|present| present.next_at.filter(|at| *at > now)),
            ..Standing::default()
        }
    }
}

/// It follows one at a time.
const THE_JOB: Kept = Kept(0);

fn answer(attempt: &Attempt) -> Answer {
    let wait = attempt.outcome.hint.wait;
    match attempt.outcome.answer {
        Answered::Status(200..400) => Answer::Success,
        Answered::Status(404) => Answer::NotFound,
        Answered::Status(429) => Answer::Throttled { wait },
        Answered::Status(_) | Answered::Failed { .. } => Answer::Failed { wait },
    }
}

/// A job goes on evenly until it is done.
fn progress(job: Option<Duration>, elapsed: Duration) -> Job {
    match job {
        Some(length) if elapsed >= length => Job::Done,
        Some(length) => Job::Running {
            progress: Some(100.0 * elapsed.as_secs_f64() / length.as_secs_f64()),
        },
        None => Job::Running { progress: None },
    }
}
