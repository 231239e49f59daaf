//! Asks and refusals.

use std::time::Duration;

use policy::duration::Rounded;
use policy::gate::{self, GateSettings, Reason};
use policy::line::Class;
use policy::time::Timestamp;

/// A request for a permit: for which key, and how long it may wait.
///
/// Functions that take an ask also take a `&str`, for an ask with all defaults: one token,
/// interactive, waiting up to the gate's `max_wait`.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Ask;
///
/// let ask = Ask::new("api.example.com")
///     .also(&["account:42"])
///     .cost(3)
///     .within(Duration::from_secs(5))
///     .background();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    pub(crate) key: &'a str,
    pub(crate) also: &'a [&'a str],
    pub(crate) cost: u32,
    pub(crate) max_wait: MaxWait,
    pub(crate) class: Class,
}

/// How long an ask may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaxWait {
    /// As long as the gate's `max_wait`.
    Default,
    Within(Duration),
    Until(Timestamp),
    /// Not at all.
    FailFast,
}

impl<'a> Ask<'a> {
    /// An interactive ask for one token at the gate of `key`.
    pub const fn new(key: &'a str) -> Self {
        Self {
            key,
            also: &[],
            cost: 1,
            max_wait: MaxWait::Default,
            class: Class::Interactive,
        }
    }

    /// An ask without a key, for a pool's endpoints or a list of keys.
    pub const fn any() -> Self {
        Self::new("")
    }

    /// All its keys, without duplicates.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let (first, also) = (self.key, self.also);
        let others = also
            .iter()
            .enumerate()
            .filter(move |(index, key)| **key != first && !also[..*index].contains(key));
        std::iter::once(first).chain(others.map(|(_, key)| *key))
    }

    /// Also requires permits from these gates, all or none, for example when an attempt counts
    /// against a host and an account.
    pub const fn also(self, keys: &'a [&'a str]) -> Self {
        Self { also: keys, ..self }
    }

    /// Takes this many tokens; zero counts as one. If the cost is only known afterwards, correct it
    /// with [`Outcome::used`](policy::outcome::Outcome::used).
    pub const fn cost(self, cost: u32) -> Self {
        Self { cost, ..self }
    }

    /// Bounds the wait; the gate's `max_wait` still applies. Zero means no wait. In a
    /// [`Call`](crate::Call), bounds all its waits together: no attempt starts later, and the call ends
    /// as `expired`.
    pub const fn within(self, wait: Duration) -> Self {
        Self {
            max_wait: MaxWait::Within(wait),
            ..self
        }
    }

    /// Waits until this time on the limiter's clock at most, and never longer than the gate's
    /// `max_wait`. In a [`Call`](crate::Call), no attempt starts later.
    pub const fn until(self, deadline: Timestamp) -> Self {
        Self {
            max_wait: MaxWait::Until(deadline),
            ..self
        }
    }

    /// Never waits: it is admitted at once, or refused. In a [`Call`](crate::Call), a refusal ends the
    /// call, and a resend that its gate does not admit at once is not made.
    pub const fn fail_fast(self) -> Self {
        Self {
            max_wait: MaxWait::FailFast,
            ..self
        }
    }

    /// How long it may wait from now by its own bound; `None` if it has none.
    pub(crate) fn bound(&self, now: Timestamp) -> Option<Duration> {
        match self.max_wait {
            MaxWait::Within(wait) => Some(wait),
            MaxWait::Until(deadline) => Some(deadline.since(now)),
            MaxWait::Default | MaxWait::FailFast => None,
        }
    }

    pub(crate) fn is_fail_fast(&self) -> bool {
        self.max_wait == MaxWait::FailFast
    }

    /// Lets interactive asks go first, but still gets at least every eighth turn.
    pub const fn background(self) -> Self {
        Self {
            class: Class::Background,
            ..self
        }
    }

    /// The same ask, reduced to one gate.
    pub(crate) const fn alone_at(self, key: &'a str) -> Self {
        Self {
            key,
            also: &[],
            ..self
        }
    }

    /// The same ask, before all others in line.
    pub(crate) const fn in_front(self) -> Self {
        Self {
            class: Class::Front,
            ..self
        }
    }

    /// The same ask without its keys.
    pub(crate) const fn without_keys(self) -> Ask<'static> {
        Ask {
            key: "",
            also: &[],
            cost: self.cost,
            max_wait: self.max_wait,
            class: self.class,
        }
    }

    /// The ask, made at `asked_at`, as passed to a gate with these settings.
    pub(crate) fn at_gate(&self, settings: &GateSettings, asked_at: Timestamp) -> gate::Ask {
        let longest = asked_at + settings.max_wait();
        gate::Ask {
            cost: self.cost,
            deadline: match self.max_wait {
                MaxWait::Default => longest,
                MaxWait::Within(wait) => longest.min(asked_at + wait),
                MaxWait::Until(deadline) => longest.min(deadline),
                MaxWait::FailFast => asked_at,
            },
            class: self.class,
            waits_for_breaker: true,
        }
    }
}

