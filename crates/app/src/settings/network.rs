//! What may be dialled, and the proxy that Tidegate itself uses.

use config::Reader;
use ipnet::IpNet;
use policy::setting::Kind;
use url::Url;

use super::secret::Secret;
use super::server::has_password;
use super::value;
use crate::base64;

policy::settings! {
    /// What is written in `[network]`.
    pub struct NetworkOptions {
        /// Networks such as ["10.1.0.0/16"]; an address written as an endpoint is allowed by itself.
        allow: Vec<String> = "", Kind::list(&value::NETWORK, 1000);
        /// The proxy that Tidegate itself uses; with a password only as env:NAME or file:PATH.
        proxy: Secret = none, Kind::Secret { literal: true }, example "http://proxy.example.com:3128";
    }
}

/// `[network]`: what may be dialled besides public addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Networks that are allowed.
    pub allow: Vec<IpNet>,
    /// The proxy that Tidegate itself uses.
    pub proxy: Option<ProxySettings>,
}

impl Network {
    pub(crate) fn read(reader: &Reader<'_>) -> Self {
        let options = reader.options::<NetworkOptions>();
        let allow = options.allow.unwrap_or_default();
        Self {
            allow: allow.iter().flat_map(|text| value::network(text)).collect(),
            proxy: options.proxy.and_then(|proxy| read_proxy(reader, &proxy)),
        }
    }
}

fn read_proxy(reader: &Reader<'_>, proxy: &Secret) -> Option<ProxySettings> {
    let written = reader.node("proxy").and_then(|node| node.value.text());
    if written.is_some_and(has_password) {
        let what = "a password must not be written out, expected `env:NAME` or `file:PATH`";
        reader.report("proxy", what);
        return None;
    }
    match ProxySettings::parse(proxy.expose()) {
        Ok(proxy) => Some(proxy),
        // The value may have a password in it, so it is not shown.
        Err(expected) => {
            reader.report(
                "proxy",
                format!("is no address of a proxy, expected {expected}"),
            );
            None
        }
    }
}

/// The proxy that Tidegate itself uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySettings {
    /// Its name or address; an IPv6 address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The value of `Proxy-Authorization`, if it wants one.
    pub authorization: Option<Secret>,
}

impl ProxySettings {
    /// Reads `http://user:password@host:port`, where user and password may be missing.
    fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "a URL such as `http://proxy.example.com:3128`";
        let url = Url::parse(text).map_err(|_| EXPECTED)?;
        if url.scheme() != "http" {
            return Err("a URL that begins with `http://`: the connection to the proxy has no TLS");
        }
        let has_more = !matches!(url.path(), "" | "/") || url.query().is_some();
        if has_more || url.fragment().is_some() {
            return Err("a URL without a path");
        }
        let host = url.host_str().ok_or(EXPECTED)?;
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port_or_known_default().ok_or(EXPECTED)?,
            authorization: authorization(&url)?,
        })
    }
}

fn authorization(url: &Url) -> Result<Option<Secret>, &'static str> {
    let password = url.password().unwrap_or_default();
    if url.username().is_empty() && password.is_empty() {
        return Ok(None);
    }
    let mut credentials = unescaped(url.username())?;
    // Behind the first colon is the password.
    if credentials.contains(&b':') {
        return Err("a user name without `:`");
    }
    credentials.push(b':');
    credentials.extend(unescaped(password)?);
    let credentials = format!("Basic {}", base64::encode(&credentials));
    Ok(Some(Secret::new(credentials)))
}

/// The bytes of a text in which some are written as `%40`.
fn unescaped(text: &str) -> Result<Vec<u8>, &'static str> {
    const EXPECTED: &str = "two digits after each `%` in user and password";
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).ok_or(EXPECTED)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| EXPECTED)?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, host: &str, port: u16, credentials: Option<&str>) {
        let proxy = ProxySettings::parse(text).unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), (host, port), "{text}");
        let expected = credentials.map(|text| format!("Basic {}", base64::encode(text.as_bytes())));
        let authorization = proxy.authorization.as_ref().map(Secret::expose);
        assert_eq!(authorization, expected.as_deref(), "{text}");
    }

    #[test]
    fn reads_addresses_with_and_without_credentials() {
        check("http://proxy:3128", "proxy", 3128, None);
        check("http://proxy.example.com/", "proxy.example.com", 80, None);
        check("http://[::1]:3128", "::1", 3128, None);
        check("http://u:p@proxy:3128", "proxy", 3128, Some("u:p"));
        check(
            "http://u%40x:p%3A%2F@proxy:3128",
            "proxy",
            3128,
            Some("u@x:p:/"),
        );
        check("http://u@proxy:3128", "proxy", 3128, Some("u:"));
    }

    #[test]
    fn refuses_what_is_no_proxy() {
        for bad in [
            "",
            "proxy:3128",
            "https://proxy:3128",
            "socks5://proxy:1080",
            "http://proxy/path",
            "http://proxy?x",
            "http://proxy#x",
            "http://a%3Ab:p@proxy",
            "http://a:%zz@proxy",
        ] {
            assert!(ProxySettings::parse(bad).is_err(), "{bad}");
        }
    }
}
