//! The test tool: what a pool's protection would do, shown without touching the pool.
//!
//! The real ladder with the real settings, on a copy, in virtual time. Nothing is sent and no live
//! endpoint is touched. Each request is sent when the pause before it is over. The endpoint
//! counts as one of several, so it is protected unless protection is switched off.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use policy::duration::Rounded;
use policy::ladder::{EndpointResult, Ladder, LadderSettings};
use policy::time::Timestamp;

use super::api::AdminState;
use super::bodies::{Scenario, TestEvent, TestResult, TestRun, TestStep};
use super::body::Fields;
use super::pools::PoolPath;
use super::problem::Refused;

/// Show what a pool's protection would do
///
/// Nothing is sent, and live endpoints are not touched.
#[utoipa::path(
    post, operation_id = "testProtection", path = "/api/v1/pools/{pool}/test", tag = "pools", params(PoolPath),
    request_body = TestRun,
    responses((status = 200, description = "The state of an endpoint after every request", body = TestResult))
)]
pub(super) async fn test(
    State(admin): State<Arc<AdminState>>,
    Path(PoolPath { pool }): Path<PoolPath>,
    mut fields: Fields,
) -> Result<Json<TestResult>, Refused> {
    let live = admin.state.pool(&pool)?;
    let scenario = fields.require("scenario", EXPECTED, |value| {
        serde_json::from_value(value.clone()).ok()
    });
    fields.end()?;
    let settings = live.protection();
    let endpoints = live.view().len();
    let steps = scenario
        .map(|scenario| TestRun { scenario })
        .map_or_else(Vec::new, |run| play(run.scenario, &settings));
    Ok(Json(TestResult {
        protected: settings.protects(endpoints),
        steps,
    }))
}

const EXPECTED: &str = "`single_error`, `repeated_errors`, `success_recovery` or `auto_disable`";

impl Scenario {
    /// The statuses that requests get, one after the other.
    fn statuses(self, settings: &LadderSettings) -> Vec<u16> {
        match self {
            Self::SingleError => vec![429],
            Self::RepeatedErrors => vec![429; 3],
            Self::SuccessRecovery => vec![429, 429, 200, 429],
            Self::AutoDisable => {
                let count = usize::try_from(settings.disable_after()).unwrap_or(usize::MAX);
                vec![429; count.min(MAX_ERRORS)]
            }
        }
    }
}

/// More never disable.
const MAX_ERRORS: usize = 10;

fn play(scenario: Scenario, settings: &LadderSettings) -> Vec<TestStep> {
    let mut ladder = Ladder::new();
    let mut now = Timestamp::ZERO;
    let statuses = scenario.statuses(settings).into_iter();
    let steps = statuses.map(|status| {
        if !ladder.is_enabled() {
            return TestStep::new(TestEvent::NotSent, None, &ladder, now);
        }
        // As a request would, it leaves when the pause is over.
        now = ladder.paused_until().unwrap_or(now).max(now);
        let event = if status < 400 {
            TestEvent::Success
        } else {
            TestEvent::Error
        };
        if settings.enabled() != Some(false) {
            let epoch = ladder.epoch();
            ladder.settle(settings, epoch, &EndpointResult::status(status), now);
        }
        TestStep::new(event, Some(status), &ladder, now)
    });
    steps.collect()
}

impl TestStep {
    fn new(event: TestEvent, status: Option<u16>, ladder: &Ladder, now: Timestamp) -> Self {
        let pause = ladder.remaining(now);
        Self {
            event,
            status,
            at_ms: whole_millis(now.since(Timestamp::ZERO)),
            enabled: ladder.is_enabled(),
            paused: ladder.is_paused(now),
            pause_ms: whole_millis(pause),
            consecutive_errors: ladder.consecutive_errors(),
            last_error: ladder.last_error().map(str::to_owned),
            text: described(event, status, ladder, pause),
        }
    }
}

fn described(event: TestEvent, status: Option<u16>, ladder: &Ladder, pause: Duration) -> String {
    let what = match (event, status) {
        (TestEvent::NotSent, _) | (_, None) => {
            return "not sent: the endpoint is disabled until a person enables it".to_owned();
        }
        (TestEvent::Success, Some(status)) => format!("HTTP {status}"),
        (TestEvent::Error, Some(status)) => {
            format!("HTTP {status}, {} in a row", ladder.consecutive_errors())
        }
    };
    match (ladder.is_enabled(), pause.is_zero()) {
        (true, true) => format!("{what}: the endpoint is used"),
        (true, false) => format!("{what}: paused for {}", Rounded(pause)),
        (false, _) => format!(
            "{what}: paused for {} and disabled until a person enables it",
            Rounded(pause)
        ),
    }
}

/// Rounded up.
fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate::LadderOptions;

    fn played(scenario: Scenario, settings: &[(&str, &str)]) -> Vec<(bool, u64, u32)> {
        let mut options = LadderOptions::default();
        for (name, value) in settings {
            options.set(name, value).unwrap();
        }
        let steps = play(scenario, &options.build().unwrap());
        steps
            .iter()
            .map(|step| (step.enabled, step.pause_ms / 1000, step.consecutive_errors))
            .collect()
    }

    #[test]
    fn the_defaults_climb_as_they_say() {
        assert_eq!(played(Scenario::SingleError, &[]), [(true, 30, 1)]);
        assert_eq!(
            played(Scenario::RepeatedErrors, &[]),
            [(true, 30, 1), (true, 60, 2), (true, 120, 3)]
        );
        assert_eq!(
            played(Scenario::SuccessRecovery, &[]),
            [(true, 30, 1), (true, 60, 2), (true, 0, 0), (true, 30, 1)]
        );
        assert_eq!(
            played(Scenario::AutoDisable, &[]),
            [
                (true, 30, 1),
                (true, 60, 2),
                (true, 120, 3),
                (true, 300, 4),
                (false, 600, 5)
            ]
        );
    }

    #[test]
    fn own_settings_are_respected() {
        let own = [("pauses", "5s,7s"), ("disable_after", "2")];
        assert_eq!(
            played(Scenario::AutoDisable, &own),
            [(true, 5, 1), (false, 7, 2)]
        );
        let third = played(Scenario::RepeatedErrors, &own)[2];
        assert!(!third.0, "nothing is sent to a disabled endpoint");
        let off = played(Scenario::AutoDisable, &[("enabled", "false")]);
        assert_eq!(off, [(true, 0, 0); 5]);
    }
}
