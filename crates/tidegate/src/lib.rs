//! Send as fast as they will take, never faster.
//!
//! Tidegate is for programs that call APIs and sites they do not own. It has a *gate* for every
//! server. The gate decides when a request may be sent, how long it waits and when to stop, and
//! learns from every response. Retries, pools of endpoints and refreshed credentials use the same
//! gates, so no part of a program undoes what another has learned.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tidegate::Limiter;
//!
//! # async fn fetch(_url: &str) -> std::io::Result<http::Response<String>> {
//! #     Ok(http::Response::new("hello".to_owned()))
//! # }
//! let limiter = Limiter::new(); // one per program; clones share it
//! let called = limiter
//!     .call("api.example.com")
//!     .run(async |attempt| {
//!         let response = fetch("https://api.example.com/items").await?;
//!         // The headers too: they may name a wait (Retry-After) or a limit.
//!         let outcome = attempt.response(response.status().as_u16(), response.headers());
//!         // The body too: it may say that a quota is used up.
//!         Ok(attempt.classify(outcome, response.into_body()))
//!     })
//!     .await?;
//! assert_eq!(called.value, "hello");
//! # Ok(())
//! # }
//! ```
//!
//! This waits for the gate, sends, learns from the response, and resends if that is useful and
//! safe. With the feature `reqwest`, it is one line: `limiter.send(&client, request).await?`. Without
//! retries, it takes three steps: [`Limiter::acquire`], send, [`Permit::settle`].
//!
//! # The parts
//!
//! | part | what it is | guide |
//! |---|---|---|
//! | [`Limiter`] | all gates of a program, by key | [keys](guide::keys), [settings](guide::settings) |
//! | [`Ask`], [`Refusal`] | a request for a permit, and why it was refused | [waiting](guide::waiting) |
//! | [`Permit`], [`Outcome`] | the right to send, and the result | [settling](guide::settling) |
//! | [`Call`] | one request over all its attempts | [calls](guide::calls) |
//! | [`Pool`] | interchangeable endpoints | [pools](guide::pools) |
//! | [`poll`] | following a job's status until it ends | [calls](guide::calls) |
//! | [`pace`] | work paced by its recent failures | the module |
//! | [`Credential`] | a token with single-flight refresh | [calls](guide::calls) |
//! | `reqwest`, `http`, `tower` | a client; outcomes from HTTP; middleware | `guide::http` |
//! | [`Clock`], [`ManualClock`] | real and virtual time | [time](guide::time) |
//! | [`event`], [`Snapshot`] | what happens, and the current state | [events](guide::events) |
//!
//! The decisions are made by the crate `tidegate-policy`. Its types that appear in this API are
//! re-exported here.
//!
//! # Features
//!
//! No feature is on by default, and no runtime is needed: waiting works under every executor.
//!
//! | feature | what it adds |
//! |---|---|
//! | `http` | module `http`: keys, outcomes and failures from the types that HTTP clients share |
//! | `reqwest` | `Limiter::send`: requests of reqwest in one line; implies `http` |
//! | `reqwest-middleware` | the same as middleware of that crate |
//! | `tower` | module `tower`: layers that acquire permits and retry; implies `http` |
//! | `tokio` | `Clock::tokio`, so that tests with paused time work |
//! | `serde` | `Limiter::save` and `load`: what gates have learned, for any format of serde; module `options`: settings in files |
//! | `metrics` | `event::MetricsListener`: counters and histograms for the crate `metrics` |
//! | `tracing` | `event::TracingListener`: events for the crate `tracing` |
//!
//! # What it costs
//!
//! A granted ask reads the clock once, hashes once and takes one lock; it does not allocate.
//! Settling does not hash. A [`Call`] reads the clock a few times more. A gate takes 256 bytes plus the
//! text of its key, and all memory is bounded. One thread wakes all waiters.
//! [More](guide::performance).
//!
//! # What it does not do
//!
//! - **Connect to servers.** Your client does. Disable its own retries, or gates will see one attempt
//!   where there were several.
//! - **Count across processes** by itself. Two processes are two limiters, and each learns its share,
//!   unless a task connects them through a store: [`fleet`].
//! - **Limit your own callers.** It is for the client side. To limit the callers of *your* service,
//!   a plain rate limiter is simpler.
//! - **Read bodies.** Code that reads the body can report what it meant.

mod ask;
mod block_on;
pub mod call;
pub mod clock;
mod credential;
pub mod event;
#[cfg_attr(
    not(feature = "http"),
    expect(dead_code, unreachable_pub, reason = "it is public as part of `http`")
)]
mod failure;
pub mod fleet;
// Most of its examples wait on the clock of a paused runtime.
#[cfg(any(not(doctest), feature = "tokio"))]
pub mod guide;
#[cfg(feature = "http")]
pub mod http;
mod limiter;
#[cfg(feature = "serde")]
pub mod options;
pub mod pace;
mod permit;
pub mod poll;
pub mod pool;
mod registry;
#[cfg(feature = "reqwest")]
pub mod reqwest;
#[cfg(feature = "serde")]
mod saved;
mod settings;
mod sync;
#[cfg(any(feature = "tower", feature = "reqwest"))]
mod terms;
#[cfg(feature = "tower")]
pub mod tower;
mod waiters;
mod waking;

pub use ask::{Ask, Refusal};
pub use call::{Attempt, AttemptError, AttemptResult, Call, CallError, CallResult};
pub use clock::{Clock, ManualClock};
pub use credential::{Credential, Refresh, RefreshError, RefreshFuture};
pub use limiter::{
    AcquireOwned, GateView, Limiter, LimiterBuilder, Snapshot, Sort, TooManyHosts, Totals,
};
pub use permit::{InFlight, Permit};
pub use pool::{Pool, PoolPermit, PoolRefusal, RefusalReason};
#[cfg(feature = "serde")]
pub use saved::SavedGates;
pub use settings::HostSettings;

/// Classification of responses, hints about pace, keys of hosts: what code needs that reads responses
/// itself.
pub use policy::{classify, hint, key};

pub use policy::backoff::{BackoffOptions, BackoffSettings};
pub use policy::breaker::{BreakerRecord, BreakerState};
pub use policy::budget::{BudgetOptions, BudgetSettings};
pub use policy::classify::Classification;
pub use policy::gate::{
    CostRecord, CostSnapshot, GateOptions, GateOverride, GateRecord, GateSettings, GateSnapshot,
    Reason,
};
pub use policy::hedge::Hedge;
pub use policy::hint::Hint;
pub use policy::hosts::{HostPattern, HostPatternError, Hosts};
pub use policy::item::{DelaySource, ItemKind, ResendReason, Safety, TerminalReason};
pub use policy::jitter::RetryAfterJitter;
pub use policy::ladder::{Disabled, LadderOptions, LadderRecord, LadderSettings};
pub use policy::limits::Limit;
pub use policy::line::Class;
pub use policy::outcome::{Failure, Outcome, Phase, UpstreamResponse, Verdict};
pub use policy::pool::Balance;
pub use policy::preset::Preset;
pub use policy::rate::{CeilingSource, Phase as RatePhase, RateView, Strategy, Why};
pub use policy::setting::{SettingError, SettingErrors, ValueError};
pub use policy::time::{Timestamp, WallTime};
pub use policy::window::Counts;
