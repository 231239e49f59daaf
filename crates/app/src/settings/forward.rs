//! Forward mode: which hosts clients may reach through `HTTP_PROXY`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use policy::hosts::HostPattern;
use policy::setting::Kind;

use super::value;

policy::settings! {
    /// What is written in `[forward]`.
    pub struct ForwardOptions;
    /// `[forward]`: HTTP_PROXY mode.
    #[derive(Eq)]
    pub struct Forward(pub) {
        /// Hosts that may be reached through it, such as ["*.example.com"].
        allow: Vec<HostPattern> = "", Kind::list(&value::HOST_PATTERN, 1000);
        /// Hosts that may not, even if they are allowed: names, ".example.com" with all below it, networks, "*".
        deny: Vec<DeniedHost> = "", Kind::list(&value::DENIED_HOST, 1000);
    }
}

impl Forward {
    /// Is any host allowed?
    pub fn is_on(&self) -> bool {
        !self.allow.is_empty()
    }

    /// May clients reach this [normalised](policy::key::normalize) host, without a port? The
    /// addresses that its name leads to are checked when it is dialled.
    pub fn allows(&self, host: &str) -> bool {
        self.allow.iter().any(|pattern| pattern.matches(host))
            && !self.deny.iter().any(|denied| denied.matches(host))
    }

    /// Networks that clients may not reach, by whatever name.
    pub fn denied_networks(&self) -> Vec<IpNet> {
        let networks = self.deny.iter().filter_map(|denied| match denied {
            DeniedHost::Network(network) => Some(*network),
            DeniedHost::All | DeniedHost::Host(_) | DeniedHost::Domain(_) => None,
        });
        networks.collect()
    }
}

/// What clients may not reach, written as in `NO_PROXY`.
///
/// ```
/// let denied: app::settings::DeniedHost = ".example.com".parse().unwrap();
/// assert!(denied.matches("example.com") && denied.matches("a.example.com"));
/// assert!(!denied.matches("badexample.com"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeniedHost {
    /// `*`: every host.
    All,
    /// `api.example.com`, or `*.example.com` for all below it.
    Host(HostPattern),
    /// `.example.com`: this host and all below it.
    Domain(String),
    /// `10.0.0.0/8` or one address: hosts written as such an address, and names that lead to one.
    Network(IpNet),
}

impl DeniedHost {
    /// Whether it matches a [normalised](policy::key::normalize) host without a port.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::All => true,
            Self::Host(pattern) => pattern.matches(host),
            Self::Domain(domain) => host
                .strip_suffix(domain.as_str())
                .is_some_and(|front| front.is_empty() || front.ends_with('.')),
            Self::Network(network) => {
                let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
                address.is_ok_and(|address| network.contains(&address))
            }
        }
    }
}

impl FromStr for DeniedHost {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "a host such as `api.example.com`, `.example.com`, a network such as `10.0.0.0/8`, or `*`";
        if text == "*" {
            return Ok(Self::All);
        }
        if let Some(domain) = text.strip_prefix('.') {
            return value::host(domain).map(Self::Domain).map_err(|_| EXPECTED);
        }
        let is_network = text.contains('/') || text.parse::<IpAddr>().is_ok();
        match is_network {
            true => value::network(text).map(Self::Network),
            false => text.parse().map(Self::Host).map_err(|_| EXPECTED),
        }
    }
}

impl fmt::Display for DeniedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Host(pattern) => write!(f, "{pattern}"),
            Self::Domain(domain) => write!(f, ".{domain}"),
            Self::Network(network) => write!(f, "{network}"),
        }
    }
}

policy::setting_values!(DeniedHost);

#[cfg(test)]
mod tests {
    use super::*;

    fn forward(allow: &[&str], deny: &[&str]) -> Forward {
        Forward {
            allow: allow.iter().map(|text| text.parse().unwrap()).collect(),
            deny: deny.iter().map(|text| text.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn allows_what_is_allowed_and_not_denied() {
        let forward = forward(
            &[
                "*.example.com",
                "example.org",
                "10.1.2.3",
                "10.2.0.1",
                "[::1]",
            ],
            &["api.example.com", ".b.example.com", "10.2.0.0/16", "::1"],
        );
        for host in [
            "a.example.com",
            "x.y.example.com",
            "example.org",
            "10.1.2.3",
        ] {
            assert!(forward.allows(host), "{host}");
        }
        for host in [
            "example.com",
            "api.example.com",
            "b.example.com",
            "c.b.example.com",
            "www.example.org",
            "10.2.0.1",
            "[::1]",
            "example.net",
        ] {
            assert!(!forward.allows(host), "{host}");
        }
    }

    #[test]
    fn nothing_is_allowed_by_default_or_with_a_denied_star() {
        assert!(!Forward::default().allows("example.com"));
        assert!(!Forward::default().is_on());
        assert!(!forward(&["example.com"], &["*"]).allows("example.com"));
    }

    #[test]
    fn denied_hosts_are_displayed_as_they_are_written() {
        for text in [
            "*",
            "a.example.com",
            "*.example.com",
            ".example.com",
            "10.0.0.0/8",
        ] {
            assert_eq!(text.parse::<DeniedHost>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            ".",
            "..",
            "a.*.com",
            "10.1.2.3/8",
            "http://a",
            "a:8080",
            ".a:8080",
            "*.*",
        ] {
            assert!(bad.parse::<DeniedHost>().is_err(), "{bad}");
        }
    }
}
