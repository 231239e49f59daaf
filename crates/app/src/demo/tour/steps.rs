//! The steps of the tour: their times, texts and links.

use std::time::Duration;

use policy::duration::Rounded;
use policy::operation::OperationState;

use super::facts::{Facts, OperationFacts};
use crate::admin::bodies::{DemoLink, DemoStepState};
use crate::demo::events::seconds;
use crate::demo::plan;

/// A step, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The crawl starts.
    Job,
    /// The limit of `steady` is found.
    Limit,
    /// Orders are retried, delivered and refused.
    Orders,
    /// `polite` is held.
    RetryAfter,
    /// The change of the profile waits for a decision.
    Conflict,
    /// The breaker of an endpoint opens and closes.
    Outage,
    /// An endpoint is paused, disabled and enabled.
    Endpoint,
    /// Status checks of the job are refused, and answered again.
    StatusLimit,
}

/// A step that is done is shown for so long.
const SHOWN_FOR: Duration = Duration::from_secs(4);

impl Step {
    pub(super) const ALL: [Self; 8] = [
        Self::Job,
        Self::Limit,
        Self::Orders,
        Self::RetryAfter,
        Self::Conflict,
        Self::Outage,
        Self::Endpoint,
        Self::StatusLimit,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Job => "A job starts",
            Self::Limit => "A limit is learned",
            Self::Orders => "Operations are delivered in spite of errors",
            Self::RetryAfter => "A Retry-After is obeyed",
            Self::Conflict => "A conflict waits for a decision",
            Self::Outage => "An outage is survived",
            Self::Endpoint => "An endpoint is paused, disabled, enabled",
            Self::StatusLimit => "Status checks slow down and recover",
        }
    }

    /// When it is planned, since the start of the round.
    fn planned(self) -> Duration {
        match self {
            Self::Job => Duration::ZERO,
            Self::Limit => Duration::from_secs(5),
            Self::Orders => plan::ORDERS_AT,
            Self::RetryAfter => Duration::from_secs(14),
            Self::Conflict => plan::PROFILE_AT,
            Self::Outage => plan::OUTAGE.0,
            Self::Endpoint => plan::FAILING.0 + Duration::from_secs(1),
            Self::StatusLimit => plan::ENABLE_AT + Duration::from_secs(3),
        }
    }

    /// When everything that it shows had happened.
    fn ended(self, facts: &Facts) -> Option<Duration> {
        match self {
            Self::Job => facts.job().map(|job| job.started_at),
            Self::Limit => facts.learned_at,
            Self::Orders => {
                let ended = facts.orders.iter().map(OperationFacts::ended);
                let ended: Option<Vec<Duration>> = ended.collect();
                ended?.into_iter().max()
            }
            Self::RetryAfter => facts.held_at,
            Self::Conflict => {
                let profile = facts.profile.as_ref();
                profile
                    .filter(|profile| !profile.state.is_pending())?
                    .ended()
            }
            Self::Outage => facts.breaker?.closed_at,
            Self::Endpoint => facts.endpoint.enabled_at,
            Self::StatusLimit => facts.job()?.checks.recovered_at,
        }
    }

    pub(super) fn state(self, facts: &Facts, now: Duration) -> DemoStepState {
        let planned = facts.began + self.planned();
        if now < planned {
            return DemoStepState::Later;
        }
        match self.ended(facts) {
            Some(ended) if now >= ended.max(planned) + SHOWN_FOR => DemoStepState::Done,
            None if now >= facts.began + plan::LENGTH => DemoStepState::Later,
            _ => DemoStepState::Now,
        }
    }

    pub(super) fn link(self, facts: &Facts) -> DemoLink {
        let gate = |key: &str| (format!("/gates/{key}"), format!("gate {key}"));
        let operation = |operation: Option<&OperationFacts>| match operation {
            Some(operation) => (
                format!("/operations/{}", operation.id),
                "this operation".to_owned(),
            ),
            None => ("/operations".to_owned(), "operations".to_owned()),
        };
        let (path, label) = match self {
            Self::Job | Self::StatusLimit => match facts.job() {
                Some(job) => (format!("/jobs/{}", job.id), "this job".to_owned()),
                None => ("/jobs".to_owned(), "jobs".to_owned()),
            },
            Self::Limit => gate(plan::STEADY),
            Self::Orders => operation(facts.orders.iter().max_by_key(|order| order.sent)),
            Self::RetryAfter => gate(plan::POLITE),
            Self::Conflict => operation(facts.profile.as_ref()),
            Self::Outage => gate(plan::OUTAGE_KEY),
            Self::Endpoint => (format!("/pools#{}", plan::POOL), "this pool".to_owned()),
        };
        DemoLink { path, label }
    }

    pub(super) fn text(self, facts: &Facts, now: Duration) -> String {
        match self {
            Self::Job => job(facts),
            Self::Limit => limit(facts),
            Self::Orders => orders(facts),
            Self::RetryAfter => retry_after(facts, now),
            Self::Conflict => conflict(facts),
            Self::Outage => outage(facts),
            Self::Endpoint => endpoint(facts, now),
            Self::StatusLimit => status_limit(facts),
        }
    }
}

