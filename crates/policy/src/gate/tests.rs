//! Tests of the gate, one rule at a time, in virtual time.

#![expect(clippy::float_cmp, reason = "values that floats hold exactly")]

use std::time::Duration;

use super::*;
use crate::hint::Hint;
use crate::outcome::{Failure, Outcome, Phase, Verdict};

mod bans;
mod costs;
mod counted;
mod fast_path;
mod holds;
mod learning;
mod owning;
mod probing;
mod quotas;
mod silent;
mod waiting;
mod window;

/// A gate with its line, driven at given times in seconds.
struct Bench {
    settings: GateSettings,
    tickets: Tickets,
    gate: Gate,
}

impl Bench {
    fn new(settings: &[(&str, &str)]) -> Self {
        let settings = settings_of(settings);
        let gate = Gate::new(&settings, Timestamp::ZERO);
        Self {
            settings,
            tickets: Tickets::new(),
            gate,
        }
    }

    fn aimd(more: &[(&str, &str)]) -> Self {
        Self::new(&[&[("strategy", "aimd")], more].concat())
    }

    fn ask(&mut self, seconds: f64) -> Decision {
        let deadline = at(seconds) + self.settings.max_wait;
        self.ask_as(Ask::until(deadline), seconds)
    }

    fn ask_as(&mut self, ask: Ask, seconds: f64) -> Decision {
        self.gate
            .acquire(&self.settings, &mut self.tickets, &ask, at(seconds))
    }

    /// `admit`, or the decision with its reason and time.
    fn decide(&mut self, seconds: f64) -> String {
        match self.ask(seconds) {
            Decision::Admit(_) => "admit".to_owned(),
            Decision::Wait { until, reason, .. } => {
                format!("wait {reason} {}", format_until(until))
            }
            Decision::Refuse { reason, until } => {
                format!("refuse {reason} {}", format_until(until))
            }
        }
    }

    fn permit(&mut self, seconds: f64) -> Permit {
        match self.ask(seconds) {
            Decision::Admit(permit) => permit,
            other => panic!("at {seconds}: {other:?}"),
        }
    }

    fn settle(&mut self, permit: Permit, seconds: f64, outcome: &Outcome, verdict: Verdict) {
        self.gate
            .settle(&self.settings, permit, outcome, Some(verdict), at(seconds));
    }

    /// Settles a success at the head of its response; the body has not ended.
    fn settle_head(&mut self, permit: Permit, seconds: f64) -> ResponseBody {
        let (settings, success) = (&self.settings, Some(Verdict::Success));
        self.gate
            .settle_head(settings, permit, &answer(200), success, at(seconds))
    }

    fn succeed(&mut self, permit: Permit, seconds: f64) {
        self.settle(permit, seconds, &answer(200), Verdict::Success);
    }

    fn fail(&mut self, permit: Permit, seconds: f64) {
        self.settle(permit, seconds, &answer(500), Verdict::Overloaded);
    }

    /// Opens the breaker with five failures.
    fn trip(&mut self) {
        for attempt in 0..5 {
            let seconds = f64::from(attempt) * 5.0;
            let permit = self.permit(seconds);
            self.fail(permit, seconds);
        }
        assert_eq!(self.gate.breaker_state(at(20.0)), BreakerState::Open);
    }

    fn throttle(&mut self, seconds: f64, wait_seconds: u64) {
        let permit = self.permit(seconds);
        self.settle(
            permit,
            seconds,
            &directed(429, wait_seconds),
            Verdict::Throttled,
        );
    }

    /// A refusal of a request that was in flight before the hold started.
    fn throttle_held(&mut self, seconds: f64, wait_seconds: u64) {
        let permit = Permit {
            admitted_at: at(0.0),
            epoch: 0,
            number: 1,
            cost: std::num::NonZeroU32::MIN,
            probe: None,
        };
        self.settle(
            permit,
            seconds,
            &directed(429, wait_seconds),
            Verdict::Throttled,
        );
    }

    fn admitted_by(&mut self, seconds: f64) -> Vec<f64> {
        let mut left = Vec::new();
        while let Some(due) = self.gate.next_admission(&self.settings, &self.tickets) {
            if due > at(seconds) {
                break;
            }
            let admitted = self.gate.admit_next(&self.settings, &mut self.tickets, due);
            assert!(admitted.is_some(), "the first in line is due at {due:?}");
            left.push(due.seconds_since(Timestamp::ZERO));
        }
        left
    }

    fn state(&self, seconds: f64) -> &'static str {
        self.gate.breaker_state(at(seconds)).as_str()
    }
}

fn settings_of(settings: &[(&str, &str)]) -> GateSettings {
    let mut options = GateOptions::default();
    for (name, value) in settings {
        options.set(name, value).unwrap();
    }
    options.build().unwrap()
}

fn at(seconds: f64) -> Timestamp {
    Timestamp::ZERO.after_seconds(seconds)
}

fn format_until(until: Option<Timestamp>) -> String {
    until.map_or_else(
        || "-".to_owned(),
        |until| until.seconds_since(Timestamp::ZERO).to_string(),
    )
}

fn answer(status: u16) -> Outcome {
    Outcome::status(status, Duration::from_millis(100))
}

fn directed(status: u16, wait_seconds: u64) -> Outcome {
    let wait = Some(Duration::from_secs(wait_seconds));
    answer(status).with_hint(Hint {
        wait,
        source: Some(Source::RetryAfter),
        ..Hint::default()
    })
}

fn quota(status: u16, remaining: u64, reset_seconds: u64) -> Outcome {
    let reset = Some(Duration::from_secs(reset_seconds));
    let hint = Hint {
        remaining: Some(remaining),
        reset,
        source: Some(Source::RetryAfter),
        ..Hint::default()
    };
    answer(status).with_hint(hint)
}

#[test]
fn gate_with_eight_bytes_of_its_owner_is_four_cache_lines() {
    const OWNER: usize = 8;
    const LINE: usize = 64;
    assert_eq!(
        (size_of::<Gate>(), align_of::<Gate>()),
        (4 * LINE - OWNER, 8)
    );
    assert_eq!(size_of::<Permit>(), 24);
    assert_eq!(
        std::mem::offset_of!(Gate, adaptive),
        LINE - OWNER,
        "a granted ask touches only the first cache line"
    );
    let end_of_breaker = std::mem::offset_of!(Gate, latency);
    assert!(
        end_of_breaker - Breaker::BYTES_OF_SUCCESS >= 3 * LINE - OWNER,
        "a success touches the fourth cache line, but not the third"
    );
}

/// The table in `docs/policies/gate.md` matches the compiler's layout.
#[test]
fn documented_layout_matches_the_compiler() {
    let gate = Gate::new(&GateSettings::default(), Timestamp::ZERO);
    let mut table = String::from("| field | offset | bytes |\n|---|---|---|\n");
    macro_rules! rows {
        ($($field:ident),*) => {$(
            let (offset, bytes) = (std::mem::offset_of!(Gate, $field), size_of_val(&gate.$field));
            table += &format!("| `{}` | {offset} | {bytes} |\n", stringify!($field));
        )*};
    }
    rows!(
        bucket,
        counters,
        line,
        admitted,
        last_success,
        last_progress,
        why,
        has_fast_path,
        hold_until,
        adaptive,
        throttled,
        failed,
        extras,
        breaker,
        latency,
        hold_source,
        succeeded
    );
    table += &format!("| whole gate | | {} |\n", size_of::<Gate>());
    let page = include_str!("../../../../docs/policies/gate.md");
    assert!(
        page.contains(&table),
        "docs/policies/gate.md must have:\n{table}"
    );
}
