//! Servers that requests go to, with their open connections.
//!
//! There is one [`Destination`] for a scheme, host and port, shared by everything that sends there in
//! the same way: with the same certificates and the same use of HTTP/2.
//! It keeps idle connections for each worker, because a connection belongs to the runtime it was
//! made in. The connection that was used last is taken first, so that those which are not needed
//! grow old and are closed. A connection over HTTP/2 carries many requests at once and stays.
//!
//! Requests that need a TLS connection at the same time share its set-up: if it turns out to be
//! HTTP/2, one is enough for many.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use url::{Host, Url};

use super::Timeouts;
use super::connect::{Connector, NewConnection};
use super::error::SendError;
use super::http1::Http1Connection;
use super::http2::{Http2Connection, Http2Stream};
use super::stream_wait::StreamWait;
use crate::host_check::is_localhost;
use crate::tls::{Http2Mode, Transport, TransportId};

/// One server, and the connections to it.
pub struct Destination {
    host: DialledHost,
    port: u16,
    trust: Trust,
    /// The `Host` header, and the authority of a request.
    authority: HeaderValue,
    /// Of a server that is spoken to over TLS.
    server_name: Option<ServerName<'static>>,
    tls: Arc<ClientConfig>,
    http2: Http2Mode,
    workers: Box<[Arc<WorkerConnections>]>,
}

/// A host, as it is dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DialledHost {
    /// An address, written out.
    Address(IpAddr),
    /// A name, to be resolved.
    Name(Box<str>),
}

/// Who wrote an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// The operator: an address written out, and `localhost` or a name below it, is meant.
    Operator,
    /// Anyone else: every address is checked.
    Untrusted,
    /// A client of forward mode: every address is checked, and `forward.deny` counts as well.
    Client,
}

/// Why there can be no such destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// Neither http nor https.
    #[error("expected an address that begins with `http://` or `https://`")]
    Scheme,
    /// No host, or one that cannot be sent in a header.
    #[error("expected an address with a host")]
    Host,
    /// As many as may be are in use.
    #[error("too many servers are in use")]
    TooMany,
}

