//! Middleware for clients that are tower services, such as those of hyper-util and reqwest.
//!
//! ```
//! # use http_body_util::Empty;
//! use hyper_util::{client::legacy::Client, rt::TokioExecutor};
//! use tidegate::{Limiter, tower::LimitLayer};
//! use tower::Layer;
//!
//! let client = Client::builder(TokioExecutor::new()).build_http::<Empty<&[u8]>>();
//! let client = LimitLayer::new(Limiter::new()).layer(client);
//! ```
//!
//! With the feature `reqwest`, the layers take its client as it is:
//!
//! ```
//! # #[cfg(feature = "reqwest")] {
//! use tidegate::{Limiter, tower::RetryLayer};
//! use tower::ServiceBuilder;
//!
//! let client = ServiceBuilder::new()
//!     .layer(RetryLayer::new(Limiter::new()))
//!     .service(reqwest::Client::new());
//! # }
//! ```
//!
//! | layer | what it does |
//! |---|---|
//! | [`LimitLayer`] | one permit per request; the caller sees every response |
//! | [`RetryLayer`] | one permit per attempt, with retries |
//!
//! Use one of the two: the second acquires permits itself, so with both every attempt would need
//! two.
//!
//! Each middleware is a layer, a service and a future. It makes no decisions: it asks the limiter,
//! calls the service below and reports the outcome. Bodies pass through untouched. An attempt is
//! settled when the response's head arrives, so a failure while the body is read is not reported.
//!
//! **Timeouts.** [`RetryLayer::within`] bounds the whole request, including waits, and
//! [`RetryLayer::attempt_timeout`] one attempt, from which the gate learns. So it does from a timeout
//! layer inside. One outside only drops the future: an attempt in flight counts as abandoned, which
//! says nothing about the server.

mod exchange;
mod key;
mod limit;
#[cfg(feature = "reqwest")]
mod reqwest;
mod retry;

pub use key::{RequestKey, UriHost};
pub use limit::{Decided, Limit, LimitError, LimitFuture, LimitLayer};
pub use retry::{CloneBody, CloneRequest, Retry, RetryError, RetryFuture, RetryLayer};

/// The boxed error type that tower's middleware and services share.
type BoxError = Box<dyn std::error::Error + Send + Sync>;
