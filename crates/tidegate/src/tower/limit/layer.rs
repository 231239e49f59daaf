//! The layer: what is said once about all requests.

use std::fmt;
use std::time::Duration;

use tower_layer::Layer;

use super::service::Limit;
use crate::ask::Ask;
use crate::limiter::Limiter;
use crate::tower::UriHost;

/// Puts a limiter before a service: every request waits for a permit of its gate, and the gate
/// learns from every answer.
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
/// assert_eq!(decided.judgement.verdict, Some(Verdict::Success));
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
pub(super) struct Terms {
    within: Option<Duration>,
    is_background: bool,
}

impl Terms {
    /// An ask for `key` on these terms.
    pub(super) fn ask<'a>(&self, key: &'a str) -> Ask<'a> {
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
    /// Requests go through the gates of `limiter`, each through that of its URI's host and port.
    pub fn new(limiter: Limiter) -> Self {
        Self {
            limiter,
            key: UriHost,
            terms: Terms::default(),
        }
    }
}

impl<K> LimitLayer<K> {
    /// Requests go through the gate that `key` names. The name is taken as it is.
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

    /// Every request waits at most so long for its permit, and never longer than its gate's
    /// `max_wait`; zero: not at all.
    pub fn within(mut self, wait: Duration) -> Self {
        self.terms.within = Some(wait);
        self
    }

    /// Requests leave after interactive ones, but at least every eighth time.
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
