//! The sentences of `--explain` for gates, hints and verdicts.

use policy::classify::Classification;
use policy::duration::Exact;
use policy::gate::{Gate, GateSnapshot, Permit, Reason};
use policy::hint::Hint;
use policy::time::Timestamp;

use super::at::Seconds;

/// An ask that is admitted at once.
pub(super) fn admitted(permit: &Permit, gate: &Gate) -> String {
    if permit.is_probe() {
        return "admitted at once, as a probe: the breaker is half open".to_owned();
    }
    format!(
        "admitted at once: a token was available, {}",
        pace(gate.rate())
    )
}

/// An ask that left its line.
pub(super) fn left(permit: &Permit, gate: &Gate) -> String {
    if permit.is_probe() {
        return "leaves the line as a probe: the breaker is half open".to_owned();
    }
    format!(
        "leaves the line: its turn came and a token was available, {}",
        pace(gate.rate())
    )
}

/// An ask that waits.
pub(super) fn waits(reason: Reason, until: Option<Timestamp>, gate: &GateSnapshot) -> String {
    let what = match reason {
        Reason::Rate => format!("a token: {}", pace(gate.rate)),
        Reason::InFlight => format!(
            "a response: the maximum number is in flight ({})",
            gate.in_flight
        ),
        _ => obstacle(reason, gate),
    };
    let ahead = match gate.waiting.saturating_sub(1) {
        0 => String::new(),
        1 => ", one ahead in line".to_owned(),
        ahead => format!(", {ahead} ahead in line"),
    };
    let leaves = match until {
        Some(until) => format!("leaves at {} s", Seconds(until)),
        None => "when it leaves depends on responses".to_owned(),
    };
    format!("waits for {what}{ahead}, {leaves}")
}

/// An ask that is refused.
pub(super) fn refused(reason: Reason, until: Option<Timestamp>, gate: &GateSnapshot) -> String {
    let why = match reason {
        Reason::Deadline => "it could not be admitted before its deadline".to_owned(),
        Reason::QueueFull => format!("the line is full ({})", gate.waiting),
        Reason::BreakerOpen => format!("the breaker is {}", gate.breaker.as_str()),
        _ => obstacle(reason, gate),
    };
    match until {
        Some(until) => format!("refused: {why}, ask again at {} s", Seconds(until)),
        None => format!("refused: {why}"),
    }
}

fn obstacle(reason: Reason, gate: &GateSnapshot) -> String {
    match (reason, gate.hold) {
        (Reason::Hold, Some((until, source))) => {
            format!("a hold until {} s (`{source}`)", Seconds(until))
        }
        (Reason::BreakerOpen, _) => "the breaker".to_owned(),
        _ => reason.to_string(),
    }
}

/// The effect of an outcome on its gate.
pub(super) fn settled(judgement: &Classification, is_late: bool, gate: &GateSnapshot) -> String {
    let mut sentence = judged(judgement);
    if is_late {
        sentence.push_str("; sent before the last change, so rate and breaker stay");
    } else {
        let rate = pace(gate.rate);
        sentence.push_str(&format!("; {rate}, {}", gate.why));
    }
    sentence.push_str(&format!("; the breaker is {}", gate.breaker.as_str()));
    if let Some((until, source)) = gate.hold {
        sentence.push_str(&format!("; held until {} s (`{source}`)", Seconds(until)));
    }
    sentence
}

/// A verdict and its reason.
pub(super) fn judged(judgement: &Classification) -> String {
    match judgement.verdict {
        Some(verdict) => format!("{} because of {}", verdict.as_str(), judgement.because),
        None => format!("no verdict: {} changes nothing", judgement.because),
    }
}

/// The hint of a response.
pub(super) fn hinted(hint: &Hint) -> String {
    let source = match hint.source {
        Some(source) => format!(" (`{source}`)"),
        None => String::new(),
    };
    match (hint.wait, hint.remaining, hint.reset) {
        (Some(wait), ..) => format!("wait for {}{source}", Exact(wait)),
        (None, Some(left), Some(reset)) => {
            format!("no wait: {left} left for the next {}{source}", Exact(reset))
        }
        (None, Some(left), None) => format!("no wait: {left} left{source}"),
        (None, None, Some(reset)) => {
            format!("no wait: the period ends in {}{source}", Exact(reset))
        }
        (None, None, None) => "says nothing about pace".to_owned(),
    }
}

fn pace(rate: f64) -> String {
    // Three decimals of a learned rate are enough.
    let rounded = (rate * 1000.0).round() / 1000.0;
    format!("{rounded} requests per second")
}
