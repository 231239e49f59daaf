//! Middleware for clients that are tower services: hyper-util's directly, reqwest's through a
//! function.
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
//! reqwest's client has its own request type, and converts requests of the `http` crate into it:
//!
//! ```
//! use http::{Request, Response};
//! use tidegate::{Limiter, tower::LimitLayer};
//! use tower::{ServiceBuilder, service_fn};
//!
//! let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
//! let client = ServiceBuilder::new()
//!     .layer(LimitLayer::new(Limiter::new()))
//!     .service(service_fn(move |request: Request<reqwest::Body>| {
//!         let client = client.clone();
//!         async move { client.execute(request.try_into()?).await.map(Response::from) }
//!     }));
//! # Ok::<(), reqwest::Error>(())
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
//! **Order.** A timeout for the whole request, including waits, goes outside of the layer; a
//! timeout for one attempt goes inside, where the gate learns from it. A timeout outside only drops
//! the future, and a dropped permit says nothing about the server.

mod exchange;
mod key;
mod limit;
mod retry;

pub use key::{RequestKey, UriHost};
pub use limit::{Decided, Limit, LimitError, LimitFuture, LimitLayer};
pub use retry::{Retry, RetryError, RetryFuture, RetryLayer};

/// The boxed error type that tower's middleware and services share.
type BoxError = Box<dyn std::error::Error + Send + Sync>;
