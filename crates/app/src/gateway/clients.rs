//! The clients of the data plane: their tokens, and how much each may send.
//!
//! A client is known by its token: in `Tidegate-Token`, or in forward mode as the password of basic
//! credentials in `Proxy-Authorization`. The user name does not matter there, because a token belongs to
//! one client only.
//!
//! The limits of a client are counted per server process, and over reloads. A request counts when it is
//! accepted, whatever comes of it; one that is refused does not count.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, header};
use policy::limits::{Limit, Limits};
use policy::time::Timestamp;
use subtle::ConstantTimeEq;

use super::error::GatewayError;
use crate::base64;
use crate::settings::Settings;

/// The clients that may use the data plane; everyone may if there are none.
#[derive(Debug)]
pub(super) struct Clients(Vec<Client>);

#[derive(Debug)]
struct Client {
    name: String,
    token: Box<[u8]>,
    /// `None`: it may send as much as it likes.
    limits: Option<Arc<ClientLimits>>,
}

/// Which client sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientIndex(usize);

/// A request without a token, or with a wrong one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnknownClient;

impl Clients {
    /// The clients of these settings. Those that were there `before` go on with what they have sent.
    pub(super) fn new(settings: &Settings, before: Option<&Self>) -> Self {
        let clients = settings.clients.iter().map(|(name, client)| Client {
            name: name.clone(),
            token: client.token.expose().as_bytes().into(),
            limits: ClientLimits::new(&client.limits, before.and_then(|old| old.limits_of(name))),
        });
        Self(clients.collect())
    }

    /// The client whose token is in `Tidegate-Token`; `Ok(None)` if none is needed.
    pub(super) fn find(&self, headers: &HeaderMap) -> Result<Option<ClientIndex>, UnknownClient> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let token = headers.get(&TOKEN).ok_or(UnknownClient)?;
        self.with_token(token.as_bytes()).map(Some)
    }

    /// The same for a request to a proxy, which has its token in `Proxy-Authorization` as a rule.
    pub(super) fn find_proxied(
        &self,
        headers: &HeaderMap,
    ) -> Result<Option<ClientIndex>, UnknownClient> {
        let Some(credentials) = headers.get(header::PROXY_AUTHORIZATION) else {
            return self.find(headers);
        };
        if self.0.is_empty() {
            return Ok(None);
        }
        let password = basic_password(credentials.as_bytes()).ok_or(UnknownClient)?;
        self.with_token(&password).map(Some)
    }

    fn with_token(&self, given: &[u8]) -> Result<ClientIndex, UnknownClient> {
        // All are compared, each in full, so that the time says nothing about them.
        let mut found = None;
        for (index, client) in self.0.iter().enumerate() {
            if client.token.ct_eq(given).into() {
                found = Some(ClientIndex(index));
            }
        }
        found.ok_or(UnknownClient)
    }

    /// Its name; empty if clients need no token.
    pub(super) fn name(&self, client: Option<ClientIndex>) -> &str {
        let client = client.and_then(|ClientIndex(index)| self.0.get(index));
        client.map_or("", |client| &client.name)
    }

    /// Counts a request of this client, unless it is one too many.
    #[inline]
    pub(super) fn count(
        &self,
        client: Option<ClientIndex>,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<(), GatewayError> {
        let limits = client.and_then(|ClientIndex(index)| self.0.get(index)?.limits.as_ref());
        match limits {
            None => Ok(()),
            Some(limits) => {
                let counted = limits.count(now());
                counted.map_err(|wait| GatewayError::ClientLimit { wait })
            }
        }
    }

    fn limits_of(&self, name: &str) -> Option<&Arc<ClientLimits>> {
        let client = self.0.iter().find(|client| client.name == name)?;
        client.limits.as_ref()
    }
}

/// What one client may send, and what it has sent.
#[derive(Debug)]
struct ClientLimits {
    settings: Vec<Limit>,
    /// About 1 KiB for each limit, whatever is sent.
    sent: Mutex<Limits>,
}

impl ClientLimits {
    fn new(limits: &[Limit], before: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        if let Some(before) = before.filter(|before| before.settings == limits) {
            return Some(Arc::clone(before));
        }
        let before = before.map(|before| before.lock().clone());
        let sent = Limits::of(limits, before.as_ref())?;
        Some(Arc::new(Self {
            settings: limits.to_vec(),
            sent: Mutex::new(sent),
        }))
    }

    /// Counts a request. `Err`: it is one too many for so long.
    fn count(&self, now: Timestamp) -> Result<(), Duration> {
        let mut sent = self.lock();
        match sent.ready_at(0, 1, now) {
            Some(at) if at > now => Err(at.since(now)),
            _ => {
                sent.take(1, now);
                Ok(())
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Limits> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The password of `Basic …`.
fn basic_password(credentials: &[u8]) -> Option<Vec<u8>> {
    let (scheme, rest) = credentials.split_at_checked(BASIC.len())?;
    let encoded = rest.strip_prefix(b" ")?.trim_ascii();
    if !scheme.eq_ignore_ascii_case(BASIC) {
        return None;
    }
    let decoded = base64::decode(std::str::from_utf8(encoded).ok()?)?;
    let colon = memchr::memchr(b':', &decoded)?;
    Some(decoded[colon + 1..].to_vec())
}

const BASIC: &[u8] = b"basic";
const TOKEN: HeaderName = HeaderName::from_static("tidegate-token");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_password_of_basic_credentials_only() {
        let check = |text: &str, password: Option<&str>| {
            let password = password.map(|password| password.as_bytes().to_vec());
            assert_eq!(basic_password(text.as_bytes()), password, "{text}");
        };
        check("Basic dTpw", Some("p"));
        check("bASIC  dTpw ", Some("p"));
        check(&format!("Basic {}", base64::encode(b"u:a:b")), Some("a:b"));
        check(&format!("Basic {}", base64::encode(b":p")), Some("p"));
        for bad in [
            "",
            "Basic",
            "Basic ",
            "Basic dQ==",
            "Bearer dTpw",
            "Basic \u{e4}",
            "Basicd dTpw",
        ] {
            check(bad, None);
        }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn limits(texts: &[&str], before: Option<&Arc<ClientLimits>>) -> Arc<ClientLimits> {
        let limits: Vec<Limit> = texts.iter().map(|text| text.parse().unwrap()).collect();
        ClientLimits::new(&limits, before).unwrap()
    }

    #[test]
    fn counts_accepted_requests_under_every_limit() {
        let limits = limits(&["2/10s", "3/1m"], None);
        assert_eq!(limits.count(at(0)), Ok(()));
        assert_eq!(limits.count(at(1)), Ok(()));
        assert_eq!(limits.count(at(2)), Err(Duration::from_secs(8)));
        // What was refused is not counted.
        assert_eq!(limits.count(at(10)), Ok(()));
        assert_eq!(limits.count(at(30)), Err(Duration::from_secs(30)));
        assert_eq!(limits.count(at(60)), Ok(()));
    }

    #[test]
    fn a_reload_does_not_renew_the_allowance() {
        let before = limits(&["2/1m"], None);
        assert_eq!((before.count(at(0)), before.count(at(0))), (Ok(()), Ok(())));
        assert!(Arc::ptr_eq(&limits(&["2/1m"], Some(&before)), &before));
        let changed = limits(&["3/1m"], Some(&before));
        assert_eq!(changed.count(at(1)), Ok(()));
        assert_eq!(changed.count(at(1)), Err(Duration::from_secs(59)));
        assert!(ClientLimits::new(&[], Some(&before)).is_none());
    }
}
