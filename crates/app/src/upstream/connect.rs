//! Making a connection: resolve, check, dial, TLS, handshake; or the same through a proxy.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use policy::outcome::{Failure, Phase};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::Timeouts;
use super::address::Addresses;
use super::destination::{Destination, DialledHost, Trust};
use super::error::SendError;
use super::http1::{Http1Connection, Io};
use super::http2::Http2Connection;
use super::proxy::Proxy;
use super::tunnel::Tunnel;
use crate::descriptors::{self, Descriptors, UpstreamDescriptor};
use crate::redact::Text;
use crate::stall::WriteTimeout;
use crate::tls::{Http2Mode, Transport, trusted_roots};

/// Makes connections.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    addresses: Arc<Addresses>,
    /// Whom servers are trusted from that no endpoint says more about.
    roots: Arc<RootCertStore>,
    tls: Arc<ClientConfig>,
    descriptors: Arc<Descriptors>,
    proxy: Option<Arc<Proxy>>,
}

/// A new connection.
#[derive(Debug)]
pub(super) enum NewConnection {
    /// HTTP/1.1: one request at a time.
    Http1(Box<Http1Connection>),
    /// HTTP/2: many at once.
    Http2(Http2Connection),
}

impl Connector {
    /// Dials what `addresses` permit, and trusts the certificate authorities of the system and of the
    /// Mozilla programme.
    pub(super) fn new(addresses: Addresses, descriptors: Arc<Descriptors>) -> Self {
        let roots = trusted_roots();
        Self {
            addresses: Arc::new(addresses),
            tls: Arc::new(Transport::default().client_config(&roots)),
            roots: Arc::new(roots),
            descriptors,
            proxy: None,
        }
    }

    /// The same certificates, other addresses, and through `proxy` if there is one.
    pub(super) fn dialling(&self, addresses: Addresses, proxy: Option<Proxy>) -> Self {
        Self {
            addresses: Arc::new(addresses),
            roots: Arc::clone(&self.roots),
            tls: Arc::clone(&self.tls),
            descriptors: Arc::clone(&self.descriptors),
            proxy: proxy.map(Arc::new),
        }
    }

    /// The TLS of servers that are spoken to in this way.
    pub(super) fn tls(&self, transport: &Transport) -> Arc<ClientConfig> {
        match *transport == Transport::default() {
            true => Arc::clone(&self.tls),
            false => Arc::new(transport.client_config(&self.roots)),
        }
    }

    /// A new connection to `destination`.
    pub(super) async fn connect(
        &self,
        destination: &Destination,
        timeouts: &Timeouts,
    ) -> Result<NewConnection, SendError> {
        self.connect_with(destination, timeouts, destination.http2())
            .await
    }

    /// A new connection to `destination` over HTTP/1.1, also if it speaks HTTP/2 as well.
    pub(super) async fn connect_http1(
        &self,
        destination: &Destination,
        timeouts: &Timeouts,
    ) -> Result<Box<Http1Connection>, SendError> {
        let connecting = self.connect_with(destination, timeouts, Http2Mode::Off);
        match connecting.await? {
            NewConnection::Http1(connection) => Ok(connection),
            // Without being asked.
            NewConnection::Http2(_) => Err(failed(Failure::Tls, "it speaks HTTP/2 only")),
        }
    }

    async fn connect_with(
        &self,
        destination: &Destination,
        timeouts: &Timeouts,
        http2: Http2Mode,
    ) -> Result<NewConnection, SendError> {
        let connecting = self.connect_without_timeout(destination, timeouts, http2);
        let connected = timeout(timeouts.connect, connecting).await;
        connected.unwrap_or_else(|_| Err(late()))
    }

    /// A connection to `destination` whose bytes are passed on as they are.
    pub(super) async fn open(
        &self,
        destination: &Destination,
        timeouts: &Timeouts,
    ) -> Result<Tunnel, SendError> {
        let opening = async {
            let Some(proxy) = self.proxy_for(destination) else {
                let stream = self.dial_server(destination, timeouts).await?;
                return Ok(Tunnel::new(stream));
            };
            let stream = self.dial_proxy(proxy, destination, timeouts).await?;
            proxy.tunnel(stream, destination).await.map(Tunnel::new)
        };
        let opened = timeout(timeouts.connect, opening).await;
        opened.unwrap_or_else(|_| Err(late()))
    }

