//! The layer: settings for all requests.

use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use super::clone::CloneBody;
use super::service::Retry;
use crate::limiter::Limiter;
use crate::terms::{Terms, term_setters};
use crate::tower::UriHost;

/// Adds the attempt loop to a service: every attempt waits for a permit, and a request that may be
/// resent is, after the server's hint or the backoff.
///
/// Requests are cloned, so their bodies have to be `Clone`: text, bytes, or nothing. For other bodies
/// [`clone_with`](Self::clone_with) takes a function that copies a request, or says that it cannot be
/// copied and is sent only once. A [`LimitLayer`](crate::tower::LimitLayer) takes any body.
///
/// With the feature `reqwest`, it takes a `reqwest::Client` as it is, with requests and responses of
/// reqwest. Bodies that are streams are sent once.
///
/// Unsafe requests (POST, PATCH …) are resent only if the server cannot have acted on them, or if
/// they have an `Idempotency-Key`. A response is held while waiting for the next attempt, because
/// it is returned if there is none. Where unread bodies occupy connections, as in HTTP/1, a service
/// below can read the bodies of errors. The [`Trail`](crate::call::Trail) of all decisions is in
/// the response's extensions.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use http::{Request, Response};
/// use tidegate::{Limiter, ManualClock, call::Trail, tower::RetryLayer};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tidegate::tower::RetryError> {
/// static CALLS: AtomicU32 = AtomicU32::new(0);
/// # let clock = ManualClock::new();
/// # let limiter = Limiter::builder().clock(clock.clock()).build();
/// # let mover = tokio::spawn(async move {
/// #     loop {
/// #         clock.advance(std::time::Duration::from_secs(1));
/// #         tokio::task::yield_now().await;
/// #     }
/// # });
/// let client = ServiceBuilder::new()
///     .layer(RetryLayer::new(limiter))
///     .service(service_fn(async |_: Request<&str>| {
///         let first = CALLS.fetch_add(1, Ordering::SeqCst) == 0;
///         let response = Response::builder().status(if first { 503 } else { 200 });
///         Ok::<_, std::io::Error>(response.body("hello").unwrap())
///     }));
/// let request = Request::get("https://api.example.com/greeting").body("").unwrap();
/// let response = client.oneshot(request).await?;
/// assert_eq!((response.status().as_u16(), CALLS.load(Ordering::SeqCst)), (200, 2));
/// for step in response.extensions().get::<Trail>().unwrap().steps() {
///     println!("{}", step.decision);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RetryLayer<K = UriHost, C = CloneBody> {
    limiter: Limiter,
    key: K,
    clone: C,
    terms: Terms,
}

impl RetryLayer {
    /// Sends each request through the gate of its URI's host and port in `limiter`, with the
    /// backoff `standard` and no deadline.
    pub fn new(limiter: Limiter) -> Self {
        Self {
            limiter,
            key: UriHost,
            clone: CloneBody,
            terms: Terms::default(),
        }
    }
}

impl<K, C> RetryLayer<K, C> {
    /// Sends requests through the gate that `key` names. The name is not normalised.
    pub fn keyed_by<F>(self, key: F) -> RetryLayer<F, C> {
        RetryLayer {
            limiter: self.limiter,
            key,
            clone: self.clone,
            terms: self.terms,
        }
    }

    /// Copies requests with `clone` instead of `Clone`. A request that it does not copy is sent once.
    ///
    /// ```
    /// use http::Request;
    /// use tidegate::{Limiter, tower::RetryLayer};
    ///
    /// /// A body that may be a stream.
    /// enum Body {
    ///     Text(String),
    ///     Stream,
    /// }
    ///
    /// let layer = RetryLayer::new(Limiter::new()).clone_with(|request: &Request<Body>| {
    ///     let Body::Text(text) = request.body() else {
    ///         return None;
    ///     };
    ///     let mut copy = Request::new(Body::Text(text.clone()));
    ///     *copy.method_mut() = request.method().clone();
    ///     *copy.uri_mut() = request.uri().clone();
    ///     *copy.headers_mut() = request.headers().clone();
    ///     Some(copy)
    /// });
    /// ```
    pub fn clone_with<F>(self, clone: F) -> RetryLayer<K, F> {
        RetryLayer {
            limiter: self.limiter,
            key: self.key,
            clone,
            terms: self.terms,
        }
    }

    term_setters!();
}

impl<S, K: Clone, C: Clone> Layer<S> for RetryLayer<K, C> {
    type Service = Retry<S, K, C>;

    fn layer(&self, inner: S) -> Retry<S, K, C> {
        Retry {
            inner,
            limiter: self.limiter.clone(),
            key: self.key.clone(),
            clone: self.clone.clone(),
            terms: Arc::new(self.terms.clone()),
        }
    }
}

impl<K, C> fmt::Debug for RetryLayer<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryLayer")
            .field("limiter", &self.limiter)
            .field("within", &self.terms.within)
            .field("backoff", &self.terms.backoff)
            .finish_non_exhaustive()
    }
}
