//! Kinds of values that no policy has: sizes, addresses, URLs, hosts, networks.
//!
//! Each is read by a function from text to a type, or to what was expected instead.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use ipnet::IpNet;
use policy::hosts::{HostPattern, HostPatternError};
use policy::key;
use policy::setting::{self, Format, Kind};
use url::Url;

use super::forward::DeniedHost;
use super::secret::SecretPattern;

macro_rules! formats {
    ($($(#[$doc:meta])+ $NAME:ident: $name:literal, $example:literal, $pattern:expr, $read:expr;)+) => {$(
        $(#[$doc])+
        pub(crate) const $NAME: Kind = Kind::Format(&Format::of($name, $example, $pattern, |text| {
            $read(text).map(drop).map_err(str::to_owned)
        }));
    )+};
}

formats! {
    /// Where to listen.
    ADDRESS: "address", "\"127.0.0.1:7070\"", Some(":[0-9]+$"), address;
    /// One host.
    HOST: "host", "\"tidegate.example.com\"", None, host;
    /// A host, or all below one.
    HOST_PATTERN: "host", "\"*.example.com\"", None, host_pattern;
    /// A host that may not be reached, as in `NO_PROXY`.
    DENIED_HOST: "host or network", "\".example.com\"", None, str::parse::<DeniedHost>;
    /// A web origin.
    ORIGIN: "origin", "\"https://app.example.com\"", Some("^https?://"), origin;
    /// A pattern of references to secrets.
    REFERENCES: "reference", "\"env:LLM_*\"", Some("^(env|file):."), str::parse::<SecretPattern>;
    /// A network, or one address.
    NETWORK: "network", "\"10.1.0.0/16\"", None, network;
    /// The name of a header.
    HEADER_NAME: "header name", "\"authorization\"", None, header_name;
    /// The name of an endpoint.
    ENDPOINT_NAME: "name", "\"a\"", None, super::pool::endpoint_name;
    /// The name of a fleet.
    NAMESPACE: "name", "\"production\"", Some("^[A-Za-z0-9._-]{1,64}$"), namespace;
    /// The path of a folder.
    FOLDER: "path", "\"tidegate-data\"", None, folder;
    /// The path of a file.
    PATH: "path", "\"access.log\"", None, path;
    /// A file that holds a certificate or a key.
    FILE: "file", "\"file:/etc/tls/cert.pem\"", Some("^file:."), file;
    /// A size or `none`.
    SIZE: "size", "\"1MiB\"", Some("^(none|[0-9_]+ ?(B|[KMG]iB|[kMG]B))$"), str::parse::<Size>;
    /// A size of something that is held in memory.
    BOUNDED_SIZE: "size", "\"1MiB\"", Some("^[0-9_]+ ?(B|[KMG]iB|[kMG]B)$"), bounded;
    /// Bytes per second.
    BYTE_RATE: "rate", "\"1KiB/s\"", Some("^[0-9_]+ ?(B|[KMG]iB|[kMG]B)/s$"), str::parse::<ByteRate>;
}

/// A name that can be part of a key in Redis, whose braces and colons have a meaning.
fn namespace(text: &str) -> Result<(), &'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match (1..=64).contains(&text.len()) && text.chars().all(is_plain) {
        true => Ok(()),
        false => Err("1 to 64 letters, digits, `.`, `_` and `-`"),
    }
}

/// A URL of `http` or `https`; a message shows it without what may be secret in it.
pub(crate) const URL: Kind = Kind::Format(&Format {
    shown: Some(shown_url),
    ..Format::of(
        "URL",
        "\"https://api.example.com/v1\"",
        Some("^https?://"),
        |text| http_url(text).map(drop).map_err(str::to_owned),
    )
});

/// A number of bytes, or no bound at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// No bound.
    None,
    /// At most so many bytes.
    Bytes(u64),
}

impl FromStr for Size {
    type Err = &'static str;

