//! Middleware for the clients of the crate `reqwest-middleware`.

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};

use super::error::SendError;
use super::exchange::{Exchange, Failed, key_of};
use crate::call::AttemptError;
use crate::limiter::Limiter;
use crate::sync::lock;
use crate::terms::{Terms, term_setters};

/// Sends every request of a client through the gate of its host, with retries.
///
/// Middleware that is added after this one runs for every attempt, middleware that is added before it
/// once for every request.
///
/// ```no_run
/// # async fn example() -> Result<(), reqwest_middleware::Error> {
/// use std::time::Duration;
/// use reqwest_middleware::ClientBuilder;
/// use tidegate::{Limiter, reqwest::LimiterMiddleware};
///
/// let limits = LimiterMiddleware::new(Limiter::new()).within(Duration::from_secs(60));
/// let client = ClientBuilder::new(reqwest::Client::new()).with(limits).build();
/// let response = client.get("https://api.example.com/items").send().await?;
/// # Ok(())
/// # }
/// ```
///
/// If the last attempt failed in the client, its error is returned as it is. Other errors are
/// [`SendError`]s in `reqwest_middleware::Error::Middleware`.
#[derive(Clone)]
pub struct LimiterMiddleware {
    limiter: Limiter,
    key: Option<Arc<KeyOf>>,
    terms: Terms,
}

/// Names the gate of a request.
type KeyOf = dyn Fn(&Request) -> String + Send + Sync;

impl LimiterMiddleware {
    /// Sends requests through the gates of `limiter`, with the backoff `standard` and no deadline.
    pub fn new(limiter: Limiter) -> Self {
        Self {
            limiter,
            key: None,
            terms: Terms::default(),
        }
    }

    /// Sends requests through the gate that `key` names instead of that of their host. The name is not
    /// normalised.
    pub fn keyed_by(self, key: impl Fn(&Request) -> String + Send + Sync + 'static) -> Self {
        Self {
            key: Some(Arc::new(key)),
            ..self
        }
    }

    term_setters!();
}

#[async_trait]
impl Middleware for LimiterMiddleware {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let key = match &self.key {
            Some(key) => key(&request),
            None => key_of(&request).map_err(|error| Error::middleware(SendError::Key(error)))?,
        };
        let (limiter, terms) = (&self.limiter, &self.terms);
        let exchange = Exchange::new(limiter, &key, request, |kind| {
            terms.call(limiter, &key, kind)
        });
        // What middleware below adds is kept for the next attempt and for middleware above.
        let kept = Mutex::new(std::mem::take(extensions));
        let sent = exchange.run(|request| {
            let (next, kept) = (next.clone(), &kept);
            async move {
                let mut extensions = lock(kept).clone();
                let result = next.run(request, &mut extensions).await;
                *lock(kept) = extensions;
                result.map_err(AttemptError::from)
            }
        });
        let sent = sent.await;
        *extensions = std::mem::take(&mut *lock(&kept));
        sent.map_err(|failed| match failed {
            Failed::NoResponse(error) => Error::middleware(SendError::NoResponse(error)),
            Failed::Error(error, _) => {
                let error = error.downcast::<Error>();
                *error.expect("attempts fail with errors of the chain")
            }
        })
    }
}

impl fmt::Debug for LimiterMiddleware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterMiddleware")
            .field("limiter", &self.limiter)
            .field("within", &self.terms.within)
            .finish_non_exhaustive()
    }
}