    async fn connect_without_timeout(
        &self,
        destination: &Destination,
        timeouts: &Timeouts,
        http2: Http2Mode,
    ) -> Result<NewConnection, SendError> {
        if let Some(proxy) = self.proxy_for(destination) {
            // Rare, so it need not make every connection larger.
            return Box::pin(self.connect_through(proxy, destination, timeouts, http2)).await;
        }
        let stream = self.dial_server(destination, timeouts).await?;
        self.speak(stream, destination, http2).await
    }

    async fn connect_through(
        &self,
        proxy: &Proxy,
        destination: &Destination,
        timeouts: &Timeouts,
        http2: Http2Mode,
    ) -> Result<NewConnection, SendError> {
        let stream = self.dial_proxy(proxy, destination, timeouts).await?;
        if destination.is_tls() || http2 == Http2Mode::PriorKnowledge {
            let stream = proxy.tunnel(stream, destination).await?;
            return self.speak(stream, destination, http2).await;
        }
        let form = proxy.absolute_form(destination);
        let connection = Http1Connection::new(stream).in_absolute_form(form);
        Ok(NewConnection::Http1(Box::new(connection)))
    }

    /// Begins TLS and HTTP with `destination`, which `stream` leads to.
    async fn speak(
        &self,
        stream: impl Io + 'static,
        destination: &Destination,
        http2: Http2Mode,
    ) -> Result<NewConnection, SendError> {
        let Some(name) = destination.server_name() else {
            return match http2 {
                Http2Mode::PriorKnowledge => establish_http2(stream, false).await,
                Http2Mode::Auto | Http2Mode::Off => Ok(http1(stream)),
            };
        };
        let tls = TlsConnector::from(tls_for(destination, http2));
        let stream = tls.connect(name.clone(), stream).await;
        let stream = stream.map_err(|error| tls_error(&error))?;
        let is_http2 = match http2 {
            Http2Mode::PriorKnowledge => true,
            Http2Mode::Auto | Http2Mode::Off => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        };
        match is_http2 {
            true => establish_http2(stream, true).await,
            false => Ok(http1(stream)),
        }
    }

    fn proxy_for(&self, destination: &Destination) -> Option<&Proxy> {
        let proxy = self.proxy.as_deref();
        proxy.filter(|proxy| proxy.is_for(destination))
    }

    /// A connection to the server itself.
    async fn dial_server(
        &self,
        destination: &Destination,
        timeouts: &Timeouts,
    ) -> Result<WriteTimeout<TcpStream>, SendError> {
        let descriptor = self.descriptor()?;
        let addresses = self.resolve(destination).await?;
        let stream = dial(&addresses, destination.port(), timeouts.connect).await?;
        Ok(bounded(stream, timeouts).holding(descriptor))
    }

    /// A connection to the proxy, if `destination` may be reached. Its name is resolved by the proxy.
    async fn dial_proxy(
        &self,
        proxy: &Proxy,
        destination: &Destination,
        timeouts: &Timeouts,
    ) -> Result<WriteTimeout<TcpStream>, SendError> {
        if let DialledHost::Address(address) = destination.host()
            && destination.trusted_addresses().is_none()
            && !self.permits(destination, *address)
        {
            return Err(SendError::not_allowed(*address));
        }
        let descriptor = self.descriptor()?;
        let addresses = proxy.resolve().await?;
        let dialled = dial(&addresses, proxy.port(), timeouts.connect).await;
        let stream = dialled.map_err(SendError::at_proxy)?;
        Ok(bounded(stream, timeouts).holding(descriptor))
    }

    fn descriptor(&self) -> Result<UpstreamDescriptor, SendError> {
        let descriptor = self.descriptors.for_upstream();
        descriptor.ok_or_else(SendError::no_descriptors)
    }

