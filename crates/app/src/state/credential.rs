//! Tokens that are renewed when a server does not accept them any more.
//!
//! A token comes from a token endpoint, whose requests pass a gate as every request does, or from a
//! program. One refresh serves all requests of a credential. There is no token at first: the first
//! request fetches one.
//!
//! Many servers issue a new refresh token with every token and revoke the old one. The new one is
//! stored before the token is used, so that a restart continues with it. A refresh runs to its end
//! even if the request that needed it is cancelled, because a response that is not read would take
//! the only valid refresh token with it.

mod command;
mod endpoint;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use policy::time::Timestamp;
use store::{Change, RotatedToken, Store};
use tidegate::{Clock, Credential, Refresh};

use crate::core::Core;
use crate::exchange::Exchange;
use crate::settings::{self, TokenCommand};
use endpoint::TokenEndpoint;

/// A token, and the header it is sent in.
pub struct AccessToken {
    settings: settings::Credential,
    header: HeaderName,
    credential: Credential<Option<HeaderValue>>,
    source: Option<Arc<TokenSource>>,
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
        let source = settings.refresh.as_ref().and_then(|refresh| {
            let is_bearer = header == http::header::AUTHORIZATION;
            TokenSource::new(name, refresh, is_bearer, core, exchange, store)
        });
        let source = source.map(Arc::new);
        let fetching = source.clone();
        let credential = Credential::new(name, None, move || {
            let source = fetching.clone();
            async move {
                let token = match source {
                    Some(source) => source.fetch_to_end().await,
                    None => None,
                };
                token.map(Some).ok_or("no token could be fetched")
            }
        });
        Some(Self {
            settings: settings.clone(),
            header,
            credential,
            source,
        })
    }

    fn endpoint(&self) -> Option<&TokenEndpoint> {
        match &self.source.as_ref()?.kind {
            SourceKind::Endpoint(endpoint) => Some(endpoint),
            SourceKind::Command(_) => None,
        }
    }

    /// Continues with a stored refresh token. `false` if it descends from other settings.
    pub(super) fn restore(&self, stored: &RotatedToken) -> bool {
        self.endpoint()
            .is_some_and(|endpoint| endpoint.restore(stored))
    }

    /// What has to be stored because an earlier attempt to store it failed.
    pub(super) fn unsaved(&self) -> Option<Change> {
        self.endpoint()?.unsaved()
    }

    /// It was stored.
    pub(super) fn mark_saved(&self, saved: &RotatedToken) {
        if let Some(endpoint) = self.endpoint() {
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

/// Where the tokens of a credential come from.
struct TokenSource {
    kind: SourceKind,
    is_bearer: bool,
    clock: Clock,
    /// The last token that was fetched, until a request takes it. Locked while a token is fetched.
    last_fetch: tokio::sync::Mutex<Option<(HeaderValue, Timestamp)>>,
}

enum SourceKind {
    /// A server.
    Endpoint(Box<TokenEndpoint>),
    /// A program.
    Command(TokenCommand),
}

impl TokenSource {
    fn new(
        name: &str,
        refresh: &settings::Refresh,
        is_bearer: bool,
        core: &Core,
        exchange: &Exchange,
        store: &Store,
    ) -> Option<Self> {
        let kind = match refresh {
            settings::Refresh::OAuth2Refresh {
                endpoint,
                refresh_token,
            } => {
                let refresh_token = Some(refresh_token);
                let endpoint =
                    TokenEndpoint::new(name, endpoint, refresh_token, core, exchange, store);
                SourceKind::Endpoint(Box::new(endpoint?))
            }
            settings::Refresh::ClientCredentials(endpoint) => {
                let endpoint = TokenEndpoint::new(name, endpoint, None, core, exchange, store);
                SourceKind::Endpoint(Box::new(endpoint?))
            }
            settings::Refresh::Command(command) => SourceKind::Command(command.clone()),
        };
        Some(Self {
            kind,
            is_bearer,
            clock: core.clock().clone(),
            last_fetch: tokio::sync::Mutex::default(),
        })
    }

    /// Fetches a token in a task of its own, which runs to its end. One that was fetched for a
    /// request that has gone is used before another is fetched.
    async fn fetch_to_end(self: Arc<Self>) -> Option<HeaderValue> {
        let this = Arc::clone(&self);
        let task = tokio::spawn(async move {
            let mut last_fetch = this.last_fetch.lock().await;
            let now = || this.clock.now();
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
        let token = match &self.kind {
            SourceKind::Endpoint(endpoint) => endpoint.fetch().await,
            SourceKind::Command(command) => command::run(command, MAX_FETCH).await,
        }?;
        let value = match self.is_bearer {
            true => format!("Bearer {token}"),
            false => token,
        };
        let mut value = HeaderValue::try_from(value).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// A request waits for the token.
const MAX_FETCH: Duration = Duration::from_secs(30);

/// Longer than any token: the most that is read of a response, or of what a program prints.
const MAX_TOKEN: usize = 64 << 10;