impl OperationFacts {
    /// When it reached a state that it does not leave by itself.
    fn ended(&self) -> Option<Duration> {
        (!self.state.is_pending()).then_some(self.since)
    }
}

fn job(facts: &Facts) -> String {
    match &facts.job {
        Some(Ok(_)) => {
            "A crawl of a small site runs for most of the minute. Open it in a second tab \
                        and leave it open: about 35 seconds later its status checks reach their \
                        limit, and the page slows down by itself."
                .to_owned()
        }
        Some(Err(error)) => format!("The job could not be started: {error}."),
        None => "A crawl of a small site is about to start.".to_owned(),
    }
}

fn limit(facts: &Facts) -> String {
    match facts.learned_at {
        Some(at) => format!(
            "No limit is configured. The gate raised its rate until the server refused, and {} after \
             the start `steady` accepted nine tenths of what it can take, 50/s. Now the gate stays \
             there and seldom tries more.",
            seconds(at)
        ),
        None => "32 clients send to `steady` as fast as they get responses, and no limit is \
                 configured. The gate raises its rate until the server refuses."
            .to_owned(),
    }
}

fn orders(facts: &Facts) -> String {
    if facts.orders.is_empty() {
        return "A program hands over orders as operations: each is stored before it is accepted, and \
                sent until it is delivered."
            .to_owned();
    }
    let count = |state: fn(OperationState) -> bool| {
        let orders = facts.orders.iter();
        orders.filter(|order| state(order.state)).count()
    };
    let delivered = count(|state| state == OperationState::Completed);
    let waiting = count(OperationState::is_pending);
    let retried = facts.orders.iter().filter(|order| order.sent > 1).count();
    let total = facts.orders.len();
    let mut text = format!(
        "{total} orders are stored, so nothing is lost in a crash. Delivered: {delivered}; sent again \
         after a 502: {retried}; still waiting: {waiting}."
    );
    let failed = facts.orders.iter().find_map(|order| order.state.reason());
    if let Some(reason) = failed {
        text.push_str(&format!(
            " One failed as `{reason}`: the server answered 422, which another attempt cannot change."
        ));
    }
    text
}

fn retry_after(facts: &Facts, now: Duration) -> String {
    let Some(hold) = facts.hold else {
        return "`polite` takes 120 requests in 10 seconds, and answers more with 429 and Retry-After. \
                Such an answer holds the whole gate."
            .to_owned();
    };
    let wait = Rounded(hold.named);
    let at = seconds(hold.at);
    let waiting = hold.waiting;
    if now < hold.until {
        let until = seconds(hold.until);
        return format!(
            "`polite` answered 429 with Retry-After {wait} at {at}. All requests to it wait until \
             {until}, not only the refused one: {waiting} requests."
        );
    }
    let admitted = hold.admitted;
    format!(
        "`polite` answered 429 with Retry-After {wait} at {at}. All requests to it waited, up to \
         {waiting} at once, not only the refused one. Sent before the end of that time: {admitted}."
    )
}

