//! Whether the server of the fleet answers.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate::Timestamp;

/// Whether the server of the fleet answers, for metrics, health and the log.
#[derive(Debug)]
pub struct FleetHealth {
    max_silence: Duration,
    state: Mutex<HealthState>,
}

#[derive(Debug)]
struct HealthState {
    answered_at: Timestamp,
    failing: Option<Failing>,
    /// Whether the last change was reported as one for the worse.
    is_reported: bool,
}

#[derive(Clone, Debug)]
struct Failing {
    since: Timestamp,
    problem: String,
}

/// What is known at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetView {
    /// What is wrong, if the server is silent for so long that gates do without it.
    pub degraded: Option<String>,
    /// How long it has not answered; zero while it does.
    pub silence: Duration,
}

/// What should be logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthChange {
    /// The server is silent, with the problem.
    Degraded(String),
    /// It answers again, after this long.
    Recovered(Duration),
}

impl FleetHealth {
    /// A server that counts as answering at first; it is silent after three intervals without an answer,
    /// and never sooner than after 300 ms.
    pub fn new(interval: Duration, now: Timestamp) -> Self {
        Self {
            max_silence: (3 * interval).max(Duration::from_millis(300)),
            state: Mutex::new(HealthState {
                answered_at: now,
                failing: None,
                is_reported: false,
            }),
        }
    }

    /// The server has answered.
    pub fn answered(&self, now: Timestamp) {
        let mut state = self.lock();
        // After a silence that was reported, its length is still to be.
        if !state.is_reported {
            state.answered_at = now;
        }
        state.failing = None;
    }

    /// A call that was made at `since` was not answered, or refused.
    pub fn failed(&self, since: Timestamp, problem: String) {
        let mut state = self.lock();
        let since = state.failing.as_ref().map_or(since, |it| it.since);
        state.failing = Some(Failing { since, problem });
    }

    /// What is known now.
    pub fn view(&self, now: Timestamp) -> FleetView {
        let state = self.lock();
        let Some(failing) = &state.failing else {
            return FleetView::default();
        };
        let is_degraded = now.since(failing.since) >= self.max_silence;
        FleetView {
            degraded: is_degraded.then(|| failing.problem.clone()),
            silence: now.since(state.answered_at.min(failing.since)),
        }
    }

    /// What has changed since this was last called.
    pub fn change(&self, now: Timestamp) -> Option<HealthChange> {
        let degraded = self.view(now).degraded;
        let mut state = self.lock();
        match degraded {
            Some(problem) if !state.is_reported => {
                state.is_reported = true;
                Some(HealthChange::Degraded(problem))
            }
            None if state.is_reported && state.failing.is_none() => {
                let silence = now.since(state.answered_at);
                state.is_reported = false;
                state.answered_at = now;
                Some(HealthChange::Recovered(silence))
            }
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HealthState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn is_degraded_after_three_intervals_of_silence_and_reports_it_once() {
        let health = FleetHealth::new(Duration::from_millis(100), at(0));
        health.answered(at(1000));
        health.failed(at(1100), "no answer".to_owned());
        assert_eq!(health.view(at(1399)).degraded, None);
        assert_eq!(health.change(at(1399)), None);
        health.failed(at(1350), "refused".to_owned());
        let view = health.view(at(1400));
        assert_eq!(view.degraded.as_deref(), Some("refused"));
        assert_eq!(view.silence, Duration::from_millis(400));
        let degraded = HealthChange::Degraded("refused".to_owned());
        assert_eq!(health.change(at(1400)), Some(degraded));
        assert_eq!(health.change(at(1500)), None);
        health.answered(at(5000));
        assert_eq!(health.view(at(5000)), FleetView::default());
        let recovered = HealthChange::Recovered(Duration::from_secs(4));
        assert_eq!(health.change(at(5000)), Some(recovered));
        assert_eq!(health.change(at(5100)), None);
    }

    #[test]
    fn a_call_that_fails_once_is_no_silence() {
        let health = FleetHealth::new(Duration::from_millis(100), at(0));
        health.failed(at(60_000), "no answer".to_owned());
        assert_eq!(health.view(at(60_250)).degraded, None);
        health.answered(at(60_260));
        assert_eq!(health.view(at(70_000)), FleetView::default());
        assert_eq!(health.change(at(70_000)), None);
    }
}
