//! Which `Host` names both listeners accept.
//!
//! Any web page can make a browser send requests to loopback, under a name that the page's owner has
//! pointed there by DNS. So only known names are served.

use std::net::{IpAddr, SocketAddr};

use http::uri::Authority;
use http::{HeaderMap, HeaderValue, header};
use url::Url;

use crate::settings::Settings;

/// The names that one listener accepts.
#[derive(Debug)]
pub(crate) struct AcceptedHosts {
    /// The address that it listens on.
    address: SocketAddr,
    /// Further names, from the settings.
    hosts: Vec<String>,
    /// What most requests say, so that it need not be parsed each time.
    usual: [String; 2],
}

impl AcceptedHosts {
    pub(crate) fn new(settings: &Settings, address: SocketAddr) -> Self {
        Self {
            address,
            hosts: settings.server.hosts.clone(),
            usual: [address.to_string(), format!("localhost:{}", address.port())],
        }
    }

    /// Does this URL lead to this very listener, its port included?
    pub(crate) fn names_listener(&self, url: &Url) -> bool {
        let host = url
            .host_str()
            .and_then(|host| Authority::try_from(host).ok());
        let is_port = url.port_or_known_default() == Some(self.address.port());
        is_port && host.is_some_and(|host| self.accepts(&host))
    }

    /// Does the `Host` of a request name this listener?
    pub(crate) fn accepts_request(&self, headers: &HeaderMap) -> bool {
        one_host(headers).is_ok_and(|host| self.accepts_host(host))
    }

    /// Does this `Host` name this listener?
    pub(crate) fn accepts_host(&self, host: Option<&HeaderValue>) -> bool {
        // HTTP/1.0 need not have one, and no browser speaks it.
        host.is_none_or(|host| {
            let is_usual = self.usual.iter().any(|usual| host == usual);
            is_usual
                || Authority::try_from(host.as_bytes())
                    .is_ok_and(|authority| self.accepts(&authority))
        })
    }

    /// Does this authority name this listener?
    pub(crate) fn accepts(&self, authority: &Authority) -> bool {
        let host = authority.host().trim_end_matches('.');
        let is_named = self
            .hosts
            .iter()
            .any(|ours| ours.eq_ignore_ascii_case(host));
        // A page cannot point an address elsewhere.
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        let is_address = address.is_ok_and(|address| {
            address.is_loopback()
                || address == self.address.ip()
                || self.address.ip().is_unspecified()
        });
        is_named || is_address || is_localhost(host)
    }
}

/// A request has several `Host` headers.
#[derive(Debug)]
pub(crate) struct SeveralHosts;

/// The `Host` of a request, if it has one.
pub(crate) fn one_host(headers: &HeaderMap) -> Result<Option<&HeaderValue>, SeveralHosts> {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (host, None) => Ok(host),
        (_, Some(_)) => Err(SeveralHosts),
    }
}

/// Is this `localhost` or a name below it? Those are loopback by definition (RFC 6761): they
/// belong to this machine, and need not be resolved. Any case, with or without a dot at the end.
pub(crate) fn is_localhost(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let start = host.len().saturating_sub("localhost".len());
    let Some((below, name)) = host.split_at_checked(start) else {
        return false;
    };
    name.eq_ignore_ascii_case("localhost") && (below.is_empty() || below.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(host: &str) -> bool {
        let settings = Settings::default();
        let names = AcceptedHosts {
            hosts: vec!["gate.example.com".to_owned()],
            ..AcceptedHosts::new(&settings, settings.server.admin)
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        names.accepts_request(&headers)
    }

    #[test]
    fn takes_localhost_and_names_below_it_for_loopback() {
        for name in ["localhost", "LocalHost.", "a.localhost", "a.b.LOCALHOST."] {
            assert!(is_localhost(name), "{name}");
        }
        for name in [
            "",
            ".",
            "host",
            "mylocalhost",
            "localhost.com",
            "élocalhost",
            "localhost..",
        ] {
            assert!(!is_localhost(name), "{name}");
        }
    }

    #[test]
    fn accepts_loopback_and_configured_hosts() {
        for host in [
            "127.0.0.1:7071",
            "localhost",
            "LOCALHOST:1",
            "[::1]:7071",
            "gate.example.com",
            "Gate.Example.com.:7071",
        ] {
            assert!(accepts(host), "{host}");
        }
    }

    #[test]
    fn refuses_other_hosts() {
        for host in [
            "evil.example.com",
            "127.0.0.1.evil.example.com",
            "localhost.evil.example.com",
            "10.0.0.1",
            "",
            "a b",
        ] {
            assert!(!accepts(host), "{host}");
        }
    }
}
