//! The test tool: what a pool's protection would do, shown without touching the pool.
//!
//! The real ladder with the real settings, on a copy, in virtual time. Nothing is sent and no live
//! endpoint hears of it. Each request goes out when the pause before it is over. The endpoint
//! stands for one of several, so it is protected unless protection is switched off.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use policy::duration::Rounded;
use policy::ladder::{Ended, Ladder, LadderSettings};
use policy::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::api::AdminState;
use super::body::Fields;
use super::pools::PoolName;
use super::problem::Refused;

/// Show what a pool's protection would do
///
/// Nothing is sent, and live endpoints are not touched.
#[utoipa::path(
    post, operation_id = "testProtection", path = "/api/v1/pools/{pool}/test", tag = "pools", params(PoolName),
    request_body = TestRun,
    responses((status = 200, description = "How an endpoint would stand after every request", body = Tested))
)]
pub(super) async fn test(
    State(desk): State<Arc<AdminState>>,
    Path(pool): Path<String>,
    mut fields: Fields,
) -> Result<Json<Tested>, Refused> {
    let live = desk.state.pool(&pool)?;
    let scenario = fields.require("scenario", EXPECTED, |value: &Value| {
        Scenario::named(value.as_str()?)
    });
    fields.end()?;
    let settings = live.protection();
    let endpoints = live.view().len();
    let steps = scenario.map_or_else(Vec::new, |scenario| play(scenario, &settings));
    Ok(Json(Tested {
        protected: settings.protects(endpoints),
        steps,
    }))
}

const EXPECTED: &str = "`single_error`, `repeated_errors`, `success_recovery` or `auto_disable`";

/// What is played.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Scenario {
    /// One 429.
    SingleError,
    /// Three 429s in a row.
    RepeatedErrors,
    /// Two 429s, a success, another 429.
    SuccessRecovery,
    /// As many 429s as disable it.
    AutoDisable,
}

impl Scenario {
    fn named(name: &str) -> Option<Self> {
        match name {
            "single_error" => Some(Self::SingleError),
            "repeated_errors" => Some(Self::RepeatedErrors),
            "success_recovery" => Some(Self::SuccessRecovery),
            "auto_disable" => Some(Self::AutoDisable),
            _ => None,
        }
    }

    /// The statuses that requests get, one after the other.
    fn answers(self, settings: &LadderSettings) -> Vec<u16> {
        match self {
            Self::SingleError => vec![429],
            Self::RepeatedErrors => vec![429; 3],
            Self::SuccessRecovery => vec![429, 429, 200, 429],
            Self::AutoDisable => {
                let count = usize::try_from(settings.disable_after()).unwrap_or(usize::MAX);
                vec![429; count.min(MOST)]
            }
        }
    }
}

/// More never disable.
const MOST: usize = 10;

fn play(scenario: Scenario, settings: &LadderSettings) -> Vec<TestStep> {
    let mut ladder = Ladder::new();
    let mut now = Timestamp::ZERO;
    let answers = scenario.answers(settings).into_iter();
    let steps = answers.map(|status| {
        if !ladder.is_enabled() {
            return TestStep::new(Happens::NotSent, None, &ladder, now);
        }
        // As a request would, it leaves when the pause is over.
        now = ladder.paused_until().unwrap_or(now).max(now);
        let event = if status < 400 {
            Happens::Success
        } else {
            Happens::Error
        };
        if settings.enabled() != Some(false) {
            let epoch = ladder.epoch();
            ladder.settle(settings, epoch, &Ended::status(status), now);
        }
        TestStep::new(event, Some(status), &ladder, now)
    });
    steps.collect()
}

/// Which scenario to play
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it describes what `test` reads")]
struct TestRun {
    #[schema(inline)]
    scenario: Scenario,
}

/// What a pool's protection would do
#[derive(Serialize, ToSchema)]
pub(super) struct Tested {
    /// Are the endpoints of this pool protected now?
    protected: bool,
    /// One for every request
    steps: Vec<TestStep>,
}

/// How an endpoint would stand after a request
#[derive(Serialize, ToSchema)]
struct TestStep {
    #[schema(inline)]
    event: Happens,
    /// The status of the answer; null if nothing was sent
    #[schema(required)]
    status: Option<u16>,
    /// When, from the start of the test
    at_ms: u64,
    /// May it be used, pauses aside?
    enabled: bool,
    /// Is it paused?
    paused: bool,
    /// How long the pause lasts from here; 0 if there is none
    pause_ms: u64,
    /// Errors that climbed since the last success
    consecutive_errors: u32,
    /// What its last error said; null if there was none since the last success
    #[schema(required)]
    last_error: Option<String>,
    /// All of it in words
    text: String,
}

/// What happens to the endpoint
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Happens {
    Error,
    Success,
    NotSent,
}

impl TestStep {
    fn new(event: Happens, status: Option<u16>, ladder: &Ladder, now: Timestamp) -> Self {
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
            text: told(event, status, ladder, pause),
        }
    }
}

fn told(event: Happens, status: Option<u16>, ladder: &Ladder, pause: Duration) -> String {
    let what = match (event, status) {
        (Happens::NotSent, _) | (_, None) => {
            return "not sent: the endpoint is disabled until a person enables it".to_owned();
        }
        (Happens::Success, Some(status)) => format!("HTTP {status}"),
        (Happens::Error, Some(status)) => {
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
