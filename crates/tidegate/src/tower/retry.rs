//! As many attempts as a request may have, each with a permit of its own.
//!
//! The loop is that of [`Call`](crate::Call), and what may be sent again and when is for
//! [`policy::item`] to say. Here requests are cloned, and answers turned into outcomes.

mod error;
mod future;
mod layer;
mod service;

pub use error::RetryError;
pub use future::RetryFuture;
pub use layer::RetryLayer;
pub use service::Retry;
