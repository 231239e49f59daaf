//! Tidegate's policies in virtual time.
//!
//! Nothing here waits, prints or reads a clock: events carry their time, so a day of traffic takes as
//! long as processing its events, and the same events always give the same bytes.
//!
//! [`replay`] runs one policy over events from a file. [`simulate`] runs clients with these policies
//! against an [`upstream`] with a limit, as a [`scenario`] describes them, alone or as nodes of a
//! [`fleet`], which may use many [`keys`]; [`measure`] computes the figures, an [`assertion`] compares them with bounds, and
//! [`report`] shows them with [`plot`]s. [`estimate`] makes a scenario of an access log. [`random`] draws
//! upstreams on which a strategy was not tuned.

pub mod assertion;
pub mod check;
pub mod client;
mod draw;
pub mod estimate;
pub mod fleet;
pub mod keys;
pub mod load;
pub mod measure;
pub mod plot;
pub mod random;
pub mod replay;
pub mod report;
pub mod scenario;
pub mod simulate;
pub mod swarm;
pub mod upstream;
pub mod world;

/// The whole part of a number; zero if it is negative or NaN.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates and turns NaN into zero"
)]
fn whole(value: f64) -> u64 {
    value as u64
}
