//! Figures for the crate `metrics`.

use metrics::{Label, counter, histogram};
use policy::time::Timestamp;

use super::{Event, EventListener};

/// Counts events with the crate `metrics`.
///
/// | name | kind | labels |
/// |---|---|---|
/// | `tidegate_attempts_total` | counter | `verdict`, `key` |
/// | `tidegate_wait_seconds` | histogram | `key` |
/// | `tidegate_gate_latency_seconds` | histogram | `key` |
/// | `tidegate_refusals_total` | counter | `reason`, `key` |
/// | `tidegate_retries_total` | counter | `key` |
/// | `tidegate_backoff_delay_seconds` | histogram | `key` |
/// | `tidegate_hedges_total`, `tidegate_hedges_won_total` | counter | `key` |
/// | `tidegate_calls_failed_total` | counter | `reason`, `key` |
/// | `tidegate_breaker_opened_total`, `tidegate_holds_total` | counter | `key` |
/// | `tidegate_endpoint_paused_total`, `tidegate_endpoint_disabled_total` | counter | `pool`, `endpoint` |
///
/// The label `key` is left out unless [`with_keys`](Self::with_keys) asks for it: a program that calls many
/// hosts would have as many series. For levels, such as rates and waiting asks, take a
/// [`Snapshot`](crate::Snapshot) every few seconds.
///
/// ```
/// use tidegate::Limiter;
/// use tidegate::event::MetricsListener;
///
/// let limiter = Limiter::builder().listener(MetricsListener::new().with_keys()).build();
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MetricsListener {
    has_keys: bool,
}

impl MetricsListener {
    /// Counts without the label `key`.
    pub const fn new() -> Self {
        Self { has_keys: false }
    }

    /// Adds the label `key`. Keys should be few.
    pub const fn with_keys(self) -> Self {
        Self { has_keys: true }
    }

    fn labels(self, key: &str, word: Option<(&'static str, &'static str)>) -> Vec<Label> {
        let key = self.has_keys.then(|| Label::new("key", key.to_owned()));
        let word = word.map(|(name, value)| Label::new(name, value));
        word.into_iter().chain(key).collect()
    }
}

impl EventListener for MetricsListener {
    fn on_event(&self, _at: Timestamp, event: &Event<'_>) {
        match *event {
            Event::Settled {
                key,
                verdict,
                latency,
            } => {
                let verdict = verdict.map_or("none", policy::outcome::Verdict::as_str);
                let labels = self.labels(key, Some(("verdict", verdict)));
                counter!("tidegate_attempts_total", labels).increment(1);
                let labels = self.labels(key, None);
                histogram!("tidegate_gate_latency_seconds", labels).record(latency);
            }
            Event::Admitted { key, waited, .. } => {
                histogram!("tidegate_wait_seconds", self.labels(key, None)).record(waited);
            }
            Event::Refused { key, reason, .. } => {
                let labels = self.labels(key, Some(("reason", reason.as_str())));
                counter!("tidegate_refusals_total", labels).increment(1);
            }
            Event::RetryScheduled { key, delay, .. } => {
                counter!("tidegate_retries_total", self.labels(key, None)).increment(1);
                histogram!("tidegate_backoff_delay_seconds", self.labels(key, None)).record(delay);
            }
            Event::Hedged { key, .. } => {
                counter!("tidegate_hedges_total", self.labels(key, None)).increment(1);
            }
            Event::HedgeWon { key } => {
                counter!("tidegate_hedges_won_total", self.labels(key, None)).increment(1);
            }
            Event::Failed { key, reason, .. } => {
                let labels = self.labels(key, Some(("reason", reason.as_str())));
                counter!("tidegate_calls_failed_total", labels).increment(1);
            }
            Event::BreakerOpened { key, .. } => {
                counter!("tidegate_breaker_opened_total", self.labels(key, None)).increment(1);
            }
            Event::HoldStarted { key, .. } => {
                counter!("tidegate_holds_total", self.labels(key, None)).increment(1);
            }
            Event::EndpointPaused { pool, endpoint, .. } => {
                let labels = endpoint_labels(pool, endpoint);
                counter!("tidegate_endpoint_paused_total", labels).increment(1);
            }
            Event::EndpointDisabled { pool, endpoint, .. } => {
                let labels = endpoint_labels(pool, endpoint);
                counter!("tidegate_endpoint_disabled_total", labels).increment(1);
            }
            Event::Waiting { .. }
            | Event::Abandoned { .. }
            | Event::RateChanged { .. }
            | Event::BreakerClosed { .. }
            | Event::GateOverridden { .. }
            | Event::Refreshed { .. }
            | Event::EndpointEnabled { .. }
            | Event::OperationEnded { .. } => {}
        }
    }
}

