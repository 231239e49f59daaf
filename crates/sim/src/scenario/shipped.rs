//! Scenarios that come with Tidegate: one for each way in which upstreams limit.

use super::Scenario;

/// A scenario by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// What it is about, in one line.
    pub about: &'static str,
    /// The file.
    pub text: &'static str,
}

impl Shipped {
    /// The scenario of this name.
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
        /// All of them, in order.
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
}
