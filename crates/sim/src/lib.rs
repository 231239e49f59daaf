//! Virtual time over Tidegate's policies.
//!
//! Nothing here waits, prints or reads a clock: time is whatever the events say it is, so a day of
//! traffic passes in the time it takes to read it, and the same events always give the same bytes.
//!
//! [`replay`] plays events that somebody wrote down against one policy. [`simulate`] makes its own
//! events: clients driven by the policies call an [`upstream`] with a limit, as a [`scenario`]
//! describes them, [`measure`] says what that came to, an [`assertion`] whether it is enough, and
//! [`report`] shows it.

pub mod assertion;
pub mod check;
pub mod client;
pub mod load;
pub mod measure;
mod number;
pub mod replay;
pub mod report;
pub mod scenario;
pub mod simulate;
pub mod swarm;
pub mod upstream;
pub mod world;
pub mod written;
