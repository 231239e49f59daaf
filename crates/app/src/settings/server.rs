//! Where Tidegate listens, where it stores, and who may use it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use config::Reader;
use policy::limits::Limit;
use policy::setting::Kind;

use super::secret::{Secret, SecretPattern};
use super::value;

policy::settings! {
    /// What is written in `[server]`.
    pub struct ServerOptions;
    /// `[server]`
    #[derive(Eq)]
    pub struct Server(pub) {
        /// The data plane, where programs send their requests; anything but loopback needs clients.
        listen: SocketAddr = "127.0.0.1:7070", value::ADDRESS;
        /// Admin API and console, on a port of their own so that a client's token opens neither.
        admin: SocketAddr = "127.0.0.1:7071", value::ADDRESS;
        /// Host names accepted besides the listeners' own and loopback; others are answered 421.
        hosts: Vec<String> = "", Kind::list(&value::HOST, 1000);
        /// Web origins whose pages may use the data plane, such as ["https://app.example.com"]; others get 403.
        origins: Vec<String> = "", Kind::list(&value::ORIGIN, 1000);
        /// References that the admin API may name besides those in this file, such as ["env:LLM_*", "file:/run/secrets/*"].
        secrets: Vec<SecretPattern> = "", Kind::list(&value::REFERENCES, 1000);
        /// The folder of the database and of the admin token.
        data: PathBuf = "tidegate-data", value::FOLDER;
        /// How long SIGTERM waits for requests in flight.
        drain: Duration = "30s", Kind::DURATION;
        /// A line for every request: none, json or combined.
        access_log: String = "none", Kind::Choice(&["none", "json", "combined"]);
        /// The file of the access log, opened again by SIGHUP; without one it goes to stdout.
        access_log_file: PathBuf = none, value::PATH, example "/var/log/tidegate/access.log";
    }
}

impl Server {
    /// Whether the access log goes to stdout.
    pub fn logs_to_stdout(&self) -> bool {
        self.access_log != "none" && self.access_log_file.is_none()
    }

    pub(crate) fn read(reader: &Reader<'_>) -> Self {
        let mut server = reader.options::<ServerOptions>().over(Self::default());
        // The kinds of both lists allow only what can be normalised.
        for (list, normalize) in [
            (&mut server.hosts, value::host as fn(&str) -> _),
            (&mut server.origins, value::origin),
        ] {
            *list = list.iter().flat_map(|text| normalize(text)).collect();
        }
        // Port 0 is whichever is free, so two of them are never the same.
        if server.listen == server.admin && server.listen.port() != 0 {
            let (name, other) = match reader.has("admin") {
                true => ("admin", "listen"),
                false => ("listen", "admin"),
            };
            reader.expected(name, format!("another address than `server.{other}`"));
        }
        server
    }
}

policy::settings! {
    /// What is written in `[storage]`.
    pub struct StorageOptions {
        /// Postgres for operations; with a password only as env:NAME or file:PATH.
        operations: Secret = none, Kind::Secret { literal: true }, example "env:OPERATIONS_URL";
        /// Redis for gates; with a password only as env:NAME or file:PATH.
        gates: Secret = none, Kind::Secret { literal: true }, example "redis://redis.example.com";
        /// Encrypts stored headers, bodies and tokens.
        key: Secret = none, Kind::SECRET, example "env:TIDEGATE_KEY";
    }

    /// What is written in `[storage]` about its size.
    pub struct StorageSizeOptions;
    /// The size of the storage.
    #[derive(Eq)]
    pub struct StorageSize(pub) {
        /// How many operations may be stored, without completed and cancelled ones; further ones get 429.
        max_operations: u64 = "10_000_000", Kind::whole(1, u64::MAX);
    }

    /// What is written in `[storage]` about shared gates.
    pub struct SharedGateOptions;
    /// How gates are shared; the same on all servers of a fleet.
    #[derive(Eq)]
    pub struct SharedGateSettings(pub) {
        /// The fleet: servers with one namespace in one Redis share their gates.
        namespace: String = "default", value::NAMESPACE;
        /// The time between two calls of a server about a gate in use, at most 1s.
        gates_interval: Duration = "100ms", Kind::Duration(MIN_INTERVAL);
        /// A server that did not call for this long has no share of a gate's rate; at least 5 intervals.
        gates_lease: Duration = "2s", Kind::Duration(MIN_LEASE);
    }
}

