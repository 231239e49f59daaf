//! All attempts of a request, each with its own permit.
//!
//! The loop is that of [`Call`](crate::Call), and [`policy::item`] decides whether and when to
//! resend. This module clones requests and turns responses into outcomes.

mod clone;
mod error;
mod future;
mod layer;
mod service;

pub use clone::{CloneBody, CloneRequest};
pub use error::RetryError;
pub use future::RetryFuture;
pub use layer::RetryLayer;
pub use service::Retry;
