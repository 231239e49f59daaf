//! One permit for every request: waits for it, sends, and says what came of it.

mod decided;
mod error;
mod future;
mod layer;
mod service;

pub use decided::Decided;
pub use error::LimitError;
pub use future::LimitFuture;
pub use layer::LimitLayer;
pub use service::Limit;
