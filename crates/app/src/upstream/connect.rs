//! Making a connection: resolve, check, dial, TLS, handshake.

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
use super::destination::{Destination, DialledHost};
use super::error::SendError;
use super::http1::{Http1Connection, Io};
use super::http2::Http2Connection;
use crate::descriptors::{self, Descriptors};
use crate::redact::Text;
use crate::stall::WriteTimeout;

/// Makes connections.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    addresses: Arc<Addresses>,
    tls: Arc<ClientConfig>,
    descriptors: Arc<Descriptors>,
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
        let mut roots = RootCertStore::empty();
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        // Certificates that cannot be read are left out.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has the protocols that are on by default")
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self {
            addresses: Arc::new(addresses),
            tls: Arc::new(tls),
            descriptors,
        }
    }

    /// The same certificates, and other addresses.
    pub(super) fn permitting(&self, addresses: Addresses) -> Self {
        Self {
            addresses: Arc::new(addresses),
            tls: Arc::clone(&self.tls),
            descriptors: Arc::clone(&self.descriptors),
        }
    }

    /// A new connection to `destination`.
    pub(super) async fn connect(
        &self,
        destination: &Destination,
        timeouts: &Timeouts,
    ) -> Result<NewConnection, SendError> {
        let connecting = self.connect_in_time(destination, timeouts);
        match timeout(timeouts.connect, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(failed(
                Failure::Timeout,
                "no connection was established in time",
            )),
        }
    }

    async fn connect_in_time(
        &self,
        destination: &Destination,
        timeouts: &Timeouts,
    ) -> Result<NewConnection, SendError> {
        let descriptor = self.descriptors.for_upstream();
        let descriptor = descriptor.ok_or_else(SendError::no_descriptors)?;
        let addresses = self.resolve(destination).await?;
        let stream = dial(&addresses, destination.port(), timeouts.connect).await?;
        // Requests are written in one piece and answers are waited for.
        _ = stream.set_nodelay(true);
        let stream = WriteTimeout::new(stream, timeouts.min_rate, timeouts.idle);
        let stream = stream.holding(descriptor);
        let Some(name) = destination.server_name() else {
            return Ok(http1(stream));
        };
        let tls = TlsConnector::from(Arc::clone(&self.tls));
        let stream = tls.connect(name.clone(), stream).await;
        let stream = stream.map_err(|error| tls_error(&error))?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        if is_http2 {
            Http2Connection::establish(stream)
                .await
                .map(NewConnection::Http2)
        } else {
            Ok(http1(stream))
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
            .find(|address| !self.addresses.permit(**address));
        let refused = refused.copied();
        let permitted: Vec<IpAddr> = found
            .into_iter()
            .filter(|address| self.addresses.permit(*address))
            .collect();
        match (permitted.is_empty(), refused) {
            (false, _) => Ok(permitted),
            (true, Some(address)) => Err(SendError::not_allowed(address)),
            (true, None) => Err(failed(Failure::Dns, "its name has no address")),
        }
    }
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
            Err(_) => last = failed(Failure::Timeout, "no connection was established in time"),
        }
    }
    Err(last)
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
