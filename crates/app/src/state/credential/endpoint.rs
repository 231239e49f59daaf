//! Requests tokens of a server: OAuth 2.0, RFC 6749 sections 6 (refresh token) and 4.4 (client
//! credentials).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, Uri};
use ring::digest;
use store::{Change, RotatedToken, Store};
use tidegate::{Attempt, AttemptResult, Limiter};
use url::Position;

use super::{MAX_FETCH, MAX_TOKEN};
use crate::core::Core;
use crate::exchange::{Destination, Exchange, ReplayableBody, RequestBody, Target, Trust};
use crate::metrics::KeyMetrics;
use crate::settings::{self, Secret};

/// A server that issues tokens to a client, for a refresh token or for the client's own secret.
pub(super) struct TokenEndpoint {
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
    /// Without one, the secret of the client is enough.
    refresh_token: Option<Rotating>,
}

/// A refresh token, which the server may replace with every token.
struct Rotating {
    token: Mutex<RefreshToken>,
    /// The fingerprint of the settings that it descends from.
    origin: String,
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
    pub(super) fn new(
        credential: &str,
        settings: &settings::TokenEndpoint,
        refresh_token: Option<&Secret>,
        core: &Core,
        exchange: &Exchange,
        store: &Store,
    ) -> Option<Self> {
        let url = &settings.url;
        let key = policy::key::normalize(url.as_str()).ok()?;
        Some(Self {
            limiter: core.limiter().clone(),
            exchange: exchange.clone(),
            store: store.clone(),
            destination: exchange.destination(url, Trust::Operator).ok()?,
            metrics: core.metrics().key(&key),
            key,
            uri: url[Position::BeforePath..Position::AfterQuery]
                .parse()
                .ok()?,
            credential: credential.to_owned(),
            client_id: settings.client_id.clone(),
            client_secret: settings.client_secret.clone(),
            refresh_token: refresh_token.map(|secret| Rotating {
                token: Mutex::new(RefreshToken {
                    secret: secret.clone(),
                    is_unsaved: false,
                }),
                origin: fingerprint(settings, secret),
            }),
        })
    }

    /// Continues with a stored refresh token. `false` if it descends from other settings.
    pub(super) fn restore(&self, stored: &RotatedToken) -> bool {
        let rotating = self.refresh_token.as_ref();
        let rotating = rotating.filter(|rotating| rotating.origin == stored.origin);
        if let Some(rotating) = rotating {
            *rotating.lock() = RefreshToken {
                secret: Secret::new(stored.token.as_str()),
                is_unsaved: false,
            };
        }
        rotating.is_some()
    }

    /// Requests a token.
    pub(super) async fn fetch(&self) -> Option<String> {
        let call = self.limiter.call(&*self.key).method("POST");
        let fetched = call
            .within(MAX_FETCH)
            .run(|attempt| self.send(attempt))
            .await;
        let response = fetched.ok()?.value?;
        if let (Some(token), Some(rotating)) = (response.refresh_token, &self.refresh_token) {
            self.rotate(rotating, token).await;
        }
        Some(response.access_token)
    }

    /// Uses another refresh token from now on, after storing it. If that fails it is used all the
    /// same, for the old one may be revoked, and stored later.
    async fn rotate(&self, rotating: &Rotating, token: String) {
        if !rotating.replace(&token) {
            return;
        }
        let rotated = self.rotated(rotating, token);
        let change = Change::Rotated(rotated.clone());
        if self.store.save(change).await.is_ok() {
            self.mark_saved(&rotated);
        }
    }

    fn rotated(&self, rotating: &Rotating, token: String) -> RotatedToken {
        RotatedToken {
            credential: self.credential.clone(),
            origin: rotating.origin.clone(),
            token,
        }
    }

    /// What has to be stored because an earlier attempt to store it failed.
    pub(super) fn unsaved(&self) -> Option<Change> {
        let rotating = self.refresh_token.as_ref()?;
        let token = rotating.lock();
        let secret = token.secret.expose().to_owned();
        token
            .is_unsaved
            .then(|| Change::Rotated(self.rotated(rotating, secret)))
    }

    /// It was stored.
    pub(super) fn mark_saved(&self, saved: &RotatedToken) {
        let Some(rotating) = &self.refresh_token else {
            return;
        };
        let mut token = rotating.lock();
        if token.secret.expose() == saved.token {
            token.is_unsaved = false;
        }
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
                serde_json::from_slice(response.body_mut().read_beginning(MAX_TOKEN).await).ok()
            }
            Ok(_) | Err(_) => None,
        };
        answered.has_body = false;
        answered.map(|_| token)
    }

    fn request(&self) -> Request<RequestBody> {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        match &self.refresh_token {
            Some(rotating) => form
                .append_pair("grant_type", "refresh_token")
                .append_pair("refresh_token", rotating.lock().secret.expose()),
            None => form.append_pair("grant_type", "client_credentials"),
        };
        let form = form
            .append_pair("client_id", self.client_id.expose())
            .append_pair("client_secret", self.client_secret.expose())
            .finish();
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

impl Rotating {
    /// `false` if it is the same token.
    fn replace(&self, secret: &str) -> bool {
        let mut token = self.lock();
        let is_other = token.secret.expose() != secret;
        if is_other {
            *token = RefreshToken {
                secret: Secret::new(secret),
                is_unsaved: true,
            };
        }
        is_other
    }

    fn lock(&self) -> MutexGuard<'_, RefreshToken> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

/// Identifies the settings that a refresh token is for, without giving them away: a stored token
/// must not be sent to another server, or as another client, or in place of one that was configured
/// since.
fn fingerprint(endpoint: &settings::TokenEndpoint, refresh_token: &Secret) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in [
        endpoint.url.as_str(),
        endpoint.client_id.expose(),
        refresh_token.expose(),
    ] {
        context.update(&part.len().to_be_bytes());
        context.update(part.as_bytes());
    }
    let digest = context.finish();
    let bytes = digest.as_ref().iter();
    bytes.map(|byte| format!("{byte:02x}")).collect()
}
