//! Whole fetches over HTTP from mocks, in virtual time: the pace at hidden limits, and what a gate
//! makes of scripted responses.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code; clippy knows only functions marked as tests"
)]

mod limits;
mod scripted;
mod virtual_time;
