//! One request through its gate, with retries.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use reqwest::{Client, Request, RequestBuilder, Response};

use super::error::SendError;
use super::exchange::{Exchange, Failed, key_of};
use crate::call::{AttemptError, BoxError};
use crate::limiter::Limiter;
use crate::terms::{Terms, term_setters};

impl Limiter {
    /// Sends a request through the gate of its host, with retries. Await the result, or set more
    /// first:
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tidegate::Limiter;
    ///
    /// let client = reqwest::Client::new();
    /// let limiter = Limiter::new();
    /// let charge = client
    ///     .post("https://pay.example.com/charges")
    ///     .header("Idempotency-Key", "9f3c")
    ///     .body("{}");
    /// let response = limiter
    ///     .send(&client, charge)
    ///     .within(Duration::from_secs(30))
    ///     .attempt_timeout(Duration::from_secs(5))
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// See the module [`reqwest`](mod@crate::reqwest).
    pub fn send<'a>(&'a self, client: &'a Client, request: impl IntoRequest) -> SendRequest<'a> {
        SendRequest {
            limiter: self,
            client,
            request: request.into_request(),
            key: None,
            prepare: None,
            terms: Terms::default(),
        }
    }
}

/// A request of reqwest, or its builder.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a request of reqwest",
    note = "pass `client.get(url)` or another `reqwest::RequestBuilder`, without `.send()`, or a `reqwest::Request`"
)]
pub trait IntoRequest {
    /// The request.
    ///
    /// # Errors
    ///
    /// If the builder has an invalid URL, header or body.
    fn into_request(self) -> Result<Request, reqwest::Error>;
}

impl IntoRequest for Request {
    fn into_request(self) -> Result<Request, reqwest::Error> {
        Ok(self)
    }
}

impl IntoRequest for RequestBuilder {
    fn into_request(self) -> Result<Request, reqwest::Error> {
        self.build()
    }
}

/// A request that is sent when it is awaited, created by [`Limiter::send`].
#[must_use = "a request is not sent unless it is awaited"]
pub struct SendRequest<'a> {
    limiter: &'a Limiter,
    client: &'a Client,
    request: Result<Request, reqwest::Error>,
    key: Option<&'a str>,
    prepare: Option<Prepare<'a>>,
    terms: Terms,
}

type Prepare<'a> = &'a (dyn Fn(&mut Request) + Sync);

impl<'a> SendRequest<'a> {
    /// Sends the request through the gate of `key` instead of that of its host. It is not normalised.
    pub fn key(self, key: &'a str) -> Self {
        Self {
            key: Some(key),
            ..self
        }
    }

    /// Calls `prepare` with the request of every attempt, for example to set the current value of a
    /// [`credential`](Self::credential).
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use reqwest::header::{AUTHORIZATION, HeaderValue};
    /// use tidegate::{Credential, Limiter};
    ///
    /// # async fn new_token() -> std::io::Result<HeaderValue> { Ok(HeaderValue::from_static("")) }
    /// # let (client, limiter) = (reqwest::Client::new(), Limiter::new());
    /// let token = Arc::new(Credential::new("crm", HeaderValue::from_static("…"), new_token));
    /// let response = limiter
    ///     .send(&client, client.get("https://crm.example.com/contacts"))
    ///     .credential(token.clone())
    ///     .prepare(&|request| {
    ///         request.headers_mut().insert(AUTHORIZATION, HeaderValue::clone(&token.current()));
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn prepare(self, prepare: &'a (dyn Fn(&mut Request) + Sync)) -> Self {
        Self {
            prepare: Some(prepare),
            ..self
        }
    }

    term_setters!();

    async fn send(self) -> Result<Response, SendError> {
        let request = self.request.map_err(SendError::Request)?;
        let own_key;
        let key = match self.key {
            Some(key) => key,
            None => {
                own_key = key_of(&request).map_err(SendError::Key)?;
                &own_key
            }
        };
        let (limiter, terms) = (self.limiter, &self.terms);
        let exchange = Exchange::new(limiter, key, request, |kind| terms.call(limiter, key, kind));
        let (client, prepare) = (self.client, self.prepare);
        let sent = exchange.run(|mut request| {
            if let Some(prepare) = prepare {
                prepare(&mut request);
            }
            let sending = client.execute(request);
            async move { sending.await.map_err(AttemptError::from) }
        });
        sent.await.map_err(|failed| match failed {
            Failed::NoResponse(error) => SendError::NoResponse(error),
            Failed::Error(error, trail) => SendError::Failed {
                error: of_client(error),
                trail,
            },
        })
    }
}

fn of_client(error: BoxError) -> reqwest::Error {
    let error = error.downcast::<reqwest::Error>();
    *error.expect("attempts fail with errors of the client")
}

impl<'a> IntoFuture for SendRequest<'a> {
    type Output = Result<Response, SendError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl fmt::Debug for SendRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The request has credentials.
        f.debug_struct("SendRequest")
            .field("key", &self.key)
            .field("within", &self.terms.within)
            .finish_non_exhaustive()
    }
}
