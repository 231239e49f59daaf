//! The address of a Redis server, as a URL.
//!
//! `rediss://` checks the certificate of the server; a URL that asks not to check it is refused, because
//! the password could go to another server.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};
use thiserror::Error;

/// Where gates are shared: `redis://USER:PASSWORD@HOST:PORT/DATABASE`, `rediss://…` over TLS, or
/// `unix:///PATH`. The parameter `cacert=FILE` names other authorities than the system's. `Debug` and
/// `Display` show no password.
///
/// ```
/// use store::GatesAddress;
///
/// let address: GatesAddress = "rediss://:secret@redis.example.com/2".parse()?;
/// assert_eq!(address.to_string(), "rediss://redis.example.com:6379/2");
/// # Ok::<(), store::GatesAddressError>(())
/// ```
#[derive(Clone)]
pub struct GatesAddress {
    info: ConnectionInfo,
    shown: String,
    pub(super) roots: Option<PathBuf>,
}

/// Why a text is not the address of a Redis server. The text is not shown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GatesAddressError {
    /// It has another scheme.
    #[error("expected an address that begins with `redis://` or `rediss://` or `unix://`")]
    Scheme,
    /// It is no URL of Redis.
    #[error("expected `redis://USER:PASSWORD@HOST:PORT/DATABASE`, but {0}")]
    Invalid(String),
    /// It has a parameter that nothing here reads.
    #[error("`{0}` is no parameter of it, expected `cacert=FILE`")]
    Parameter(String),
    /// It asks not to check who answers.
    #[error(
        "`#insecure` checks no certificate, expected `cacert=FILE` with the authority of the server"
    )]
    Insecure,
}

impl GatesAddress {
    /// How to connect to it.
    pub(super) fn info(&self) -> ConnectionInfo {
        self.info.clone()
    }

    pub(super) fn uses_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }
}

impl FromStr for GatesAddress {
    type Err = GatesAddressError;

    fn from_str(text: &str) -> Result<Self, GatesAddressError> {
        if !SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
            return Err(GatesAddressError::Scheme);
        }
        if text.ends_with("#insecure") {
            return Err(GatesAddressError::Insecure);
        }
        let (rest, roots) = without_parameters(text)?;
        let info = rest
            .as_str()
            .into_connection_info()
            .map_err(|error| GatesAddressError::Invalid(error.to_string().to_lowercase()))?;
        let settings = info.redis_settings().clone();
        // Messages of other nodes arrive on the same connection, which the older protocol cannot do.
        let settings = settings
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("tidegate", env!("CARGO_PKG_VERSION"));
        let info = info.set_redis_settings(settings);
        Ok(Self {
            shown: shown(&info),
            info,
            roots,
        })
    }
}

const SCHEMES: [&str; 3] = ["redis://", "rediss://", "unix://"];

/// A URL without the parameters that are ours, and the file of `cacert`.
fn without_parameters(text: &str) -> Result<(String, Option<PathBuf>), GatesAddressError> {
    let Some((before, query)) = text.split_once('?') else {
        return Ok((text.to_owned(), None));
    };
    let mut roots = None;
    let mut others = Vec::new();
    for parameter in query.split('&') {
        match parameter.split_once('=') {
            Some(("cacert", path)) => roots = Some(path.into()),
            // Of a socket, which has no other place for them.
            Some(("db" | "user" | "pass", _)) if text.starts_with("unix://") => {
                others.push(parameter);
            }
            other => {
                let name = other.map_or(parameter, |(name, _)| name);
                return Err(GatesAddressError::Parameter(name.to_owned()));
            }
        }
    }
    let rest = match others.is_empty() {
        true => before.to_owned(),
        false => format!("{before}?{}", others.join("&")),
    };
    Ok((rest, roots))
}

/// Without password and parameters.
fn shown(info: &ConnectionInfo) -> String {
    let user = info.redis_settings().username();
    let user = user.map_or_else(String::new, |user| format!("{user}@"));
    let database = match info.redis_settings().db() {
        0 => String::new(),
        number => format!("/{number}"),
    };
    let host = |host: &str| match host.contains(':') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    };
    match info.addr() {
        ConnectionAddr::Tcp(name, port) => format!("redis://{user}{}:{port}{database}", host(name)),
        ConnectionAddr::TcpTls {
            host: name, port, ..
        } => format!("rediss://{user}{}:{port}{database}", host(name)),
        ConnectionAddr::Unix(path) => format!("unix://{}", path.display()),
        _ => "redis://".to_owned(),
    }
}

impl fmt::Display for GatesAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for GatesAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GatesAddress").field(&self.shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<GatesAddress, GatesAddressError> {
        text.parse()
    }

    #[test]
    fn shows_no_password() {
        for (text, shown) in [
            ("redis://:SECRET@h", "redis://h:6379"),
            ("redis://u:SECRET@h:1/3", "redis://u@h:1/3"),
            ("rediss://:SECRET@[::1]", "rediss://[::1]:6379"),
            (
                "unix:///run/redis.sock?pass=SECRET",
                "unix:///run/redis.sock",
            ),
            ("rediss://h?cacert=/ca.pem", "rediss://h:6379"),
        ] {
            let address = parse(text).unwrap();
            assert_eq!(address.to_string(), shown);
            assert!(!format!("{address:?}").contains("SECRET"));
        }
    }

    #[test]
    fn refuses_what_is_no_address_without_showing_it() {
        for text in [
            "",
            "http://h",
            "redis://",
            "redis://u:SECRET@h:port",
            "redis://u:SECRET@h/database",
            "redis://u:SECRET@h?unknown=SECRET",
            "rediss://u:SECRET@h#insecure",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(!error.contains("SECRET"), "{text}: {error}");
            assert!(error.contains("expected"), "{text}: {error}");
        }
    }
}