/// An ask that owns its keys.
pub(crate) struct OwnedAsk {
    key: String,
    pub(crate) also: Vec<String>,
    ask: Ask<'static>,
}

impl From<Ask<'_>> for OwnedAsk {
    fn from(ask: Ask<'_>) -> Self {
        Self {
            key: ask.key.to_owned(),
            also: ask.also.iter().map(|&key| key.to_owned()).collect(),
            ask: ask.without_keys(),
        }
    }
}

impl OwnedAsk {
    /// The ask, with its other keys.
    pub(crate) fn borrowed<'a>(&'a self, also: &'a [&'a str]) -> Ask<'a> {
        Ask {
            also,
            ..self.ask.alone_at(&self.key)
        }
    }
}

impl<'a> From<&'a str> for Ask<'a> {
    fn from(key: &'a str) -> Self {
        Self::new(key)
    }
}

impl<'a> From<&'a String> for Ask<'a> {
    fn from(key: &'a String) -> Self {
        Self::new(key)
    }
}

/// Why no permit was granted, and when asking again may help.
///
/// Nothing was sent and no token was used. Asking again before [`Refusal::until`] is pointless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}", describe(self.reason), later(self.wait))]
pub struct Refusal {
    reason: Reason,
    until: Option<Timestamp>,
    wait: Option<Duration>,
}

impl Refusal {
    pub(crate) fn new(reason: Reason, until: Option<Timestamp>, now: Timestamp) -> Self {
        Self {
            reason,
            until,
            wait: until.map(|until| until.since(now)),
        }
    }

    /// Why.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// When asking again may help, on the limiter's clock; `None` if that is unknown.
    pub fn until(&self) -> Option<Timestamp> {
        self.until
    }

    /// The time from the refusal to [`until`](Self::until): the value for a `Retry-After`.
    pub fn wait(&self) -> Option<Duration> {
        self.wait
    }
}

fn describe(reason: Reason) -> &'static str {
    match reason {
        Reason::Rate => "not yet: the gate's rate or a known limit",
        Reason::Hold => "not yet: the server asked for a delay (Retry-After)",
        Reason::BreakerOpen => "not now: the breaker is open",
        Reason::InFlight => "not yet: the maximum number of attempts is in flight",
        Reason::QueueFull => "not now: the line is full",
        Reason::Deadline => "not in time: it could not be admitted before its deadline",
        Reason::TooManyGates => {
            "not now: the maximum number of gates is in use and none can be evicted"
        }
        Reason::RetryBudget => "not yet: the retry budget is used up",
    }
}

fn later(wait: Option<Duration>) -> String {
    wait.map(|wait| format!("; ask again in {}", Rounded(wait)))
        .unwrap_or_default()
}
