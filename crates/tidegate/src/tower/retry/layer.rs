//! The layer: settings for all requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use policy::backoff::BackoffSettings;
use policy::item::ItemKind;
use tower_layer::Layer;

use super::service::Retry;
use crate::ask::Ask;
use crate::call::Call;
use crate::credential::Refresh;
use crate::limiter::Limiter;
use crate::tower::UriHost;

/// Adds the attempt loop to a service: every attempt waits for a permit, and a request that may be
/// resent is, after the server's hint or the backoff.
///
/// Requests are cloned, so their bodies have to be `Clone`: text, bytes, or nothing. A streamed
/// body cannot be sent twice; use a [`LimitLayer`](crate::tower::LimitLayer) for such requests.
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
pub struct RetryLayer<K = UriHost> {
    limiter: Limiter,
    key: K,
    terms: Terms,
}

/// Settings for every request.
#[derive(Clone, Default)]
pub(super) struct Terms {
    within: Option<Duration>,
    attempt_timeout: Option<Duration>,
    is_background: bool,
    retry_unsafe: bool,
    backoff: Option<BackoffSettings>,
    credential: Option<Arc<dyn Refresh>>,
}

impl Terms {
    /// The call that sends `request` through the gate of `key`.
    pub(super) fn call<'a, B>(
        &'a self,
        limiter: &'a Limiter,
        key: &'a str,
        request: &Request<B>,
    ) -> Call<'a> {
        let ask = if self.is_background {
            Ask::new(key).background()
        } else {
            Ask::new(key)
        };
        let mut call = limiter.call(ask).kind(ItemKind {
            retry_unsafe: self.retry_unsafe,
            ..crate::http::item_kind(request)
        });
        if let Some(within) = self.within {
            call = call.within(within);
        }
        if let Some(timeout) = self.attempt_timeout {
            call = call.attempt_timeout(timeout);
        }
        if let Some(backoff) = &self.backoff {
            call = call.backoff(backoff);
        }
        if let Some(credential) = &self.credential {
            call = call.credential(credential.as_ref());
        }
        call
    }
}

impl RetryLayer {
    /// Sends each request through the gate of its URI's host and port in `limiter`, with the
    /// backoff `standard` and no deadline.
    pub fn new(limiter: Limiter) -> Self {
        Self {
            limiter,
            key: UriHost,
            terms: Terms::default(),
        }
    }
}

impl<K> RetryLayer<K> {
    /// Sends requests through the gate that `key` names. The name is not normalised.
    pub fn keyed_by<F>(self, key: F) -> RetryLayer<F> {
        RetryLayer {
            limiter: self.limiter,
            key,
            terms: self.terms,
        }
    }

    /// Bounds each request with all its waits and attempts, see [`Call::within`]. If a resend cannot
    /// meet the bound, the last response is returned at once.
    pub fn within(mut self, time: Duration) -> Self {
        self.terms.within = Some(time);
        self
    }

    /// Bounds each attempt; one that takes longer counts as a timeout, see
    /// [`Call::attempt_timeout`].
    pub fn attempt_timeout(mut self, time: Duration) -> Self {
        self.terms.attempt_timeout = Some(time);
        self
    }

    /// Lets interactive requests go first, but still gets at least every eighth turn.
    pub fn background(mut self) -> Self {
        self.terms.is_background = true;
        self
    }

    /// Sets the delays between attempts and the maximum number of attempts.
    pub fn backoff(mut self, backoff: BackoffSettings) -> Self {
        self.terms.backoff = Some(backoff);
        self
    }

    /// Declares every request safe to resend, whatever its method.
    pub fn retry_unsafe(mut self) -> Self {
        self.terms.retry_unsafe = true;
        self
    }

    /// Sets the credential to refresh when the server answers 401. A service below has to add its
    /// current value to every attempt.
    pub fn credential(mut self, credential: Arc<dyn Refresh>) -> Self {
        self.terms.credential = Some(credential);
        self
    }
}

impl<S, K: Clone> Layer<S> for RetryLayer<K> {
    type Service = Retry<S, K>;

    fn layer(&self, inner: S) -> Retry<S, K> {
        let terms = Arc::new(self.terms.clone());
        Retry::new(inner, self.limiter.clone(), self.key.clone(), terms)
    }
}

impl<K> fmt::Debug for RetryLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryLayer")
            .field("limiter", &self.limiter)
            .field("within", &self.terms.within)
            .field("backoff", &self.terms.backoff)
            .finish_non_exhaustive()
    }
}