    /// Reads `none`, `512B`, `64KiB`, `1MiB`, `2GiB`, and `kB`, `MB`, `GB` in thousands.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "a number with a unit such as `64KiB` or `1MiB`, or `none`";
        if text == "none" {
            return Ok(Self::None);
        }
        let digits = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_');
        let (number, unit) = text.split_at(text.len() - digits.len());
        let number: u64 = setting::number(number).ok_or(EXPECTED)?;
        let (_, bytes) = UNITS
            .iter()
            .find(|(name, _)| *name == unit.trim())
            .ok_or(EXPECTED)?;
        let size = number.checked_mul(*bytes).filter(|size| *size <= MAX_SIZE);
        size.map(Self::Bytes)
            .ok_or("a size of at most 1024GiB, or `none`")
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Bytes(bytes) = *self else {
            return f.write_str("none");
        };
        let (unit, size) = UNITS[..4]
            .iter()
            .rev()
            .find(|(_, size)| bytes.is_multiple_of(*size) && bytes > 0)
            .unwrap_or(&UNITS[0]);
        write!(f, "{}{unit}", bytes / size)
    }
}

policy::setting_values!(Size);

const UNITS: [(&str, u64); 7] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

const MAX_SIZE: u64 = 1 << 40;

/// A size that has a bound.
pub(crate) fn bounded(text: &str) -> Result<u64, &'static str> {
    match text.parse()? {
        Size::None => Err("a size such as `1MiB`; a buffer in memory needs a bound"),
        Size::Bytes(bytes) => Ok(bytes),
    }
}

/// Bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRate(pub u64);

impl FromStr for ByteRate {
    type Err = &'static str;

    /// Reads a size per second, as in `1KiB/s`.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "a size per second such as `1KiB/s`";
        let size = text.strip_suffix("/s").ok_or(EXPECTED)?;
        bounded(size.trim()).map(Self).map_err(|_| EXPECTED)
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", Size::Bytes(self.0))
    }
}

policy::setting_values!(ByteRate);

fn folder(text: &str) -> Result<(), &'static str> {
    match text {
        "" => Err("the path of a folder"),
        _ => Ok(()),
    }
}

fn path(text: &str) -> Result<(), &'static str> {
    match text {
        "" => Err("the path of a file"),
        _ => Ok(()),
    }
}

fn file(text: &str) -> Result<(), &'static str> {
    match text.strip_prefix("file:") {
        Some(path) if !path.is_empty() => Ok(()),
        _ => Err("a file such as `file:/etc/tls/cert.pem`"),
    }
}

/// Where to listen: an IP address and a port.
pub(crate) fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse()
        .map_err(|_| "an IP address and a port such as `127.0.0.1:7070` or `[::1]:7070`")
}

/// A URL of `http` or `https`, without user info and without a fragment.
pub(crate) fn http_url(text: &str) -> Result<Url, &'static str> {
    const EXPECTED: &str = "a URL such as `https://api.example.com/v1`";
    // The reader of keys refuses what the parser would silently repair.
    key::normalize(text).map_err(|_| EXPECTED)?;
    let url = Url::parse(text).map_err(|_| EXPECTED)?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err("a URL that begins with `http://` or `https://`");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL without user info; credentials go into `headers`");
    }
    if url.fragment().is_some() {
        return Err("a URL without `#`");
    }
    Ok(url)
}

/// A URL as a message may show it: without user info, path and query, all of which can be secrets.
pub(crate) fn shown_url(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let host = rest.split(['/', '?', '#', '\\']).next().unwrap_or(rest);
    let mut shown = String::new();
    if !scheme.is_empty() {
        shown = format!("{scheme}://");
    }
    if text.contains('@') {
        shown.push_str("…@");
    }
    shown.push_str(host);
    if host.len() < rest.len() {
        shown.push_str("/…");
    }
    shown
}

/// A host, or all below one.
fn host_pattern(text: &str) -> Result<HostPattern, &'static str> {
    text.parse()
        .map_err(|error: HostPatternError| error.expected())
}

/// One name a server answers to: a host without a pattern.
pub(crate) fn host(text: &str) -> Result<String, &'static str> {
    match host_pattern(text)? {
        HostPattern::Exact(host) => Ok(host),
        HostPattern::Below(_) | HostPattern::Prefix(_) => {
            Err("one host, such as `tidegate.example.com`")
        }
    }
}

