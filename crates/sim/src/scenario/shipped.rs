//! Scenarios that come with Tidegate: one per kind of limit, and a few per policy that show its
//! behaviour.

use super::Scenario;

/// A scenario by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// A one-line description.
    pub about: &'static str,
    /// The file.
    pub text: &'static str,
}

impl Shipped {
    /// The scenario with this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        SHIPPED.iter().find(|shipped| shipped.name == name)
    }

    /// The scenario itself.
    pub fn scenario(&self) -> Scenario {
        Scenario::read(self.name, self.text.as_bytes())
            .expect("a test reads every shipped scenario")
    }
}

macro_rules! shipped {
    ($($name:literal, $about:literal;)*) => {
        /// All scenarios, in order.
        pub const SHIPPED: &[Shipped] = &[$(Shipped {
            name: $name,
            about: $about,
            text: include_str!(concat!("../../scenarios/", $name, ".toml")),
        }),*];
    };
}

shipped! {
    "o1", "token bucket of 50/s, 429 without Retry-After";
    "o2", "fixed window of 600 a minute, 429 with Retry-After";
    "o3", "fixed window of 300 in 10 s, headers on every answer, no Retry-After";
    "o4", "20 slots of 100 ms with a queue of 200: latency rises before anything is refused";
    "o5", "token bucket of 100/s that becomes 20/s after a minute and 200/s after two";
    "o6", "40 slots of 80 ms, 3 % of the answers are random 500s";
    "o7", "token bucket of 100/s, dead from 60 s to 90 s";
    "o8", "2 clients that know nothing of each other share a token bucket of 100/s";
    "o8-4", "the same with 4 clients";
    "o8-8", "the same with 8 clients";
    "o8-16", "the same with 16 clients";
    "o9", "one request in two seconds; five too many in 30 s are a ban of a minute";
    "tokens", "a language model: 500 requests and 90 000 tokens a minute, headers on every answer";
    "fleet-8", "8 nodes share a token bucket of 100/s through a store";
    "fleet-64", "the same with 64 nodes";
    "fleet-killed", "the store of 8 nodes is killed for 30 s and comes back empty";
    "fleet-flushed", "the store of 8 nodes loses everything, twice, and one message in a hundred";
    "fleet-partition", "4 of 8 nodes do not reach their store for 30 s";
    "fleet-nodes", "nodes join, are killed and start again";
    "poll-normal", "a job of 45 s is followed to its end";
    "poll-limited", "the same with 14 status requests a minute: three are refused, and the client slows down";
    "backoff-outage-standard", "an outage of 10 s and the standard preset";
    "backoff-outage-exhausted", "an outage without end: every preset gives up after its attempts";
    "backoff-outage-retry-after", "an outage of two minutes, announced by Retry-After";
    "backoff-many", "a hundred operations at once, half of them refused with Retry-After";
    "queue-empty", "a failure queue without failures: the base gap";
    "queue-single-failure", "one failure doubles the gap";
    "queue-many-failures", "five failures: six times the gap";
    "queue-successes", "every success takes a failure back";
    "queue-aging", "failures are forgotten, also while one waits";
    "queue-full", "a hundred failures: the longest gap there is";
    "protection-single-error", "one 429 pauses an endpoint for 30 s";
    "protection-repeated-errors", "three errors pause it for 30, 60 and 120 s";
    "protection-success-recovery", "a success between errors: pauses begin anew";
    "protection-auto-disable", "five errors in a row disable it";
    "protection-other-endpoints", "one of three endpoints is paused, the others go on";
    "aimd-fast", "aimd before a fast server: up to its maximum";
    "aimd-slow", "aimd before a slow server: down to its minimum";
    "aimd-throttling", "aimd before a limit of 5/s";
    "aimd-failing", "aimd before a server that fails for a minute: its breaker";
}
