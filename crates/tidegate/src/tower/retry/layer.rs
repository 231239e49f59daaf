//! The layer: what is said once about all requests.

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

/// Puts the attempt loop before a service: every attempt waits for a permit, and what may be sent
/// again is sent again, when the server or the backoff says.
///
/// Requests are cloned, so their bodies have to be `Clone`: text, bytes, or nothing. A body that
/// streams is gone once it was sent; such requests go through a
/// [`LimitLayer`](crate::tower::LimitLayer).
///
/// Unsafe requests (POST, PATCH …) are sent again only if the server cannot have acted on them, or
/// with an `Idempotency-Key`. A response is held during the wait before the next attempt, because it
/// is returned if there is none; where unread bodies occupy connections, as over HTTP/1, a service
/// below can read those of errors. The [`Trail`](crate::call::Trail) of all decisions is in the
/// response's extensions.
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

/// What holds for every request.
#[derive(Clone, Default)]
pub(super) struct Terms {
    within: Option<Duration>,
    is_background: bool,
    retry_unsafe: bool,
    backoff: Option<BackoffSettings>,
    credential: Option<Arc<dyn Refresh>>,
}

impl Terms {
    /// The call that delivers `request` through the gate of `key` on these terms.
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
            expires_after: self.within,
            ..crate::http::item_kind(request)
        });
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
    /// Requests go through the gates of `limiter`, each through that of its URI's host and port,
    /// with the backoff `standard` and no deadline.
    pub fn new(limiter: Limiter) -> Self {
        Self {
            limiter,
            key: UriHost,
            terms: Terms::default(),
        }
    }
}

impl<K> RetryLayer<K> {
    /// Requests go through the gate that `key` names. The name is taken as it is.
    pub fn keyed_by<F>(self, key: F) -> RetryLayer<F> {
        RetryLayer {
            limiter: self.limiter,
            key,
            terms: self.terms,
        }
    }

    /// Every request must be sent for the last time within this time, all waits and attempts before
    /// included. One that could not is not waited for: the last answer is the answer.
    pub fn within(mut self, time: Duration) -> Self {
        self.terms.within = Some(time);
        self
    }

    /// Requests leave after interactive ones, but at least every eighth time.
    pub fn background(mut self) -> Self {
        self.terms.is_background = true;
        self
    }

    /// How long to wait between attempts, and how many there may be.
    pub fn backoff(mut self, backoff: BackoffSettings) -> Self {
        self.terms.backoff = Some(backoff);
        self
    }

    /// Sending a request twice does no harm here, whatever its method is.
    pub fn retry_unsafe(mut self) -> Self {
        self.terms.retry_unsafe = true;
        self
    }

    /// What to refresh when the server answers 401. To put its present value into every attempt is
    /// for a service below.
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