/// More calls would only cost more.
const MIN_INTERVAL: Duration = Duration::from_millis(20);

/// Longer, and a server follows the others too late.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// Shorter, and one slow call loses the share.
const MIN_LEASE: Duration = Duration::from_millis(500);

/// So many calls may be lost before a share is.
const MIN_CALLS_PER_LEASE: u32 = 5;

/// `[storage]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Storage {
    /// The database of the operations, if several machines share them; a text that
    /// `store::DatabaseAddress` can read.
    pub operations: Option<Secret>,
    /// The server that gates are shared through, if several machines share them; a text that
    /// `store::GatesAddress` can read.
    pub gates: Option<Secret>,
    /// How they are shared.
    pub shared_gates: SharedGateSettings,
    /// What encrypts stored requests, responses and tokens; a text that [`store::Keys`] can read.
    pub key: Option<Secret>,
    /// Its size.
    pub size: StorageSize,
}

/// Reads `[storage]`, and refuses what this build cannot share: several machines would silently not
/// share it.
pub(crate) fn read_storage(reader: &Reader<'_>) -> Storage {
    let storage = reader.options::<StorageOptions>();
    if let Some(Err(error)) = storage
        .key
        .as_ref()
        .map(|key| key.expose().parse::<store::Keys>())
    {
        // The hint stands on a line of its own, and a problem has one line.
        let what = error.to_string().replace("\nhint: ", "; ");
        reader.report("key", what);
    }
    for (name, value, check) in [
        (
            "operations",
            &storage.operations,
            check_operations as fn(&str) -> _,
        ),
        ("gates", &storage.gates, check_gates),
    ] {
        let written = reader.node(name).and_then(|node| node.value.text());
        if let (Some(_), Some(text)) = (value, written)
            && has_password(text)
        {
            let what = "a password must not be written out, expected `env:NAME` or `file:PATH`";
            reader.report(name, what);
        } else if let Some(Err(what)) = value.as_ref().map(|value| check(value.expose())) {
            reader.report(name, what);
        }
    }
    Storage {
        operations: storage.operations,
        gates: storage.gates,
        shared_gates: read_shared_gates(reader),
        key: storage.key,
        size: reader
            .options::<StorageSizeOptions>()
            .over(StorageSize::default()),
    }
}

fn read_shared_gates(reader: &Reader<'_>) -> SharedGateSettings {
    let settings = reader
        .options::<SharedGateOptions>()
        .over(SharedGateSettings::default());
    let (interval, lease) = (settings.gates_interval, settings.gates_lease);
    if interval > MAX_INTERVAL {
        reader.expected("gates_interval", "at most 1s");
    } else if lease < MIN_CALLS_PER_LEASE * interval {
        let name = match reader.has("gates_lease") {
            true => "gates_lease",
            false => "gates_interval",
        };
        let expected = format!("a lease of at least {MIN_CALLS_PER_LEASE} intervals");
        reader.expected(name, expected);
    }
    settings
}

#[cfg(feature = "postgres")]
fn check_operations(address: &str) -> Result<(), String> {
    let address = address.parse::<store::DatabaseAddress>();
    address.map(drop).map_err(|error| error.to_string())
}

#[cfg(not(feature = "postgres"))]
fn check_operations(_address: &str) -> Result<(), String> {
    Err(not_shared("operations"))
}

#[cfg(feature = "redis")]
fn check_gates(address: &str) -> Result<(), String> {
    let address = address.parse::<store::GatesAddress>();
    address.map(drop).map_err(|error| error.to_string())
}