impl Destination {
    fn new(
        url: &Url,
        trust: Trust,
        http2: Http2Mode,
        tls: Arc<ClientConfig>,
        workers: usize,
    ) -> Result<Self, DestinationError> {
        let is_tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(DestinationError::Scheme),
        };
        let host = match url.host().ok_or(DestinationError::Host)? {
            Host::Domain(name) => DialledHost::Name(name.trim_end_matches('.').into()),
            Host::Ipv4(address) => DialledHost::Address(address.into()),
            Host::Ipv6(address) => DialledHost::Address(address.into()),
        };
        let port = url.port_or_known_default();
        let port = port.ok_or(DestinationError::Scheme)?;
        let authority = match (url.host_str(), url.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (Some(host), None) => host.to_owned(),
            (None, _) => return Err(DestinationError::Host),
        };
        let server_name = match &host {
            DialledHost::Address(address) => ServerName::from(*address),
            DialledHost::Name(name) => {
                ServerName::try_from(name.to_string()).map_err(|_| DestinationError::Host)?
            }
        };
        Ok(Self {
            server_name: is_tls.then_some(server_name),
            tls,
            http2,
            host,
            port,
            trust,
            authority: HeaderValue::from_str(&authority).map_err(|_| DestinationError::Host)?,
            workers: (0..workers.max(1)).map(|_| Arc::default()).collect(),
        })
    }

    /// The `Host` header of requests to it.
    pub fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// Is it spoken to over TLS?
    pub fn is_tls(&self) -> bool {
        self.server_name.is_some()
    }

    pub(super) fn host(&self) -> &DialledHost {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Name or address, and port, as in `CONNECT`.
    pub(super) fn host_and_port(&self) -> String {
        let port = self.port;
        match &self.host {
            DialledHost::Address(IpAddr::V6(address)) => format!("[{address}]:{port}"),
            DialledHost::Address(address) => format!("{address}:{port}"),
            DialledHost::Name(name) => format!("{name}:{port}"),
        }
    }

    pub(super) fn trust(&self) -> Trust {
        self.trust
    }

    pub(super) fn server_name(&self) -> Option<&ServerName<'static>> {
        self.server_name.as_ref()
    }

    pub(super) fn tls(&self) -> &Arc<ClientConfig> {
        &self.tls
    }

    /// How it is spoken to.
    pub(super) fn http2(&self) -> Http2Mode {
        self.http2
    }

    /// Can it be spoken to over HTTP/1.1?
    pub fn speaks_http1(&self) -> bool {
        self.http2 != Http2Mode::PriorKnowledge
    }

    /// May it speak HTTP/2?
    fn may_share(&self) -> bool {
        match self.http2 {
            Http2Mode::Auto => self.is_tls(),
            Http2Mode::Off => false,
            Http2Mode::PriorKnowledge => true,
        }
    }

    /// The connections of one worker.
    pub(super) fn connections(&self, worker: usize) -> &Arc<WorkerConnections> {
        &self.workers[worker % self.workers.len()]
    }

    /// The addresses that the operator meant, which need not be checked: the one written out, or the
    /// loopback addresses that `localhost` is by definition.
    pub(super) fn trusted_addresses(&self) -> Option<Vec<IpAddr>> {
        match (&self.host, self.trust) {
            (_, Trust::Untrusted | Trust::Client) => None,
            (DialledHost::Address(address), Trust::Operator) => Some(vec![*address]),
            (DialledHost::Name(name), Trust::Operator) => is_localhost(name)
                .then(|| vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]),
        }
    }

    /// A fresh connection for one request, or a stream on one that others use as well.
    pub(super) async fn connect(
        &self,
        worker: usize,
        connector: &Connector,
        timeouts: &Timeouts,
        wait: &StreamWait<'_>,
    ) -> Result<Connection, SendError> {
        let connections = self.connections(worker);
        loop {
            // Over HTTP/1.1 every request needs a connection of its own.
            if !self.may_share() || connections.is_http1.load(Ordering::Relaxed) {
                let connected = connector.connect(self, timeouts).await?;
                if let Some(connection) = connections.add(connected) {
                    return Ok(connection);
                }
            }
            if let Some(stream) = connections.stream() {
                return Ok(Connection::Http2(stream));
            }
            if connections.are_all_used() {
                wait.wait_for(connections.free_stream(), timeouts.first_byte)
                    .await?;
                continue;
            }
            match connections.set_up() {
                SetUp::Begins(done) => {
                    let connected = connector.connect(self, timeouts).await;
                    let ended = connected.as_ref().map(|_| ()).map_err(Clone::clone);
                    let own = connected.map(|connected| connections.add(connected));
                    *lock(&connections.set_up) = None;
                    done.send_replace(Some(ended));
                    if let Some(connection) = own? {
                        return Ok(connection);
                    }
                }
                SetUp::Runs(mut done) => {
                    // `Err`: the request that set it up was cancelled, and another one has to.
                    let ended = done.wait_for(Option::is_some).await;
                    if let Some(Err(error)) = ended.ok().and_then(|ended| ended.clone()) {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn close_idle(&self, worker: usize) {
        self.connections(worker).close_idle();
    }

    fn has_connections(&self) -> bool {
        self.workers.iter().any(|worker| worker.is_used())
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination")
            .field("authority", &self.authority)
            .field("is_tls", &self.is_tls())
            .finish_non_exhaustive()
    }
}

/// The connections to one destination that one worker has open and no request uses.
#[derive(Debug, Default)]
pub(super) struct WorkerConnections {
    idle: Mutex<Vec<Idle>>,
    shared: Mutex<Vec<Http2Connection>>,
    /// Wakes requests that wait for a stream.
    freed: Notify,
    /// The set-up of a TLS connection that may become a shared one, while it runs.
    set_up: Mutex<Option<watch::Receiver<SetUpResult>>>,
    /// The server chose HTTP/1.1 the last time.
    is_http1: AtomicBool,
}

/// `None` while a set-up runs.
type SetUpResult = Option<Result<(), SendError>>;

enum SetUp {
    /// The caller has to set the connection up, and to say how that ended.
    Begins(watch::Sender<SetUpResult>),
    /// Another request does.
    Runs(watch::Receiver<SetUpResult>),
}

#[derive(Debug)]
struct Idle {
    connection: Box<Http1Connection>,
    since: Instant,
    /// How long it is kept, by the last request that used it.
    timeout: Duration,
}

/// As many as a gate has in flight by default; further ones are closed.
const MAX_IDLE: usize = 256;

/// Shared connections to one server. Requests beyond their streams wait.
const MAX_SHARED: usize = 16;

/// How often a request that waits for a stream asks whether the server allows more.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A connection, or a part of one, that a request can be sent on.
#[derive(Debug)]
pub(super) enum Connection {
    /// HTTP/1.1: one request at a time.
    Http1(Box<Http1Connection>),
    /// HTTP/2: a stream.
    Http2(Http2Stream),
}

impl WorkerConnections {
    /// An open connection that can be used `now`.
    pub(super) fn take(
        self: &Arc<Self>,
        now: Instant,
        idle_timeout: Duration,
    ) -> Option<Connection> {
        if let Some(stream) = self.stream() {
            return Some(Connection::Http2(stream));
        }
        loop {
            let mut idle = lock(&self.idle).pop()?;
            if now.saturating_duration_since(idle.since) >= idle_timeout {
                // The others have been idle for longer still.
                lock(&self.idle).clear();
                return None;
            }
            // The server may have closed it.
            if idle.connection.is_ready() {
                return Some(Connection::Http1(idle.connection));
            }
        }
    }

    /// A free stream of a shared connection.
    fn stream(self: &Arc<Self>) -> Option<Http2Stream> {
        let mut shared = lock(&self.shared);
        if shared.is_empty() {
            return None;
        }
        shared.retain(|connection| !connection.is_closed());
        shared.iter().find_map(|connection| connection.stream(self))
    }

    /// Are there as many shared connections as may be?
    fn are_all_used(&self) -> bool {
        lock(&self.shared).len() >= MAX_SHARED
    }

    /// Waits until a stream may be free.
    async fn free_stream(&self) {
        while timeout(LOOK_INTERVAL, self.freed.notified()).await.is_err() {
            // hyper says nothing when a server allows more.
            lock(&self.shared).iter().for_each(Http2Connection::look);
        }
    }

    /// A request over HTTP/2 is over, or the server allows one more.
    pub(super) fn stream_is_free(&self) {
        self.freed.notify_one();
    }

    /// Takes a new connection in. Returns it if it is for one request only.
    fn add(self: &Arc<Self>, connected: NewConnection) -> Option<Connection> {
        match connected {
            NewConnection::Http1(connection) => {
                self.is_http1.store(true, Ordering::Relaxed);
                Some(Connection::Http1(connection))
            }
            NewConnection::Http2(connection) => {
                self.is_http1.store(false, Ordering::Relaxed);
                connection.enter(self);
                lock(&self.shared).push(connection);
                None
            }
        }
    }

    /// Takes back a connection whose last response is over, and keeps it for `timeout`.
    pub(super) fn put(&self, connection: Box<Http1Connection>, timeout: Duration) {
        let Some(connection) = connection.into_idle() else {
            return;
        };
        let since = Instant::now();
        let mut idle = lock(&self.idle);
        if idle.len() < MAX_IDLE {
            idle.push(Idle {
                connection,
                since,
                timeout,
            });
        }
    }

    fn set_up(&self) -> SetUp {
        let mut running = lock(&self.set_up);
        match &*running {
            // Its sender is gone if the request was cancelled.
            Some(done) if done.has_changed().is_ok() => SetUp::Runs(done.clone()),
            _ => {
                let (sender, done) = watch::channel(None);
                *running = Some(done);
                SetUp::Begins(sender)
            }
        }
    }

    fn close_idle(&self) {
        lock(&self.idle)
            .retain_mut(|idle| idle.since.elapsed() < idle.timeout && idle.connection.is_ready());
        // One shared connection stays; others were needed for a while.
        let mut is_first = true;
        lock(&self.shared).retain(|connection| {
            let is_kept = std::mem::take(&mut is_first) || !connection.is_unused();
            is_kept && !connection.is_closed()
        });
    }

    fn is_used(&self) -> bool {
        let is_shared = || {
            let shared = lock(&self.shared);
            shared.iter().any(|connection| !connection.is_closed())
        };
        // The sender of a set-up is gone if its request was cancelled.
        let is_set_up = || {
            lock(&self.set_up)
                .as_ref()
                .is_some_and(|done| done.has_changed().is_ok())
        };
        !lock(&self.idle).is_empty() || is_shared() || is_set_up()
    }
}

/// All destinations, by scheme, authority, who wrote them and how they are spoken to.
#[derive(Debug)]
pub(super) struct Destinations {
    known: Mutex<BTreeMap<DestinationKey, Arc<Destination>>>,
    workers: usize,
}

type DestinationKey = (Trust, String, TransportId);

/// Destinations that no endpoint and no request holds are dropped before a further one is refused.
const MAX_DESTINATIONS: usize = 100_000;

impl Destinations {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            known: Mutex::default(),
            workers,
        }
    }

    /// The destination that `url` leads to. `tls` is called if there is none yet.
    pub(super) fn find(
        &self,
        url: &Url,
        trust: Trust,
        transport: &Transport,
        tls: impl FnOnce() -> Arc<ClientConfig>,
    ) -> Result<Arc<Destination>, DestinationError> {
        let origin = url.origin().ascii_serialization();
        let key = (trust, origin, transport.id());
        let mut known = lock(&self.known);
        if let Some(destination) = known.get(&key) {
            return Ok(Arc::clone(destination));
        }
        let http2 = transport.http2;
        let destination = Destination::new(url, trust, http2, tls(), self.workers)?;
        let destination = Arc::new(destination);
        if known.len() >= MAX_DESTINATIONS {
            known.retain(|_, destination| Arc::strong_count(destination) > 1);
        }
        if known.len() >= MAX_DESTINATIONS {
            return Err(DestinationError::TooMany);
        }
        known.insert(key, Arc::clone(&destination));
        Ok(destination)
    }

    /// Closes connections of this worker that were idle for too long, and drops destinations that are
    /// not in use and have no connections.
    pub(super) fn close_idle(&self, worker: usize) {
        lock(&self.known).retain(|_, destination| {
            destination.close_idle(worker);
            Arc::strong_count(destination) > 1 || destination.has_connections()
        });
    }

    /// Forgets destinations whose addresses are checked, so that no open connection leads to an
    /// address that is not allowed any more.
    pub(super) fn forget_untrusted(&self) {
        lock(&self.known).retain(|(trust, ..), _| *trust == Trust::Operator);
    }

    /// Forgets all destinations, so that no open connection leads through another proxy than the next.
    pub(super) fn forget_all(&self) {
        lock(&self.known).clear();
    }
}

/// Nothing that can panic runs under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;

    use super::*;

    fn find(destinations: &Destinations, url: &str) -> Arc<Destination> {
        let url = Url::parse(url).unwrap();
        find_as(destinations, &url, Trust::Operator, Http2Mode::Auto).unwrap()
    }

    fn find_as(
        destinations: &Destinations,
        url: &Url,
        trust: Trust,
        http2: Http2Mode,
    ) -> Result<Arc<Destination>, DestinationError> {
        let transport = Transport {
            http2,
            ..Transport::default()
        };
        let tls = || Arc::new(transport.client_config(&RootCertStore::empty()));
        destinations.find(url, trust, &transport, tls)
    }

    #[test]
    fn one_authority_is_one_destination() {
        let destinations = Destinations::new(2);
        let first = find(&destinations, "https://API.example.com/v1");
        for same in [
            "https://api.example.com",
            "https://api.example.com:443/v2?x",
        ] {
            assert!(Arc::ptr_eq(&first, &find(&destinations, same)), "{same}");
        }
        for other in [
            "http://api.example.com",
            "https://api.example.com:444",
            "https://b.example.com",
        ] {
            assert!(!Arc::ptr_eq(&first, &find(&destinations, other)), "{other}");
        }
        let url = Url::parse("https://api.example.com").unwrap();
        for (trust, http2) in [
            (Trust::Untrusted, Http2Mode::Auto),
            (Trust::Operator, Http2Mode::Off),
        ] {
            let other = find_as(&destinations, &url, trust, http2).unwrap();
            assert!(!Arc::ptr_eq(&first, &other), "{trust:?} {http2:?}");
        }
    }

    #[test]
    fn unused_destinations_are_dropped_and_others_bound() {
        let destinations = Destinations::new(1);
        let held: Vec<_> = (0..MAX_DESTINATIONS)
            .map(|number| find(&destinations, &format!("http://h{number}.example.com")))
            .collect();
        let further = Url::parse("http://further.example.com").unwrap();
        let find = || find_as(&destinations, &further, Trust::Operator, Http2Mode::Auto);
        assert_eq!(find().unwrap_err(), DestinationError::TooMany);
        drop(held);
        find().unwrap();
        assert_eq!(lock(&destinations.known).len(), 1);
        destinations.close_idle(0);
        assert_eq!(lock(&destinations.known).len(), 0);
    }

    #[test]
    fn a_set_up_is_shared_until_it_is_cancelled() {
        let connections = WorkerConnections::default();
        let SetUp::Begins(done) = connections.set_up() else {
            panic!("the first one begins it");
        };
        assert!(matches!(connections.set_up(), SetUp::Runs(_)));
        drop(done);
        let SetUp::Begins(_done) = connections.set_up() else {
            panic!("after a cancelled one the next begins it");
        };
        assert!(matches!(connections.set_up(), SetUp::Runs(_)));
    }
}
