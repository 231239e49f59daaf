//! Send as fast as they will take, never faster.
//!
//! Tidegate is for programs that call APIs and sites they do not own. For every server it keeps a
//! *gate*, which decides when a request may leave, how long it waits and when to stop asking; it
//! learns that from every answer. Retries, pools of endpoints and refreshed credentials go through
//! the same gates, so that no part of a program undoes what another has learned.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tidegate::{AttemptResult, Limiter};
//!
//! # async fn fetch(_url: &str) -> (u16, String) { (200, "hello".to_owned()) }
//! let limiter = Limiter::new(); // one for the whole program; clones are the same
//! let called = limiter
//!     .call("api.example.com")
//!     .run(async |attempt| {
//!         let (status, body) = fetch("https://api.example.com/items").await;
//!         AttemptResult::new(body, attempt.status(status))
//!     })
//!     .await?;
//! assert_eq!(called.value, "hello");
//! # Ok(())
//! # }
//! ```
//!
//! That waits for the gate, sends, learns from the answer, and sends again if that makes sense and
//! does no harm. Without retries, the same is three steps: [`Limiter::acquire`], send,
//! [`Permit::settle`].
//!
//! # The parts
//!
//! | part | what it is | guide |
//! |---|---|---|
//! | [`Limiter`] | all gates of a program, by key | [keys](guide::keys), [settings](guide::settings) |
//! | [`Ask`], [`Refusal`] | how long you would wait, and why not | [waiting](guide::waiting) |
//! | [`Permit`], [`Outcome`] | the right to send, and what came of it | [settling](guide::settling) |
//! | [`Call`] | something to be done, over all its attempts | [calls](guide::calls) |
//! | [`Pool`] | endpoints that can do the same work | [pools](guide::pools) |
//! | [`poll`] | following a job's status until it ends | [calls](guide::calls) |
//! | [`pace`] | work paced by its recent failures | the module |
//! | [`Credential`] | a token that is refreshed once for all | [calls](guide::calls) |
//! | `http`, `tower` | from HTTP to outcomes; middleware | `guide::http` |
//! | [`Clock`], [`ManualClock`] | time, real or yours | [time](guide::time) |
//! | [`event`], [`Snapshot`] | what happens, and how things are | [events](guide::events) |
//!
//! The decisions themselves are in the crate [`policy`]. Those of its types that this API takes or
//! gives are here too, under their own names.
//!
//! # Features
//!
//! Nothing is on by default, and no runtime is needed: waiting works under every executor.
//!
//! | feature | what it adds |
//! |---|---|
//! | `http` | module `http`: keys, outcomes and failures from the types that HTTP clients share |
//! | `tower` | module `tower`: layers that ask for permits and retry; with it comes `http` |
//! | `tokio` | `Clock::tokio`, so that tests with paused time work |
//!
//! # What it costs
//!
//! An ask that is granted is one read of the clock, one hash and one lock, and allocates nothing;
//! settling hashes no more. A gate with its key's place takes 256 bytes, and all memory has a
//! bound. One thread wakes what waits. [More](guide::performance).
//!
//! # What it does not do
//!
//! - **Send.** Your client does, whatever it is. Switch its own retries off, or gates see one
//!   attempt where there were several.
//! - **Count across processes.** Two processes are two limiters, and each learns its share.
//! - **Hold others to a limit.** It is for the side that asks. To limit the callers of *your* service, a
//!   plain rate limiter is simpler.
//! - **Read bodies.** Who has read one can say what it meant.
//! - **Block a thread.** Waiting is async; [`Limiter::try_acquire`] never waits.

mod ask;
pub mod call;
pub mod clock;
mod credential;
pub mod event;
// Most of its examples wait by the clock of a paused runtime.
#[cfg(any(not(doctest), feature = "tokio"))]
pub mod guide;
#[cfg(feature = "http")]
pub mod http;
mod limiter;
pub mod pace;
mod permit;
pub mod poll;
pub mod pool;
mod registry;
mod settings;
mod sync;
#[cfg(feature = "tower")]
pub mod tower;
mod waiters;
mod waking;

pub use ask::{Ask, Refusal};
pub use call::{Attempt, AttemptResult, Call, CallError, CallResult};
pub use clock::{Clock, ManualClock};
pub use credential::{Credential, Refresh, RefreshFuture};
pub use limiter::{GateView, Limiter, LimiterBuilder, Snapshot, Sort, Totals};
pub use permit::{InFlight, Permit};
pub use pool::{Pool, PoolPermit, PoolRefusal, RefusalReason};
pub use settings::HostSettings;

/// Every decision, as plain state machines without clock and IO; here so that one dependency is
/// enough.
pub use policy;

pub use policy::backoff::{BackoffOptions, BackoffSettings};
pub use policy::budget::{BudgetOptions, BudgetSettings};
pub use policy::gate::{GateOptions, GateOverride, GateRecord, GateSettings, Reason};
pub use policy::hint::Hint;
pub use policy::hosts::{HostPattern, Hosts};
pub use policy::item::{ItemKind, Safety, TerminalReason};
pub use policy::ladder::{LadderOptions, LadderRecord, LadderSettings};
pub use policy::line::Class;
pub use policy::outcome::{Failure, Outcome, Phase, Verdict};
pub use policy::pool::Balance;
pub use policy::preset::Preset;
pub use policy::rate::Strategy;
pub use policy::setting::{SettingError, SettingErrors};
pub use policy::time::{Timestamp, WallTime};
