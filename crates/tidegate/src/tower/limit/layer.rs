//! The layer: settings for all requests.

use std::fmt;
use std::time::Duration;

use tower_layer::Layer;

use super::service::Limit;
use crate::ask::Ask;
use crate::limiter::Limiter;
use crate::tower::UriHost;

/// Adds a limiter to a service: every request waits for a permit from its gate, and the gate learns
/// from every response.
///
/// ```
/// use std::time::Duration;
/// use http::{Request, Response};
/// use tidegate::tower::{Decided, LimitLayer};
/// use tidegate::{Limiter, Verdict};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tidegate::tower::LimitError> {
/// let limiter = Limiter::new();
/// let client = ServiceBuilder::new()
///     .layer(LimitLayer::new(limiter.clone()).within(Duration::from_secs(5)))
///     .service(service_fn(async |_: Request<&str>| {
///         Ok::<_, std::io::Error>(Response::new("hello"))
///     }));
/// let request = Request::get("https://api.example.com/greeting").body("").unwrap();
/// let response = client.oneshot(request).await?;
/// let decided: &Decided = response.extensions().get().unwrap();
/// assert_eq!(decided.classification.verdict, Some(Verdict::Success));
/// assert_eq!(limiter.gate("api.example.com").unwrap().gate.in_flight, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LimitLayer<K = UriHost> {
    limiter: Limiter,
    key: K,
    terms: Terms,
}

/// How every request asks for its permit.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::tower) struct Terms {
    within: Option<Duration>,
    is_background: bool,
}

impl Terms {
    /// An ask for `key` with these settings.
    pub(in crate::tower) fn ask<'a>(&self, key: &'a str) -> Ask<'a> {
        let mut ask = Ask::new(key);
        if let Some(within) = self.within {
            ask = ask.within(within);
        }
        if self.is_background {
            ask = ask.background();
        }
        ask
    }
}

impl LimitLayer {
    /// Sends each request through the gate of its URI's host and port in `limiter`.
    pub fn new(limiter: Limiter) -> Self {
        Self {
            limiter,
            key: UriHost,
            terms: Terms::default(),
        }
    }
}

impl<K> LimitLayer<K> {
    /// Sends requests through the gate that `key` names. The name is not normalised.
    ///
    /// ```
    /// use http::Request;
    /// use tidegate::{Limiter, tower::LimitLayer};
    ///
    /// let by_account = LimitLayer::new(Limiter::new()).keyed_by(|request: &Request<String>| {
    ///     let account = request.headers().get("x-account");
    ///     format!("account:{}", account.map_or("anonymous", |name| name.to_str().unwrap_or("anonymous")))
    /// });
    /// ```
    pub fn keyed_by<F>(self, key: F) -> LimitLayer<F> {
        LimitLayer {
            limiter: self.limiter,
            key,
            terms: self.terms,
        }
    }

    /// Bounds the wait for a permit; the gate's `max_wait` still applies. Zero means no wait.
    pub fn within(mut self, wait: Duration) -> Self {
        self.terms.within = Some(wait);
        self
    }

    /// Lets interactive requests go first, but still gets at least every eighth turn.
    pub fn background(mut self) -> Self {
        self.terms.is_background = true;
        self
    }
}

impl<S, K: Clone> Layer<S> for LimitLayer<K> {
    type Service = Limit<S, K>;

    fn layer(&self, inner: S) -> Limit<S, K> {
        Limit::new(inner, self.limiter.clone(), self.key.clone(), self.terms)
    }
}

impl<K> fmt::Debug for LimitLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitLayer")
            .field("limiter", &self.limiter)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
