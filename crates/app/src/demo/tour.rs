//! The guided tour: what the script of the demo shows, step by step, and what has really happened.
//!
//! The times of the steps are a plan; their texts are made from [`Facts`] alone, so that a step never
//! claims what did not happen. What is planned is said as a plan.

mod facts;
mod steps;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use policy::duration::Rounded;
use policy::hint::Source;
use policy::ladder::Disabled;
use tidegate::event::{Event, EventListener};
use tidegate::{Clock, Timestamp};

pub(super) use facts::{Facts, JobFacts, OperationFacts};
use steps::Step;

use super::plan;
use crate::admin::TourGuide;
use crate::admin::bodies::{DemoLink, DemoStep, DemoStepState, DemoTour};

/// Collects the facts of the present round.
#[derive(Debug)]
pub(super) struct Tour {
    clock: Clock,
    began: Timestamp,
    facts: Mutex<Facts>,
}

impl Tour {
    pub(super) fn new(clock: Clock, began: Timestamp) -> Self {
        Self {
            clock,
            began,
            facts: Mutex::default(),
        }
    }

    /// Since the start of the demo.
    pub(super) fn elapsed(&self) -> Duration {
        self.clock.now().since(self.began)
    }

    /// The facts so far.
    pub(super) fn facts(&self) -> Facts {
        self.lock().clone()
    }

    /// Adds to the facts. The change is given the time since the start.
    pub(super) fn update(&self, change: impl FnOnce(&mut Facts, Duration)) {
        let elapsed = self.elapsed();
        change(&mut self.lock(), elapsed);
    }

    fn lock(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TourGuide for Tour {
    fn tour(&self) -> DemoTour {
        tour(&self.facts(), self.elapsed())
    }
}

impl EventListener for Tour {
    fn on_event(&self, at: Timestamp, event: &Event<'_>) {
        let since = |at: Timestamp| at.since(self.began);
        match *event {
            Event::HoldStarted { key, until, source }
                if key == plan::POLITE && source == Source::RetryAfter =>
            {
                self.lock().hold(since(at), since(until));
            }
            Event::Admitted { key, .. } if key == plan::POLITE => {
                self.lock().admitted(since(at));
            }
            Event::BreakerOpened { key, .. } if key == plan::OUTAGE_KEY => {
                self.lock().breaker_opened(since(at));
            }
            Event::BreakerClosed { key } if key == plan::OUTAGE_KEY => {
                self.lock().breaker_closed(since(at));
            }
            Event::EndpointPaused {
                pool,
                endpoint,
                until,
                errors,
                ..
            } if is_failing(pool, endpoint) => {
                self.lock().endpoint_paused(since(at), since(until), errors);
            }
            Event::EndpointDisabled {
                pool,
                endpoint,
                why: Disabled::Errors(errors),
            } if is_failing(pool, endpoint) => {
                self.lock().endpoint_disabled(since(at), errors);
            }
            Event::EndpointEnabled { pool, endpoint } if is_failing(pool, endpoint) => {
                self.lock().endpoint_enabled(since(at));
            }
            _ => {}
        }
    }
}

fn is_failing(pool: &str, endpoint: &str) -> bool {
    (pool, endpoint) == (plan::POOL, plan::FAILING_ENDPOINT)
}

/// The tour at `now`, since the start of the demo.
pub(super) fn tour(facts: &Facts, now: Duration) -> DemoTour {
    let elapsed = now.saturating_sub(facts.began);
    let steps = Step::ALL.iter().zip(1..);
    let steps: Vec<DemoStep> = steps
        .map(|(step, n)| DemoStep {
            n,
            title: step.title().to_owned(),
            text: step.text(facts, now),
            link: step.link(facts),
            state: step.state(facts, now),
        })
        .collect();
    let count = steps.last().map_or(0, |step| step.n);
    let shown = shown_step(&steps);
    let is_over = elapsed >= plan::LENGTH;
    let (step, title, text, link) = match is_over {
        true => (count, OVER.to_owned(), over(elapsed), overview()),
        false => {
            let shown = &steps[shown];
            let (title, text) = (shown.title.clone(), shown.text.clone());
            (shown.n, title, text, shown.link.clone())
        }
    };
    DemoTour {
        step,
        of: count,
        title,
        text,
        link,
        round: facts.round + 1,
        elapsed_ms: millis(elapsed),
        total_ms: millis(plan::LENGTH),
        next_round_ms: millis(plan::ROUND),
        steps,
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The last step that happens now; if there is none, the last that is done.
fn shown_step(steps: &[DemoStep]) -> usize {
    let last = |state| steps.iter().rposition(|step| step.state == state);
    let shown = last(DemoStepState::Now).or_else(|| last(DemoStepState::Done));
    shown.unwrap_or(0)
}

const OVER: &str = "Now try it yourself";

fn over(elapsed: Duration) -> String {
    let left = Rounded(plan::ROUND.saturating_sub(elapsed));
    format!(
        "The script rests, and the traffic goes on. Resolve the conflict, isolate a gate and release \
         it, disable an endpoint, start a job. The script plays again in {left}."
    )
}

fn overview() -> DemoLink {
    DemoLink {
        path: "/".to_owned(),
        label: "overview".to_owned(),
    }
}

#[cfg(test)]
mod tests;
