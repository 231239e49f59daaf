//! Which names for us are ours.
//!
//! A browser can be made to send requests to localhost by any page, under a name of that page's
//! owner. Hence only names that are known to be ours are answered, by both listeners alike.

use std::net::{IpAddr, SocketAddr};

use http::uri::Authority;
use http::{HeaderMap, header};

use crate::settings::Settings;

/// The names of one listener.
#[derive(Debug)]
pub(crate) struct Names {
    /// Where we listen.
    address: SocketAddr,
    /// Other names of ours.
    hosts: Vec<String>,
}

impl Names {
    pub(crate) fn new(settings: &Settings, address: SocketAddr) -> Self {
        Self {
            address,
            hosts: settings.server.hosts.clone(),
        }
    }

    /// Does the `Host` of a request name us?
    pub(crate) fn is_host_ours(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        match (hosts.next(), hosts.next()) {
            // HTTP/1.0 knows no `Host`, and no browser speaks it.
            (None, _) => true,
            (Some(host), None) => {
                let authority = Authority::try_from(host.as_bytes());
                authority.is_ok_and(|authority| self.is_ours(&authority))
            }
            (Some(_), Some(_)) => false,
        }
    }

    /// Is this a name of ours?
    pub(crate) fn is_ours(&self, authority: &Authority) -> bool {
        let host = authority.host().trim_end_matches('.');
        let is_named = self
            .hosts
            .iter()
            .any(|ours| ours.eq_ignore_ascii_case(host));
        // What names an address, not a name: a browser's page has none of these.
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        let is_address = address.is_ok_and(|address| {
            address.is_loopback()
                || address == self.address.ip()
                || self.address.ip().is_unspecified()
        });
        is_named || is_address || is_localhost(host)
    }
}

/// Is this `localhost` or a name below it? Those are loopback by definition (RFC 6761): nobody else
/// can have them, and they need not be resolved. Any case, with or without a dot at the end.
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
    use http::HeaderValue;

    use super::*;

    fn is_ours(host: &str) -> bool {
        let settings = Settings::default();
        let names = Names {
            hosts: vec!["gate.example.com".to_owned()],
            ..Names::new(&settings, settings.server.admin)
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        names.is_host_ours(&headers)
    }

    #[test]
    fn localhost_and_names_below_it_are_loopback() {
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
    fn loopback_and_what_was_named_are_ours() {
        for host in [
            "127.0.0.1:7071",
            "localhost",
            "LOCALHOST:1",
            "[::1]:7071",
            "gate.example.com",
            "Gate.Example.com.:7071",
        ] {
            assert!(is_ours(host), "{host}");
        }
    }

    #[test]
    fn names_of_others_are_not() {
        for host in [
            "evil.example.com",
            "127.0.0.1.evil.example.com",
            "localhost.evil.example.com",
            "10.0.0.1",
            "",
            "a b",
        ] {
            assert!(!is_ours(host), "{host}");
        }
    }
}
