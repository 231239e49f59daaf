//! Tokens that are bought anew when a server does not accept them any more.
//!
//! One refresh serves all requests of a credential, and goes through a gate as everything that
//! leaves. There is no token at first: the first request buys one.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use policy::outcome::Outcome;
use tidegate::http::Head;
use tidegate::{Answered, Attempt, Credential, Limiter, Refresh};

use crate::settings::{self, Secret};
use crate::upstream::{Kept, RequestBody, Target, Times, Trouble, Trust, Upstream};

/// A token, and the header it is sent in.
pub struct Token {
    settings: settings::Credential,
    header: HeaderName,
    credential: Credential<Option<HeaderValue>>,
}

impl Token {
    /// The credential of this name; it is bought through `limiter` and `upstream`.
    pub(super) fn new(
        name: &str,
        settings: &settings::Credential,
        limiter: &Limiter,
        upstream: &Upstream,
        times: Times,
    ) -> Option<Self> {
        let header: HeaderName = settings.header.parse().ok()?;
        let shop = settings.refresh.as_ref().and_then(|refresh| {
            let is_bearer = header == http::header::AUTHORIZATION;
            Shop::new(refresh, is_bearer, limiter, upstream, times)
        });
        let shop = shop.map(Arc::new);
        let credential = Credential::new(name, None, move || {
            let shop = shop.clone();
            Box::pin(async move { shop?.buy().await.map(Some) })
        });
        Some(Self {
            settings: settings.clone(),
            header,
            credential,
        })
    }

    /// Was it made from these settings?
    pub(super) fn is_of(&self, settings: &settings::Credential) -> bool {
        self.settings == *settings
    }

    /// What is refreshed when a server answers 401.
    pub fn refresh(&self) -> &dyn Refresh {
        &self.credential
    }

    /// Buys the first token, if there is none yet.
    pub async fn prepare(&self) {
        if self.credential.current().is_none() {
            // Without one the server says no, and that is passed on.
            _ = self.credential.refresh(0).await;
        }
    }

    /// Puts it on a request.
    pub fn dress(&self, headers: &mut HeaderMap) {
        if let Some(value) = &*self.credential.current() {
            headers.insert(self.header.clone(), value.clone());
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

/// Where tokens are bought: OAuth 2.0, RFC 6749 section 6.
struct Shop {
    limiter: Limiter,
    upstream: Upstream,
    target: Target,
    times: Times,
    key: String,
    uri: Uri,
    client_id: Secret,
    client_secret: Secret,
    /// Some servers give a new one with every token.
    refresh_token: Mutex<Secret>,
    is_bearer: bool,
}

/// What a shop answers.
#[derive(serde::Deserialize)]
struct Bought {
    access_token: String,
    refresh_token: Option<String>,
}

impl Shop {
    fn new(
        refresh: &settings::Refresh,
        is_bearer: bool,
        limiter: &Limiter,
        upstream: &Upstream,
        times: Times,
    ) -> Option<Self> {
        let url = &refresh.token_url;
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        Some(Self {
            limiter: limiter.clone(),
            upstream: upstream.clone(),
            target: Target::new(url, Trust::Operator, 1).ok()?,
            times,
            key: policy::key::normalize(url.as_str()).ok()?,
            uri: path.parse().ok()?,
            client_id: refresh.client_id.clone(),
            client_secret: refresh.client_secret.clone(),
            refresh_token: Mutex::new(refresh.refresh_token.clone()),
            is_bearer,
        })
    }

    async fn buy(&self) -> Option<HeaderValue> {
        let call = self.limiter.call(&*self.key).method("POST");
        let bought = call.within(LONGEST).run(|attempt| self.ask(attempt)).await;
        let bought = bought.ok()?.value?;
        if let Some(token) = bought.refresh_token {
            let mut kept = self
                .refresh_token
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *kept = Secret::new(token);
        }
        let value = match self.is_bearer {
            true => format!("Bearer {}", bought.access_token),
            false => bought.access_token,
        };
        let mut value = HeaderValue::try_from(value).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    async fn ask(&self, attempt: Attempt) -> Answered<Option<Bought>> {
        let make = || (self.request(), Kept::NONE);
        let sent = self
            .upstream
            .send(0, &attempt, &self.target, &self.times, make);
        let mut answer = match sent.await {
            Ok(answer) => answer,
            Err(error) => {
                return match error.trouble {
                    Trouble::Failed { failure, phase } => {
                        Answered::new(None, Outcome::failure(failure, phase, attempt.elapsed()))
                    }
                    Trouble::NotAllowed { .. } | Trouble::Body => Answered::unsent(None),
                };
            }
        };
        let (latency, wall) = (attempt.elapsed(), self.limiter.clock().wall());
        let outcome = Head::of(&answer).outcome(latency, wall);
        let bought = match answer.status().is_success() {
            true => serde_json::from_slice(answer.body_mut().beginning(MOST_READ).await).ok(),
            false => None,
        };
        Answered::new(bought, outcome)
    }

    fn request(&self) -> Request<RequestBody> {
        let refresh_token = self
            .refresh_token
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "refresh_token")
            .append_pair("refresh_token", refresh_token.expose())
            .append_pair("client_id", self.client_id.expose())
            .append_pair("client_secret", self.client_secret.expose())
            .finish();
        drop(refresh_token);
        let mut request = Request::new(RequestBody::whole(Bytes::from(form)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.target.authority().clone());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, FORM);
        request
    }
}

const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

/// Whoever waits for a token has a caller who waits.
const LONGEST: Duration = Duration::from_secs(30);

/// Longer than any token.
const MOST_READ: usize = 64 << 10;
