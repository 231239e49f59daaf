//! Tokens that are renewed when a server does not accept them any more.
//!
//! One refresh serves all requests of a credential, and passes a gate as every request does. There
//! is no token at first: the first request fetches one.
//!
//! Many servers issue a new refresh token with every token and revoke the old one. The new one is
//! stored before the token is used, so that a restart continues with it. A refresh runs to its end
//! even if the request that needed it is cancelled, because a response that is not read would take
//! the only valid refresh token with it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use policy::time::Timestamp;
use ring::digest;
use store::{Change, RotatedToken, Store};
use tidegate::{Attempt, AttemptResult, Credential, Limiter, Refresh};

use crate::core::Core;
use crate::exchange::{Destination, Exchange, ReplayableBody, RequestBody, Target, Trust};
use crate::metrics::KeyMetrics;
use crate::settings::{self, Secret};

/// A token, and the header it is sent in.
pub struct AccessToken {
    settings: settings::Credential,
    header: HeaderName,
    credential: Credential<Option<HeaderValue>>,
    endpoint: Option<Arc<TokenEndpoint>>,
}

impl AccessToken {
    /// The credential of this name; it is fetched through a gate of `core`, and a refresh token that
    /// replaces the configured one is saved in `store`.
    pub(super) fn new(
        name: &str,
        settings: &settings::Credential,
        core: &Core,
        exchange: &Exchange,
        store: &Store,
    ) -> Option<Self> {
        let header: HeaderName = settings.header.parse().ok()?;
        let endpoint = settings.refresh.as_ref().and_then(|refresh| {
            let is_bearer = header == http::header::AUTHORIZATION;
            TokenEndpoint::new(name, refresh, is_bearer, core, exchange, store)
        });
        let endpoint = endpoint.map(Arc::new);
        let fetching = endpoint.clone();
        let credential = Credential::new(name, None, move || {
            let endpoint = fetching.clone();
            Box::pin(async move { endpoint?.fetch_to_end().await.map(Some) })
        });
        Some(Self {
            settings: settings.clone(),
            header,
            credential,
            endpoint,
        })
    }

    /// Continues with a stored refresh token. `false` if it descends from other settings.
    pub(super) fn restore(&self, stored: &RotatedToken) -> bool {
        let endpoint = self.endpoint.as_ref();
        let endpoint = endpoint.filter(|endpoint| endpoint.origin == stored.origin);
        if let Some(endpoint) = endpoint {
            *endpoint.refresh_token() = RefreshToken {
                secret: Secret::new(stored.token.as_str()),
                is_unsaved: false,
            };
        }
        endpoint.is_some()
    }

    /// What has to be stored because an earlier attempt to store it failed.
    pub(super) fn unsaved(&self) -> Option<Change> {
        self.endpoint.as_ref()?.unsaved()
    }

    /// It was stored.
    pub(super) fn mark_saved(&self, saved: &RotatedToken) {
        if let Some(endpoint) = &self.endpoint {
            endpoint.mark_saved(saved);
        }
    }

    /// Was it made from these settings?
    pub(super) fn is_of(&self, settings: &settings::Credential) -> bool {
        self.settings == *settings
    }

    /// What is refreshed when a server answers 401.
    pub fn refresh(&self) -> &dyn Refresh {
        &self.credential
    }

    /// Fetches the first token, if there is none yet.
    pub async fn prepare(&self) {
        if self.credential.current().is_none() {
            // Without one the server responds 401, and that is passed on.
            _ = self.credential.refresh(0).await;
        }
    }

