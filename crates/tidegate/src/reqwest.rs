//! Requests of reqwest through their gates, with retries: one line around the client.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tidegate::Limiter;
//!
//! let client = reqwest::Client::new();
//! let limiter = Limiter::new(); // one per program; clones share it
//! let response = limiter.send(&client, client.get("https://api.example.com/items")).await?;
//! println!("{}", response.text().await?);
//! # Ok(())
//! # }
//! ```
//!
//! | part | how |
//! |---|---|
//! | key | host and port of the URL, see [`http::key`](crate::http::key); or [`SendRequest::key`] |
//! | hints, verdict | from the headers, the rules of the host, and the start of an error's body |
//! | failures | from the error: what failed, and whether any of the request was written |
//! | what is resent | by method and `Idempotency-Key`; a body that is a stream is sent once |
//! | in flight | counts to the end of the response's body |
//!
//! A response is never an error, whatever its status: when the retries end, the last one is returned,
//! with the [`Trail`](crate::call::Trail) of all decisions in its extensions.
//!
//! **Redirects and retries of the client** are sent without a permit. For redirects to other hosts, and
//! for exact counts, switch both off: `.redirect(Policy::none()).retry(retry::never())`.
//!
//! **Timeouts.** [`SendRequest::within`] bounds the whole request and
//! [`SendRequest::attempt_timeout`] each attempt; from the latter the gate learns, as it does from a
//! timeout of the client. One around it, such as `tokio::time::timeout`, only drops the future: the
//! attempt counts as abandoned, and a server that does not answer is not noticed.
//!
//! **Bodies of errors** are read, up to 64 KiB and for five seconds, because many servers say there
//! what a status means. They are part of the response all the same.

mod body;
mod error;
mod exchange;
#[cfg(feature = "reqwest-middleware")]
mod middleware;
mod send;

pub use error::SendError;
#[cfg(feature = "reqwest-middleware")]
pub use middleware::LimiterMiddleware;
pub use send::{IntoRequest, SendRequest};

#[cfg(feature = "tower")]
pub(crate) use exchange::{Exchange, Failed, key_of, settle_head};
