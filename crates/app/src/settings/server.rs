//! Where Tidegate listens, what it stores and where, who may use it, and what it may dial.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;

use ipnet::IpNet;
use policy::hosts::HostPattern;

use super::problem::Problem;
use super::reader::Section;
use super::secret::{Literal, Secret, SecretPattern};
use super::value;

/// `[server]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The data plane. Anything but loopback needs clients.
    pub listen: SocketAddr,
    /// Admin API and console; never the same as `listen`.
    pub admin: SocketAddr,
    /// Host names accepted besides the listeners' own and loopback.
    pub hosts: Vec<String>,
    /// Web origins whose pages may use the data plane, as browsers send them: lower case, without
    /// the scheme's default port.
    pub origins: Vec<String>,
    /// References to secrets that the admin API may name besides those of the file.
    pub secrets: Vec<SecretPattern>,
    /// The folder of everything that survives a restart.
    pub data: PathBuf,
}

impl Server {
    pub(crate) fn read(section: &Section<'_>) -> Self {
        let default = Self::default();
        let server = Self {
            listen: section
                .read("listen", value::address)
                .unwrap_or(default.listen),
            admin: section
                .read("admin", value::address)
                .unwrap_or(default.admin),
            hosts: section.list("hosts", value::host).unwrap_or(default.hosts),
            origins: section
                .list("origins", value::origin)
                .unwrap_or(default.origins),
            secrets: section
                .list("secrets", str::parse)
                .unwrap_or(default.secrets),
            data: section.read("data", folder).unwrap_or(default.data),
        };
        // Port 0 is whichever is free, so two of them are never the same.
        if server.listen == server.admin && server.listen.port() != 0 {
            let (name, other) = match section.node("admin") {
                Some(_) => ("admin", "listen"),
                None => ("listen", "admin"),
            };
            section.expected(name, format!("another address than `server.{other}`"));
        }
        server
    }
}

impl Default for Server {
    fn default() -> Self {
        let loopback = |port| SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        Self {
            listen: loopback(7070),
            admin: loopback(7071),
            hosts: Vec::new(),
            origins: Vec::new(),
            secrets: Vec::new(),
            data: PathBuf::from("tidegate-data"),
        }
    }
}

fn folder(text: &str) -> Result<PathBuf, &'static str> {
    if text.is_empty() {
        return Err("the path of a folder");
    }
    Ok(PathBuf::from(text))
}

/// `[storage]`: what is shared between several machines; embedded where it is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Storage {
    /// Postgres for operations. A secret, for such addresses carry passwords.
    pub operations: Option<Secret>,
    /// Redis for gates. A secret, for such addresses carry passwords.
    pub gates: Option<Secret>,
}

impl Storage {
    pub(crate) fn read(section: &Section<'_>) -> Self {
        let read = |name: &str, schemes: &[&str]| {
            let written = section.node(name).and_then(|node| node.value.text());
            let has_password = written.is_some_and(|text| text.contains('@'));
            let literal = if has_password {
                Literal::Refused
            } else {
                Literal::Allowed
            };
            let secret = section.secret(name, literal)?;
            if !schemes
                .iter()
                .any(|scheme| secret.expose().starts_with(scheme))
            {
                let what = format!(
                    "expected an address that begins with `{}`",
                    schemes.join("` or `")
                );
                let problem = Problem::about(&section.place_of(name), section.key(name), what);
                section.reader.report(problem);
            }
            Some(secret)
        };
        Self {
            operations: read("operations", &["postgres://", "postgresql://"]),
            gates: read("gates", &["redis://", "rediss://", "unix://"]),
        }
    }
}

/// `[client.NAME]`: who may use the data plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Sent as `Tidegate-Token`, or as basic auth in forward mode; never passed on.
    pub token: Secret,
}

/// Reads all clients, and refuses to serve strangers.
pub(crate) fn read_clients(
    section: &Section<'_>,
    server: &Section<'_>,
    listen: SocketAddr,
) -> BTreeMap<String, Client> {
    let mut clients: BTreeMap<String, Client> = BTreeMap::new();
    for (name, client) in section.sections() {
        let Some(token) = client.require_secret("token", Literal::Refused) else {
            continue;
        };
        // Two clients with one token cannot be told apart.
        if let Some((other, _)) = clients.iter().find(|(_, other)| other.token == token) {
            let what = format!("is the token of `client.{other}` too, expected one of its own");
            let problem = Problem::about(&client.place_of("token"), client.key("token"), what);
            client.reader.report(problem);
        }
        clients.insert(name.to_owned(), Client { token });
    }
    if !listen.ip().is_loopback() && !section.is_written() {
        server.expected("listen", "a loopback address, or a section `[client.NAME]` with a token: anything else would serve everyone");
    }
    clients
}

/// `[forward]`: HTTP_PROXY mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forward {
    /// Which hosts may be reached; none at all turns it off.
    pub allow: Vec<HostPattern>,
}

impl Forward {
    pub(crate) fn read(section: &Section<'_>) -> Self {
        Self {
            allow: section.list("allow", str::parse).unwrap_or_default(),
        }
    }
}

/// `[network]`: what may be dialled besides public addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Networks that are allowed.
    pub allow: Vec<IpNet>,
}

impl Network {
    pub(crate) fn read(section: &Section<'_>) -> Self {
        Self {
            allow: section.list("allow", value::network).unwrap_or_default(),
        }
    }
}