fn conflict(facts: &Facts) -> String {
    let state = facts.profile.as_ref().map(|profile| profile.state);
    match state {
        None => "Two programs are about to change the same profile.".to_owned(),
        Some(OperationState::Conflict) => {
            "Two programs changed the same profile, and the server answered 409. The operation is not \
             sent blindly again: it waits for a decision, with base, ours and theirs side by side. \
             Choose, and it is delivered."
                .to_owned()
        }
        Some(OperationState::Completed) => {
            "Two programs changed the same profile. The conflict was resolved, and the operation is \
             completed."
                .to_owned()
        }
        Some(OperationState::Cancelled) => {
            "Two programs changed the same profile. The operation was cancelled.".to_owned()
        }
        Some(OperationState::Failed(reason)) => {
            format!("The change of the profile failed as `{reason}`.")
        }
        Some(_) => "A program hands over a change of a profile that another one has changed \
                    meanwhile."
            .to_owned(),
    }
}

fn outage(facts: &Facts) -> String {
    let b = plan::OUTAGE_ENDPOINT;
    let Some(breaker) = facts.breaker else {
        return format!(
            "Endpoint `{b}` of the pool resets every connection from {} to {} of the minute.",
            Rounded(plan::OUTAGE.0),
            Rounded(plan::OUTAGE.1)
        );
    };
    let opened = seconds(breaker.opened_at);
    match breaker.closed_at {
        None => format!(
            "Endpoint `{b}` resets every connection. Its breaker opened at {opened}: requests go to \
             the other endpoints, and only a probe now and then reaches `{b}`."
        ),
        Some(closed) => {
            let failed = breaker.failed_after.saturating_sub(breaker.failed_before);
            format!(
                "Endpoint `{b}` reset every connection. Its breaker opened at {opened}, sent a probe \
                 now and then, and closed at {} when they succeeded. Requests of clients that failed \
                 meanwhile: {failed}.",
                seconds(closed)
            )
        }
    }
}

fn endpoint(facts: &Facts, now: Duration) -> String {
    let c = plan::FAILING_ENDPOINT;
    let endpoint = facts.endpoint;
    let errors = endpoint.errors;
    if endpoint.paused_at.is_none() {
        return format!(
            "Endpoint `{c}` of the pool answers 503 from {} to {} of the minute.",
            Rounded(plan::FAILING.0),
            Rounded(plan::FAILING.1)
        );
    }
    match (endpoint.disabled_at, endpoint.enabled_at) {
        (None, _) if now < endpoint.paused_until => format!(
            "Endpoint `{c}` answered 503: error {errors} in a row, so it is paused until {}. Each \
             further error doubles the pause; the third disables it.",
            seconds(endpoint.paused_until)
        ),
        (None, _) => format!(
            "Endpoint `{c}` answered 503 and was paused after error {errors} in a row. One request at \
             a time now tries whether it works again."
        ),
        (Some(at), None) => format!(
            "{errors} errors in a row: endpoint `{c}` was disabled at {} and stays so until a person \
             enables it. In place of a person, the script of the demo will do that.",
            seconds(at)
        ),
        (Some(at), Some(enabled)) => {
            let by = match endpoint.is_enabled_by_script {
                true => {
                    "The script of the demo enabled it, by the same function as the button Enable"
                }
                false => "It was enabled again",
            };
            format!(
                "Endpoint `{c}` was paused, and disabled at {} after {errors} errors in a row. {by}, \
                 at {}.",
                seconds(at),
                seconds(enabled)
            )
        }
    }
}

fn status_limit(facts: &Facts) -> String {
    let Some(job) = facts.job() else {
        return "There is no job in this round.".to_owned();
    };
    let checks = &job.checks;
    let Some(refused) = checks.refused_at else {
        return "The demo checks the status of its job every 2 to 3 seconds, as the job's page does. 14 \
                checks in 45 seconds are answered, then they get 429."
            .to_owned();
    };
    let waits: Vec<String> = checks
        .waits
        .iter()
        .map(|wait| Rounded(*wait).to_string())
        .collect();
    let waits = waits.join(", ");
    let refused = seconds(refused);
    let mut text = format!(
        "The demo's own status checks got 429 from {refused} on, so they slowed down: waits of \
         {waits}. The job's page does the same and shows a banner; the job itself is not slowed."
    );
    if let Some(recovered) = checks.recovered_at {
        text.push_str(&format!(
            " At {} a check was answered, and the usual interval is back.",
            seconds(recovered)
        ));
    }
    text
}
