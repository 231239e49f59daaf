//! The guide: one page for each task.
//!
//! Every code block is compiled and run by the tests. Blocks that wait do so in virtual time:
//! hidden lines around them start a tokio runtime with a paused clock, see [`time`].
//!
//! | page | you want to |
//! |---|---|
//! | [`keys`] | decide what a gate is for |
//! | [`waiting`] | ask, wait, or not wait |
//! | [`settling`] | report the outcome of an attempt, so that the gate can learn |
//! | [`settings`] | change settings, for one host or all, also at run time |
//! | [`calls`] | make a request, with safe retries |
//! | `http`, with the feature `tower` | wrap reqwest, hyper or a tower stack |
//! | [`pools`] | use several endpoints that can do the same work |
//! | [`time`] | test your own code without waiting |
//! | [`events`] | feed logs, metrics and dashboards |
//! | [`persistence`] | carry learned state over a restart |
//! | [`performance`] | see what it costs |
//! | [`coming_from`] | migrate from governor, backon, tower's retry or reqwest-retry |

#[doc = include_str!("guide/keys.md")]
pub mod keys {}

#[doc = include_str!("guide/waiting.md")]
pub mod waiting {}

#[doc = include_str!("guide/settling.md")]
pub mod settling {}

#[doc = include_str!("guide/settings.md")]
pub mod settings {}

#[doc = include_str!("guide/calls.md")]
pub mod calls {}

#[cfg(feature = "tower")]
#[doc = include_str!("guide/http.md")]
pub mod http {}

#[doc = include_str!("guide/pools.md")]
pub mod pools {}

#[doc = include_str!("guide/time.md")]
pub mod time {}

#[doc = include_str!("guide/events.md")]
pub mod events {}

#[doc = include_str!("guide/persistence.md")]
pub mod persistence {}

#[doc = include_str!("guide/performance.md")]
pub mod performance {}

#[doc = include_str!("guide/coming_from.md")]
pub mod coming_from {}
