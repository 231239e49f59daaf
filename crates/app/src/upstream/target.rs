//! Where requests go: one server, and the connections to it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use http::HeaderValue;
use rustls::pki_types::ServerName;
use url::{Host, Url};

use super::Lane;
use crate::host_check::is_localhost;

/// One server: scheme, host and port. Connections to it are kept by worker.
pub struct Target {
    is_tls: bool,
    host: Place,
    port: u16,
    trust: Trust,
    /// The `Host` header, and the authority of a request.
    authority: HeaderValue,
    server_name: Option<ServerName<'static>>,
    lanes: Box<[Arc<Lane>]>,
}

/// A host, as it is dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// An address, written out.
    Address(IpAddr),
    /// A name, to be resolved.
    Name(Box<str>),
}

/// Who wrote an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The operator: an address written out, and `localhost` or a name below it, is meant.
    Operator,
    /// Someone else: every address is checked.
    Nobody,
}

/// Why there can be no such target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Neither http nor https.
    #[error("expected an address that begins with `http://` or `https://`")]
    Scheme,
    /// No host, or one that cannot be sent in a header.
    #[error("expected an address with a host")]
    Host,
}

impl Target {
    /// The server of `url`, with connections for so many workers.
    ///
    /// # Errors
    ///
    /// If it is no server that can be called.
    pub fn new(url: &Url, trust: Trust, workers: usize) -> Result<Self, TargetError> {
        let is_tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(TargetError::Scheme),
        };
        let host = match url.host().ok_or(TargetError::Host)? {
            Host::Domain(name) => Place::Name(name.trim_end_matches('.').into()),
            Host::Ipv4(address) => Place::Address(address.into()),
            Host::Ipv6(address) => Place::Address(address.into()),
        };
        let port = url.port_or_known_default().ok_or(TargetError::Scheme)?;
        let authority = match (url.host_str(), url.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (Some(host), None) => host.to_owned(),
            (None, _) => return Err(TargetError::Host),
        };
        let server_name = match &host {
            Place::Address(address) => ServerName::from(*address),
            Place::Name(name) => {
                ServerName::try_from(name.to_string()).map_err(|_| TargetError::Host)?
            }
        };
        Ok(Self {
            is_tls,
            server_name: is_tls.then_some(server_name),
            host,
            port,
            trust,
            authority: HeaderValue::from_str(&authority).map_err(|_| TargetError::Host)?,
            lanes: (0..workers.max(1))
                .map(|_| Arc::new(Lane::default()))
                .collect(),
        })
    }

    /// The `Host` header of requests to it.
    pub fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// Is it spoken to over TLS?
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Closes connections that nobody has used for a while.
    pub fn close_idle(&self, worker: usize, idle: std::time::Duration) {
        self.lane(worker).close_idle(idle);
    }

    pub(super) fn host(&self) -> &Place {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn server_name(&self) -> Option<&ServerName<'static>> {
        self.server_name.as_ref()
    }

    pub(super) fn lane(&self, worker: usize) -> &Arc<Lane> {
        &self.lanes[worker % self.lanes.len()]
    }

    /// What its operator meant, so that it need not be checked: the address itself, or the
    /// loopback addresses that `localhost` is by definition.
    pub(super) fn meant(&self) -> Option<Vec<IpAddr>> {
        match (&self.host, self.trust) {
            (_, Trust::Nobody) => None,
            (Place::Address(address), Trust::Operator) => Some(vec![*address]),
            (Place::Name(name), Trust::Operator) => is_localhost(name)
                .then(|| vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("is_tls", &self.is_tls)
            .field("host", &self.host)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}
