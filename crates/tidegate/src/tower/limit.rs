//! One permit per request: waits for it, sends, and reports the outcome.

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
