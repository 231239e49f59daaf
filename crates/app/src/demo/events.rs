//! Events of the demo as sentences.
//!
//! Only the important ones are shown: rates that fall, holds, breakers, endpoints. Times are those
//! since the start of the demo.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use policy::duration::Rounded;
use policy::hint::Source;
use policy::rate::Why;
use tidegate::Timestamp;
use tidegate::event::{Event, EventListener};

/// An event of the demo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoEvent {
    /// When, since the start.
    pub at: Duration,
    /// The upstream, or one of its servers.
    pub who: String,
    /// What happened, as a sentence.
    pub what: String,
}

/// The last events.
#[derive(Debug)]
pub(super) struct EventFeed {
    began: Timestamp,
    events: Mutex<VecDeque<DemoEvent>>,
    /// Endpoints that are paused (`false`) or disabled: an `EndpointEnabled` of another one is not
    /// shown.
    away: Mutex<BTreeMap<String, bool>>,
}

impl EventFeed {
    pub(super) fn new(began: Timestamp) -> Self {
        Self {
            began,
            events: Mutex::default(),
            away: Mutex::default(),
        }
    }

    /// The last events, the oldest first.
    pub(super) fn events(&self) -> Vec<DemoEvent> {
        self.lock().iter().cloned().collect()
    }

    pub(super) fn add(&self, at: Timestamp, who: &str, what: String) {
        let at = self.since(at);
        let who = shown(who);
        let mut events = self.lock();
        // Ten requests in flight cause the same event ten times, with other numbers.
        let is_old = |known: &DemoEvent| {
            known.who == who && topic(&known.what) == topic(&what) && at < known.at + REPEAT_AFTER
        };
        if events.iter().rev().take(MAX_EVENTS).any(is_old) {
            return;
        }
        if events.len() >= MAX_EVENTS {
            events.pop_front();
        }
        events.push_back(DemoEvent { at, who, what });
    }

    fn add_away(&self, at: Timestamp, who: String, is_disabled: bool, what: String) {
        self.add(at, &who, what);
        *self.away().entry(who).or_default() |= is_disabled;
    }

    fn away(&self) -> MutexGuard<'_, BTreeMap<String, bool>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn since(&self, at: Timestamp) -> Duration {
        at.since(self.began)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<DemoEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold(&self, at: Timestamp, until: Timestamp, source: Source) -> String {
        let end = seconds(self.since(until));
        match source {
            Source::Assumed => {
                let wait = Rounded(until.since(at));
                format!("refused repeatedly → nothing is sent for {wait}")
            }
            Source::RetryAfter => {
                let wait = Rounded(until.since(at));
                format!("429 with Retry-After {wait} → all requests wait until {end}")
            }
            Source::Counted => {
                format!("the window has accepted its number → all requests wait until {end}")
            }
            _ => format!("headers say that nothing remains → all requests wait until {end}"),
        }
    }
}

/// As many as fit on a tall terminal.
const MAX_EVENTS: usize = 20;

/// An event that repeats within this time is left out.
const REPEAT_AFTER: Duration = Duration::from_secs(2);

/// The text up to the first number, which identifies the kind of event.
fn topic(what: &str) -> &str {
    let end = what.find(|c: char| c.is_ascii_digit() && !what.starts_with(c));
    end.map_or(what, |end| &what[..end])
}

impl EventListener for EventFeed {
    fn on_event(&self, at: Timestamp, event: &Event<'_>) {
        match *event {
            Event::HoldStarted { key, until, source } => {
                self.add(at, key, self.hold(at, until, source));
            }
            Event::RateChanged { key, from, to, why } if to < from => {
                if let Some(reason) = lowered(why) {
                    self.add(at, key, format!("{reason} → {from:.1}/s becomes {to:.1}/s"));
                }
            }
            Event::BreakerOpened { key, until } => {
                let next = match until {
                    Some(until) => format!("next probe at {}", seconds(self.since(until))),
                    None => "until a person releases it".to_owned(),
                };
                self.add(at, key, format!("it fails → breaker open, {next}"));
            }
            Event::BreakerClosed { key } => {
                self.add(at, key, "it works again → breaker closed".to_owned());
            }
            Event::EndpointPaused {
                pool,
                endpoint,
                until,
                errors,
                ..
            } => {
                let end = seconds(self.since(until));
                let what = format!(
                    "error {errors} in a row → paused until {end}, the other endpoints continue"
                );
                self.add_away(at, format!("{pool}/{endpoint}"), false, what);
            }
            Event::EndpointDisabled { pool, endpoint, .. } => {
                let what = "too many errors in a row → disabled until a person enables it";
                self.add_away(at, format!("{pool}/{endpoint}"), true, what.to_owned());
            }
            Event::EndpointEnabled { pool, endpoint } => {
                let who = format!("{pool}/{endpoint}");
                let was_disabled = self.away().remove(&who);
                // A success does not enable a disabled endpoint.
                let what = match was_disabled {
                    Some(true) => "enabled → the endpoint is used again",
                    Some(false) => "a request succeeded → the endpoint is back",
                    None => return,
                };
                self.add(at, &who, what.to_owned());
            }
            _ => {}
        }
    }
}

