//! Send as fast as they will take, never faster.

mod ask;
pub mod call;
pub mod clock;
mod credential;
pub mod event;
mod limiter;
mod permit;
pub mod pool;
mod registry;
mod settings;
mod sync;
mod waking;

pub use ask::{Ask, Refusal};
pub use call::{Answered, Attempt, Call, CallError, Called};
pub use clock::{Clock, ManualClock};
pub use credential::{Credential, Making, Refresh};
pub use limiter::{GateView, Limiter, LimiterBuilder, Snapshot, Sort, Totals};
pub use permit::Permit;
pub use pool::{Pool, PoolPermit, PoolRefusal};
pub use settings::HostSettings;

pub use policy::gate::{GateOptions, GateSettings, Reason};
pub use policy::outcome::{Failure, Outcome, Phase, Verdict};