fn endpoint_labels(pool: &str, endpoint: &str) -> Vec<Label> {
    vec![
        Label::new("pool", pool.to_owned()),
        Label::new("endpoint", endpoint.to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use metrics::{
        Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    };
    use policy::outcome::Outcome;

    use super::*;
    use crate::clock::ManualClock;
    use crate::limiter::Limiter;

    /// Keeps what is registered, in the order in which that happens.
    #[derive(Clone, Default)]
    struct Registered(Arc<Mutex<Vec<String>>>);

    impl Registered {
        fn keep(&self, key: &Key) {
            let labels: Vec<&str> = key.labels().map(Label::value).collect();
            let text = format!("{} {}", key.name(), labels.join(" "));
            self.0.lock().unwrap().push(text.trim_end().to_owned());
        }
    }

    impl Recorder for Registered {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            self.keep(key);
            Counter::noop()
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            self.keep(key);
            Gauge::noop()
        }

        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            self.keep(key);
            Histogram::noop()
        }
    }

    /// What a throttled attempt counts.
    fn counted(listener: MetricsListener) -> Vec<String> {
        let registered = Registered::default();
        metrics::with_local_recorder(&registered, || {
            let clock = ManualClock::new().clock();
            let limiter = Limiter::builder().clock(clock).listener(listener).build();
            let permit = limiter.try_acquire("api.example.com").unwrap();
            let wait = Some(Duration::from_secs(7));
            permit.settle(&Outcome::throttled(Duration::from_millis(40), wait));
        });
        let registered = registered.0.lock().unwrap();
        registered.clone()
    }

    #[test]
    fn registers_exactly_the_names_and_labels_of_the_table() {
        let registered = Registered::default();
        metrics::with_local_recorder(&registered, || {
            for event in super::super::tests::one_of_each() {
                MetricsListener::new()
                    .with_keys()
                    .on_event(Timestamp::ZERO, &event);
            }
        });
        let mut registered = registered.0.lock().unwrap().clone();
        registered.sort();
        let expected = [
            "tidegate_attempts_total success api.example.com",
            "tidegate_backoff_delay_seconds api.example.com",
            "tidegate_breaker_opened_total api.example.com",
            "tidegate_calls_failed_total exhausted api.example.com",
            "tidegate_endpoint_disabled_total llm a",
            "tidegate_endpoint_paused_total llm a",
            "tidegate_gate_latency_seconds api.example.com",
            "tidegate_hedges_total api.example.com",
            "tidegate_hedges_won_total api.example.com",
            "tidegate_holds_total api.example.com",
            "tidegate_refusals_total rate api.example.com",
            "tidegate_retries_total api.example.com",
            "tidegate_wait_seconds api.example.com",
        ];
        assert_eq!(registered, expected);
        let (table, _) = include_str!("metrics.rs").split_once("```").unwrap();
        let mut documented: Vec<&str> = table
            .split('`')
            .filter(|word| word.starts_with("tidegate_"))
            .collect();
        documented.sort_unstable();
        let names = expected.map(|text| text.split(' ').next().unwrap());
        assert_eq!(documented, names);
    }

    #[test]
    fn counts_by_verdict_and_by_key_only_if_asked() {
        let plain = [
            "tidegate_wait_seconds",
            "tidegate_attempts_total throttled",
            "tidegate_gate_latency_seconds",
            "tidegate_holds_total",
        ];
        assert_eq!(counted(MetricsListener::new()), plain);
        let by_key = plain.map(|text| format!("{text} api.example.com"));
        assert_eq!(counted(MetricsListener::new().with_keys()), by_key);
    }
}
