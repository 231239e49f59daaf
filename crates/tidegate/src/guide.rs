//! The guide: one page for each task.
//!
//! Every block of code in it is compiled and run by the tests. Those that wait do so in virtual
//! time: hidden lines around them start a tokio runtime whose clock is paused, see [`time`].
//!
//! | page | you want to |
//! |---|---|
//! | [`keys`] | decide what a gate is for |
//! | [`waiting`] | ask, wait, or not wait |
//! | [`settling`] | report the outcome of an attempt, so that gates learn |
//! | [`settings`] | change numbers, for one host or for all, also at run time |
//! | [`calls`] | make a request, with safe retries |
//! | `http`, with the feature `tower` | put it around reqwest, hyper or a stack of tower |
//! | [`pools`] | use several endpoints that can do the same work |
//! | [`time`] | test your own code without waiting |
//! | [`events`] | feed logs, metrics and dashboards |
//! | [`persistence`] | carry learned state over a restart |
//! | [`performance`] | know what it costs |
//! | [`coming_from`] | move here from governor, backon, tower's retry or reqwest-retry |

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