    fn permits(&self, destination: &Destination, address: IpAddr) -> bool {
        match destination.trust() {
            Trust::Operator | Trust::Untrusted => self.addresses.permit(address),
            Trust::Client => self.addresses.permit_client(address),
        }
    }

    /// The addresses of a destination that may be dialled.
    async fn resolve(&self, destination: &Destination) -> Result<Vec<IpAddr>, SendError> {
        if let Some(trusted) = destination.trusted_addresses() {
            return Ok(trusted);
        }
        let found: Vec<IpAddr> = match destination.host() {
            DialledHost::Address(address) => vec![*address],
            DialledHost::Name(name) => {
                let found = lookup_host((&**name, destination.port())).await;
                let found = found.map_err(|error| match descriptors::are_used_up(&error) {
                    true => SendError::no_descriptors(),
                    false => failed(Failure::Dns, "its name did not resolve"),
                })?;
                found.map(|address| address.ip()).collect()
            }
        };
        let refused = found
            .iter()
            .find(|address| !self.permits(destination, **address));
        let refused = refused.copied();
        let permitted: Vec<IpAddr> = found
            .into_iter()
            .filter(|address| self.permits(destination, *address))
            .collect();
        match (permitted.is_empty(), refused) {
            (false, _) => Ok(permitted),
            (true, Some(address)) => Err(SendError::not_allowed(address)),
            (true, None) => Err(failed(Failure::Dns, "its name has no address")),
        }
    }
}

fn late() -> SendError {
    failed(Failure::Timeout, "no connection was established in time")
}

/// Bounds how slowly the other side may read.
fn bounded(stream: TcpStream, timeouts: &Timeouts) -> WriteTimeout<TcpStream> {
    // Requests are written in one piece and answers are waited for.
    _ = stream.set_nodelay(true);
    WriteTimeout::new(stream, timeouts.min_rate, timeouts.idle)
}

/// Tries one address after the other; none may use up the time of all.
async fn dial(addresses: &[IpAddr], port: u16, time: Duration) -> Result<TcpStream, SendError> {
    let share = time / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut last = failed(Failure::Connect, "it has no address");
    for address in addresses {
        let dialling = TcpStream::connect(SocketAddr::new(*address, port));
        match timeout(share, dialling).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) if descriptors::are_used_up(&error) => {
                return Err(SendError::no_descriptors());
            }
            Ok(Err(error)) => last = failed(Failure::Connect, describe_dial(&error)),
            Err(_) => last = late(),
        }
    }
    Err(last)
}

/// The TLS of a destination, for this use of HTTP/2.
fn tls_for(destination: &Destination, http2: Http2Mode) -> Arc<ClientConfig> {
    let tls = Arc::clone(destination.tls());
    if http2 == destination.http2() {
        return tls;
    }
    let mut tls = ClientConfig::clone(&tls);
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(tls)
}

async fn establish_http2(io: impl Io + 'static, is_tls: bool) -> Result<NewConnection, SendError> {
    let connection = Http2Connection::establish(io, is_tls).await?;
    Ok(NewConnection::Http2(connection))
}

fn http1(io: impl Io + 'static) -> NewConnection {
    NewConnection::Http1(Box::new(Http1Connection::new(io)))
}

fn failed(failure: Failure, what: impl Into<String>) -> SendError {
    SendError::failed(failure, Phase::Connecting, what)
}

fn describe_dial(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "the connection was refused",
        io::ErrorKind::TimedOut => "no connection was established in time",
        _ => "it cannot be reached",
    }
}

/// What is wrong with TLS or a certificate, in rustls' words.
fn tls_error(error: &io::Error) -> SendError {
    let cause = error.get_ref();
    let Some(cause) = cause.and_then(|cause| cause.downcast_ref::<rustls::Error>()) else {
        return failed(Failure::Tls, "TLS failed");
    };
    // A certificate is written by the server.
    let message = format!("TLS failed: {}", Text::new(&cause.to_string()));
    match cause {
        rustls::Error::InvalidCertificate(_) => SendError::certificate(message),
        _ => failed(Failure::Tls, message),
    }
}