/// The origin of web pages, as browsers send it: `https://app.example.com`, `http://localhost:3000`.
pub(crate) fn origin(text: &str) -> Result<String, &'static str> {
    const EXPECTED: &str =
        "a web origin such as `https://app.example.com`: scheme, host and port only";
    let url = http_url(text).map_err(|_| EXPECTED)?;
    let has_more = url.path() != "/" || url.query().is_some() || text.ends_with('/');
    if has_more {
        return Err(EXPECTED);
    }
    Ok(url.origin().ascii_serialization())
}

/// A network such as `10.1.0.0/16`, or one address.
pub(crate) fn network(text: &str) -> Result<IpNet, &'static str> {
    const EXPECTED: &str = "a network such as `10.1.0.0/16`, or an IP address";
    if let Ok(address) = text.parse::<std::net::IpAddr>() {
        return Ok(address.into());
    }
    let network: IpNet = text.parse().map_err(|_| EXPECTED)?;
    if network.trunc() != network {
        return Err("a network whose address ends with zeros, such as `10.1.0.0/16`");
    }
    Ok(network)
}

/// The name of a header.
pub(crate) fn header_name(text: &str) -> Result<String, &'static str> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if text.is_empty() || text.len() > 256 || !text.chars().all(is_token) {
        return Err("the name of a header, such as `authorization`");
    }
    Ok(text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sizes_with_units() {
        let check = |text: &str, size| assert_eq!(text.parse(), Ok(size), "{text}");
        check("none", Size::None);
        check("0B", Size::Bytes(0));
        check("1MiB", Size::Bytes(1 << 20));
        check("64 KiB", Size::Bytes(64 << 10));
        check("5MB", Size::Bytes(5_000_000));
        for bad in ["", "1", "1.5MiB", "-1MiB", "MiB", "1mib", "2000GiB", "None"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
        for text in ["none", "1MiB", "1000B", "3GiB", "0B"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn refuses_urls_of_other_schemes_or_with_user_info() {
        assert!(http_url("https://a.example.com/v1").is_ok());
        assert!(http_url("http://127.0.0.1:8080").is_ok());
        for bad in [
            "",
            "a.example.com",
            "ftp://a",
            "https://",
            "https://u:p@a",
            "https://u@a",
            "https://a/#x",
            "https://a b/",
            "https:\\\\a",
            "//a",
        ] {
            assert!(http_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shows_urls_without_secrets() {
        assert_eq!(
            shown_url("https://u:S@a.example.com/S?S#S"),
            "https://…@a.example.com/…"
        );
        assert_eq!(shown_url("https://u:S/S@a"), "https://…@a");
        assert_eq!(shown_url("ftp://a.example.com"), "ftp://a.example.com");
        assert_eq!(shown_url("a/S"), "a/…");
    }

    #[test]
    fn normalizes_origins_and_refuses_paths() {
        assert_eq!(
            origin("HTTPS://App.example.com:443").unwrap(),
            "https://app.example.com"
        );
        assert_eq!(
            origin("http://localhost:3000").unwrap(),
            "http://localhost:3000"
        );
        for bad in [
            "",
            "null",
            "*",
            "app.example.com",
            "https://a/",
            "https://a/b",
            "https://a?b",
            "ftp://a",
        ] {
            assert!(origin(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn refuses_networks_with_host_bits() {
        assert!(network("10.1.0.0/16").is_ok());
        assert!(network("fd00::/8").is_ok());
        assert_eq!(network("10.0.0.1").unwrap().to_string(), "10.0.0.1/32");
        for bad in ["", "10.1.2.3/16", "10.0.0.0/33", "example.com", "*"] {
            assert!(network(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn refuses_hosts_with_ports_and_patterns_with_other_stars() {
        for bad in [
            "",
            "*",
            "a.*.com",
            "*.*.com",
            "a:8080",
            "https://a",
            "a/b",
            "**.a",
        ] {
            assert!(bad.parse::<HostPattern>().is_err(), "{bad}");
        }
        let pattern: HostPattern = "*.EXAMPLE.com".parse().unwrap();
        assert_eq!(pattern.to_string(), "*.example.com");
        assert!(host("*.example.com").is_err());
    }
}
