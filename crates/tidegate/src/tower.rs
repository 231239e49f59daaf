//! Middleware for every client that is a tower service: hyper-util's as it is, reqwest's through a
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
//! reqwest's client takes requests of its own kind, and turns those of the `http` crate into them:
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
//! | [`LimitLayer`] | one permit for every request; the caller sees every answer |
//! | [`RetryLayer`] | one permit for every attempt, and as many attempts as the request may have |
//!
//! A client gets one of the two: the second asks for permits itself, and over the first every
//! attempt would need two.
//!
//! Each middleware is a layer, a service and a future, and decides nothing: it asks the limiter,
//! calls the service below it and says what came of that. Bodies pass through untouched, so an
//! attempt is settled when the answer's head is there, and what goes wrong while the body is read
//! is not noticed.
//!
//! **Order.** A limit on time belongs outside if it is for the whole, waiting included, and inside
//! if it is for one attempt: then what took too long is an outcome that the gate learns from. From
//! outside it only drops the future, and a permit that is dropped says nothing about the server.

mod exchange;
mod key;
mod limit;
mod retry;

pub use key::{RequestKey, UriHost};
pub use limit::{Decided, Limit, LimitError, LimitFuture, LimitLayer};
pub use retry::{Retry, RetryError, RetryFuture, RetryLayer};

/// What middleware and services of tower agree on as an error of any type.
type BoxError = Box<dyn std::error::Error + Send + Sync>;