#[cfg(not(feature = "redis"))]
fn check_gates(_address: &str) -> Result<(), String> {
    Err(not_shared("gates"))
}

#[cfg(not(all(feature = "postgres", feature = "redis")))]
fn not_shared(name: &str) -> String {
    format!(
        "is not available: this build stores {name} in `server.data`, expected no `storage.{name}`"
    )
}

/// Whether a URL has a password, as in `scheme://user:password@host`. One with `/` in it counts too.
pub(super) fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let user = rest.rsplit_once('@').map_or("", |(user, _)| user);
    let Some((_, password)) = user.split_once(':') else {
        return false;
    };
    // A port is no password, and an `@` may follow in the path.
    let port = password.split(['/', '?', '#']).next().unwrap_or_default();
    port == password || !port.chars().all(|c| c.is_ascii_digit())
}

policy::settings! {
    /// What is written in `[client.NAME]`.
    pub struct ClientOptions {
        /// Sent as Tidegate-Token, or as basic auth in forward mode; never passed on.
        token: Secret = none, Kind::SECRET, example "env:APP1_TOKEN";
        /// What this client may send, like a gate's limits: ["1000/1m"].
        limits: Vec<Limit> = "", Kind::list(&Limit::KIND, 8);
    }
}

/// `[client.NAME]`: who may use the data plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Sent as `Tidegate-Token`, or as basic auth in forward mode; never passed on.
    pub token: Secret,
    /// What it may send.
    pub limits: Vec<Limit>,
}

/// A shorter token can be guessed.
const MIN_TOKEN: usize = 16;

/// Reads all clients. Anything but loopback needs one.
pub(crate) fn read_clients(
    reader: &Reader<'_>,
    server: &Reader<'_>,
    listen: SocketAddr,
) -> BTreeMap<String, Client> {
    let mut clients: BTreeMap<String, Client> = BTreeMap::new();
    for (name, client) in reader.tables() {
        client.require("token", "a value");
        let ClientOptions { token, limits } = client.options();
        let Some(token) = token else {
            continue;
        };
        if token.expose().chars().count() < MIN_TOKEN {
            let what = format!("is too short, expected at least {MIN_TOKEN} characters");
            client.report("token", what);
        }
        // Requests of two clients with one token cannot be distinguished.
        if let Some((other, _)) = clients.iter().find(|(_, other)| other.token == token) {
            let what = format!("is the token of `client.{other}` too, expected one of its own");
            client.report("token", what);
        }
        let limits = limits.unwrap_or_default();
        clients.insert(name.to_owned(), Client { token, limits });
    }
    if !listen.ip().is_loopback() && !reader.is_written() {
        server.expected("listen", "a loopback address, or a section `[client.NAME]` with a token: any other address is open to other machines");
    }
    clients
}

policy::settings! {
    /// What is written in `[telemetry]`.
    pub struct TelemetryOptions;
    /// `[telemetry]`: where traces and metrics go.
    pub struct Telemetry(pub) {
        /// An OpenTelemetry collector, which gets traces at /v1/traces and metrics at /v1/metrics.
        otlp: String = none, value::URL, example "http://127.0.0.1:4318";
        /// The share of traces that are sent, 0 to 1; a client that sends `traceparent` decides itself.
        sample: f64 = "1", Kind::number("a share", 0.0, 1.0);
        /// How often metrics are sent.
        metrics_interval: Duration = "60s", Kind::POSITIVE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_passwords_in_urls_but_not_user_names() {
        for url in ["postgres://u:p@db/x", "redis://:p@h", "postgres://u:p/q@db"] {
            assert!(has_password(url), "{url}");
        }
        for url in [
            "postgres://user@host",
            "postgres://db:5432/x",
            "redis://h:6379/0?a=b@c",
            "env:X",
        ] {
            assert!(!has_password(url), "{url}");
        }
    }
}
