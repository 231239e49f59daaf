//! The address of a database, as a URL, and whether the way to it is encrypted.
//!
//! A server elsewhere is reached over TLS with a certificate that is checked, unless the URL says
//! `sslmode=disable`: operations carry credentials of others. One on this machine is not, because the
//! packages of distributions come with a self-signed certificate.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// Where operations are shared: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with parameters as of
/// libpq. `Debug` and `Display` show no password.
///
/// ```
/// use store::DatabaseAddress;
///
/// let address: DatabaseAddress = "postgres://tidegate:secret@db.example.com/work".parse()?;
/// assert_eq!(address.to_string(), "postgres://tidegate@db.example.com:5432/work");
/// # Ok::<(), store::AddressError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseAddress {
    config: Config,
    shown: String,
    pub(super) roots: Option<PathBuf>,
}

/// Why a text is not the address of a database. The text is not shown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// It is no URL of Postgres.
    #[error("expected `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, but {0}")]
    Invalid(String),
    /// This `sslmode` does not check who answers.
    #[error(
        "`sslmode={0}` checks no certificate, expected `sslmode=verify-full` or `sslmode=disable`"
    )]
    SslMode(String),
}

impl DatabaseAddress {
    /// How to connect to it.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn uses_tls(&self) -> bool {
        self.config.get_ssl_mode() == SslMode::Require
    }
}

impl FromStr for DatabaseAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let invalid = |what: String| AddressError::Invalid(what);
        if !["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| text.starts_with(scheme))
        {
            return Err(invalid("it begins otherwise".to_owned()));
        }
        let (rest, mut tls) = TlsParameters::split(text);
        let mut config: Config = rest.parse().map_err(|error: tokio_postgres::Error| {
            let source = std::error::Error::source(&error);
            invalid(source.map_or_else(|| error.to_string(), ToString::to_string))
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(invalid("it names no host".to_owned()));
        }
        let mode = tls.mode(&config)?;
        config
            .ssl_mode(mode)
            .application_name("tidegate")
            .connect_timeout(CONNECT_TIMEOUT)
            .keepalives_idle(KEEPALIVE)
            .keepalives_interval(KEEPALIVE)
            .tcp_user_timeout(UNACKNOWLEDGED);
        Ok(Self {
            shown: shown(&config),
            roots: tls.roots.take(),
            config,
        })
    }
}

/// Longer than any connection takes, for each address of a host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How soon a server that has vanished is noticed on a connection without traffic.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// How long sent bytes may stay unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// What libpq knows and the client does not.
#[derive(Default)]
struct TlsParameters {
    mode: Option<String>,
    roots: Option<PathBuf>,
}

impl TlsParameters {
    /// Takes them out of a URL.
    fn split(text: &str) -> (String, Self) {
        let mut parameters = Self::default();
        let Some((before, query)) = text.split_once('?') else {
            return (text.to_owned(), parameters);
        };
        let mut others = Vec::new();
        for parameter in query.split('&') {
            match parameter.split_once('=') {
                Some(("sslmode", mode)) => parameters.mode = Some(mode.to_owned()),
                Some(("sslrootcert", path)) => parameters.roots = Some(path.into()),
                _ => others.push(parameter),
            }
        }
        let rest = match others.is_empty() {
            true => before.to_owned(),
            false => format!("{before}?{}", others.join("&")),
        };
        (rest, parameters)
    }

    fn mode(&self, config: &Config) -> Result<SslMode, AddressError> {
        match self.mode.as_deref() {
            Some("disable") => Ok(SslMode::Disable),
            // Stricter than libpq, which does not check the certificate with `require`.
            Some("require" | "verify-full") => Ok(SslMode::Require),
            Some(other) => Err(AddressError::SslMode(other.to_owned())),
            None if config.get_hosts().iter().all(is_local) => Ok(SslMode::Disable),
            None => Ok(SslMode::Require),
        }
    }
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            let address: Option<std::net::IpAddr> = name.parse().ok();
            name == "localhost" || address.is_some_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

/// Without password and parameters.
fn shown(config: &Config) -> String {
    let user = config.get_user().map(|user| format!("{user}@"));
    let ports = config.get_ports();
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(index, host)| {
            let port = ports.get(index).or_else(|| ports.first()).unwrap_or(&5432);
            match host {
                Host::Tcp(name) if name.contains(':') => format!("[{name}]:{port}"),
                Host::Tcp(name) => format!("{name}:{port}"),
                #[cfg(unix)]
                Host::Unix(path) => format!("{}:{port}", path.display()),
            }
        })
        .collect();
    let database = config
        .get_dbname()
        .or_else(|| config.get_user())
        .unwrap_or_default();
    format!(
        "postgres://{}{}/{database}",
        user.unwrap_or_default(),
        hosts.join(",")
    )
}

impl fmt::Display for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DatabaseAddress").field(&self.shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<DatabaseAddress, AddressError> {
        text.parse()
    }

    #[test]
    fn shows_no_password() {
        for (text, shown) in [
            ("postgres://u:SECRET@db/x", "postgres://u@db:5432/x"),
            ("postgresql://u:SECRET@db:99", "postgres://u@db:99/u"),
            (
                "postgres://u:a%40SECRET@[::1]/x",
                "postgres://u@[::1]:5432/x",
            ),
            (
                "postgres://u@a:1,b:2/x?password=SECRET",
                "postgres://u@a:1,b:2/x",
            ),
            (
                "postgres:///x?host=/run/postgresql&user=u",
                "postgres://u@/run/postgresql:5432/x",
            ),
        ] {
            let address = parse(text).unwrap();
            assert_eq!(address.to_string(), shown);
            assert!(!format!("{address:?}").contains("SECRET"));
        }
    }

    #[test]
    fn encrypts_the_way_to_other_machines() {
        for (text, uses_tls) in [
            ("postgres://u@db.example.com/x", true),
            ("postgres://u@10.0.0.7/x", true),
            ("postgres://u@db/x?sslmode=disable", false),
            ("postgres://u@db/x?sslmode=require", true),
            ("postgres://u@localhost/x", false),
            ("postgres://u@127.0.0.1/x", false),
            ("postgres://u@[::1]/x", false),
            ("postgres://u@localhost/x?sslmode=verify-full", true),
            ("postgres:///x?host=/run/postgresql", false),
            ("postgres://u@localhost,db/x", true),
        ] {
            assert_eq!(parse(text).unwrap().uses_tls(), uses_tls, "{text}");
        }
        let address = parse("postgres://u@db/x?sslrootcert=/ca.pem&connect_timeout=1").unwrap();
        assert_eq!(address.roots, Some("/ca.pem".into()));
    }

    #[test]
    fn refuses_what_is_no_address_without_showing_it() {
        for text in [
            "",
            "mysql://u:SECRET@db/x",
            "postgres://",
            "postgres:///x",
            "postgres://u:SECRET@db:port/x",
            "postgres://u:SECRET@db/x?unknown=SECRET",
            "postgres://u:SECRET@db/x?sslmode=prefer",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(!error.contains("SECRET"), "{text}: {error}");
            assert!(error.contains("expected"), "{text}: {error}");
        }
    }
}