/// Why a rate fell; `None` if another event shows it.
fn lowered(why: Why) -> Option<&'static str> {
    match why {
        Why::Throttled => Some("refused without Retry-After"),
        Why::SlowAnswers => Some("responses became slow"),
        Why::Banned => Some("banned for being refused too often"),
        Why::Failed => Some("it fails"),
        Why::NearlyUsedUp => Some("the window's quota is nearly used up"),
        Why::Initial
        | Why::FastAnswers
        | Why::QuotaRenewed
        | Why::Directed
        | Why::Recovered
        | Why::Restored
        | Why::Settings => None,
    }
}

/// A time since the start.
pub(super) fn seconds(at: Duration) -> String {
    format!("{:.1}s", at.as_secs_f64())
}

/// A gate's key as shown: the upstream's name if it has one server.
pub(super) fn shown(key: &str) -> String {
    key.strip_suffix("/only").unwrap_or(key).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(events: &[(u64, Event<'_>)]) -> String {
        let feed = EventFeed::new(Timestamp::from_secs(100));
        for (millis, event) in events {
            let at = Timestamp::from_secs(100) + Duration::from_millis(*millis);
            feed.on_event(at, event);
        }
        let lines = feed.events().into_iter();
        let lines =
            lines.map(|DemoEvent { at, who, what }| format!("{}  {who}: {what}\n", seconds(at)));
        lines.collect()
    }

    #[test]
    fn describes_events_in_sentences() {
        let until = Timestamp::from_secs(122);
        let text = text(&[
            (
                15_200,
                Event::HoldStarted {
                    key: "polite/only",
                    until,
                    source: Source::RetryAfter,
                },
            ),
            (
                15_900,
                Event::HoldStarted {
                    key: "quota/only",
                    until,
                    source: Source::XRatelimitReset,
                },
            ),
            (
                16_000,
                Event::RateChanged {
                    key: "steady/only",
                    from: 52.04,
                    to: 36.4,
                    why: Why::Throttled,
                },
            ),
            (
                16_100,
                Event::RateChanged {
                    key: "steady/only",
                    from: 36.4,
                    to: 37.0,
                    why: Why::FastAnswers,
                },
            ),
            (
                17_000,
                Event::BreakerOpened {
                    key: "pool/b",
                    until: Some(until),
                },
            ),
            (
                17_100,
                Event::EndpointPaused {
                    pool: "pool",
                    endpoint: "b",
                    until,
                    errors: 2,
                    source: Source::Assumed,
                },
            ),
            (
                22_500,
                Event::EndpointEnabled {
                    pool: "pool",
                    endpoint: "b",
                },
            ),
        ]);
        insta::assert_snapshot!(text, @"
        15.2s  polite: 429 with Retry-After 7s → all requests wait until 22.0s
        15.9s  quota: headers say that nothing remains → all requests wait until 22.0s
        16.0s  steady: refused without Retry-After → 52.0/s becomes 36.4/s
        17.0s  pool/b: it fails → breaker open, next probe at 22.0s
        17.1s  pool/b: error 2 in a row → paused until 22.0s, the other endpoints continue
        22.5s  pool/b: a request succeeded → the endpoint is back
        ");
    }

    #[test]
    fn adds_a_repeated_event_once() {
        let event = Event::BreakerClosed { key: "pool/b" };
        let text = text(&[(1000, event), (1100, event), (1299, event), (5000, event)]);
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn keeps_the_last_events() {
        let event = Event::BreakerClosed { key: "pool/b" };
        let events: Vec<_> = (0..100).map(|second| (second * 1000, event)).collect();
        assert_eq!(text(&events).lines().count(), MAX_EVENTS);
    }
}