    /// Puts it on a request.
    pub fn apply(&self, headers: &mut HeaderMap) {
        if let Some(value) = &*self.credential.current() {
            headers.insert(self.header.clone(), value.clone());
        }
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessToken")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

/// Where tokens are fetched: OAuth 2.0, RFC 6749 section 6.
struct TokenEndpoint {
    limiter: Limiter,
    exchange: Exchange,
    store: Store,
    destination: Arc<Destination>,
    metrics: Arc<KeyMetrics>,
    key: String,
    uri: Uri,
    credential: String,
    client_id: Secret,
    client_secret: Secret,
    refresh_token: Mutex<RefreshToken>,
    /// The fingerprint of the settings that the refresh token descends from.
    origin: String,
    /// The last token that was fetched, until a request takes it. Locked while a token is fetched.
    last_fetch: tokio::sync::Mutex<Option<(HeaderValue, Timestamp)>>,
    is_bearer: bool,
}

/// The token that the next refresh is made with.
struct RefreshToken {
    secret: Secret,
    /// It replaced another one, and is not durable yet.
    is_unsaved: bool,
}

/// The response of a token endpoint.
#[derive(serde::Deserialize)]
struct TokenResponse {
    access_token: String,
    /// Some servers issue a new one with every token.
    refresh_token: Option<String>,
}

impl TokenEndpoint {
    fn new(
        credential: &str,
        refresh: &settings::Refresh,
        is_bearer: bool,
        core: &Core,
        exchange: &Exchange,
        store: &Store,
    ) -> Option<Self> {
        let url = &refresh.token_url;
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let key = policy::key::normalize(url.as_str()).ok()?;
        Some(Self {
            limiter: core.limiter().clone(),
            exchange: exchange.clone(),
            store: store.clone(),
            destination: exchange.destination(url, Trust::Operator).ok()?,
            metrics: core.metrics().key(&key),
            key,
            uri: path.parse().ok()?,
            credential: credential.to_owned(),
            client_id: refresh.client_id.clone(),
            client_secret: refresh.client_secret.clone(),
            refresh_token: Mutex::new(RefreshToken {
                secret: refresh.refresh_token.clone(),
                is_unsaved: false,
            }),
            origin: fingerprint(refresh),
            last_fetch: tokio::sync::Mutex::default(),
            is_bearer,
        })
    }

    /// Fetches a token in a task of its own, which runs to its end. One that was fetched for a
    /// request that has gone is used before another is fetched.
    async fn fetch_to_end(self: Arc<Self>) -> Option<HeaderValue> {
        let this = Arc::clone(&self);
        let task = tokio::spawn(async move {
            let mut last_fetch = this.last_fetch.lock().await;
            let now = || this.limiter.clock().now();
            let is_fresh = last_fetch
                .as_ref()
                .is_some_and(|(_, at)| now().since(*at) < MAX_FETCH);
            if !is_fresh {
                *last_fetch = this.fetch().await.map(|value| (value, now()));
            }
        });
        task.await.ok()?;
        self.last_fetch.lock().await.take().map(|(value, _)| value)
    }

    async fn fetch(&self) -> Option<HeaderValue> {
        let call = self.limiter.call(&*self.key).method("POST");
        let fetched = call
            .within(MAX_FETCH)
            .run(|attempt| self.send(attempt))
            .await;
        let response = fetched.ok()?.value?;
        if let Some(token) = response.refresh_token {
            self.rotate(token).await;
        }
        let value = match self.is_bearer {
            true => format!("Bearer {}", response.access_token),
            false => response.access_token,
        };
        let mut value = HeaderValue::try_from(value).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Uses another refresh token from now on, after storing it. If that fails it is used all the
    /// same, for the old one may be revoked, and stored later.
    async fn rotate(&self, token: String) {
        if !self.replace(&token) {
            return;
        }
        let rotated = self.rotated(token);
        let change = Change::Rotated(rotated.clone());
        if self.store.save(change).await.is_ok() {
            self.mark_saved(&rotated);
        }
    }

    /// `false` if it is the same token.
    fn replace(&self, token: &str) -> bool {
        let mut refresh_token = self.refresh_token();
        let is_other = refresh_token.secret.expose() != token;
        if is_other {
            *refresh_token = RefreshToken {
                secret: Secret::new(token),
                is_unsaved: true,
            };
        }
        is_other
    }

    fn rotated(&self, token: String) -> RotatedToken {
        RotatedToken {
            credential: self.credential.clone(),
            origin: self.origin.clone(),
            token,
        }
    }

    fn unsaved(&self) -> Option<Change> {
        let refresh_token = self.refresh_token();
        let token = refresh_token.secret.expose().to_owned();
        refresh_token
            .is_unsaved
            .then(|| Change::Rotated(self.rotated(token)))
    }

    fn mark_saved(&self, saved: &RotatedToken) {
        let mut refresh_token = self.refresh_token();
        if refresh_token.secret.expose() == saved.token {
            refresh_token.is_unsaved = false;
        }
    }

    fn refresh_token(&self) -> MutexGuard<'_, RefreshToken> {
        self.refresh_token
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, attempt: Attempt) -> AttemptResult<Option<TokenResponse>> {
        let target = Target {
            destination: &self.destination,
            rules: &[],
            phrase_in: |_: &str| None,
            metrics: &self.metrics,
            // Tokens are fetched rarely, so one connection pool is enough.
            worker: 0,
        };
        let make = || (self.request(), ReplayableBody::NONE);
        let mut answered = self.exchange.attempt(&attempt, target, make).await;
        let token = match &mut answered.value {
            Ok(response) if response.status().is_success() => {
                serde_json::from_slice(response.body_mut().beginning(MAX_RESPONSE).await).ok()
            }
            Ok(_) | Err(_) => None,
        };
        AttemptResult {
            has_body: false,
            ..answered.map(|_| token)
        }
    }

    fn request(&self) -> Request<RequestBody> {
        let refresh_token = self.refresh_token();
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "refresh_token")
            .append_pair("refresh_token", refresh_token.secret.expose())
            .append_pair("client_id", self.client_id.expose())
            .append_pair("client_secret", self.client_secret.expose())
            .finish();
        drop(refresh_token);
        let mut request = Request::new(RequestBody::whole(Bytes::from(form)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.destination.authority().clone());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, FORM);
        request
    }
}

const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

/// A request waits for the token.
const MAX_FETCH: Duration = Duration::from_secs(30);

/// Longer than any token.
const MAX_RESPONSE: usize = 64 << 10;

/// Identifies the settings that a refresh token is for, without giving them away: a stored token
/// must not be sent to another server, or as another client, or in place of one that was configured
/// since.
fn fingerprint(refresh: &settings::Refresh) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in [
        refresh.token_url.as_str(),
        refresh.client_id.expose(),
        refresh.refresh_token.expose(),
    ] {
        context.update(&part.len().to_be_bytes());
        context.update(part.as_bytes());
    }
    let digest = context.finish();
    let bytes = digest.as_ref().iter();
    bytes.map(|byte| format!("{byte:02x}")).collect()
}
