//! Virtual time over Tidegate's policies.
//!
//! Nothing here waits, prints or reads a clock: time is whatever the events say it is, so a day of
//! traffic passes in the time it takes to read it, and the same events always give the same bytes.

pub mod replay;
pub mod written;
