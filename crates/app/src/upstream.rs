//! The only code that calls out: requests to servers that are not ours. Only `exchange` uses it.
//!
//! Nothing leaves without a permit: [`Upstream::send`] takes the [`Attempt`] that only a call through
//! a gate or a pool hands out. It sends once; whether to send again is for the item to decide. The
//! one exception: an idempotent or unwritten request whose reused connection turns out dead before
//! any byte of a response is sent once more, on a fresh connection.
//!
//! hyper's own pool of connections is not used: it hides the moment from which on a server may have
//! acted, it looks destinations up by name for every request, and it hands a request to another task
//! to wait for a connection. A failure here says how far the attempt had got, which decides whether
//! an unsafe request may be repeated. HTTP/2 is hyper's; `http1` says why HTTP/1.1 is not.

mod address;
mod connect;
mod destination;
mod error;
pub(crate) mod fields;
mod http1;
mod http2;
mod kept_body;
mod proxy;
mod replay_memory;
mod request_body;
mod response_body;
mod stream_wait;
mod tunnel;
mod upgrade;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode};
use policy::outcome::{Failure, Phase};
use tidegate::Attempt;
use tokio::time::Instant;
use url::Url;

pub use address::Addresses;
pub use destination::{Destination, DestinationError, Trust};
pub use error::{SendError, SendErrorKind};
pub use replay_memory::ReplayMemory;
pub use request_body::{BodyBounds, ReplayableBody, RequestBody, RequestBodyError};
pub use response_body::{BodyError, UpstreamBody};
pub use stream_wait::StreamWait;
pub use tunnel::Tunnel;

use connect::Connector;
use destination::{Connection, Destinations, WorkerConnections};
use http1::Http1Connection;
use http2::{Http2Stream, for_http2};
use proxy::Proxy;
use request_body::Progress;
use response_body::BodySource;

use crate::descriptors::Descriptors;
use crate::settings::{ByteRate, ProxySettings};
use crate::timer::ReusableTimer;
use crate::tls::Transport;

/// Timeouts of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until a connection is established, name lookup and TLS included.
    pub connect: Duration,
    /// From the request's end to the response's head.
    pub first_byte: Duration,
    /// Between two pieces of a body, and of an unused connection.
    pub idle: Duration,
    /// The server has to read requests at this rate.
    pub min_rate: ByteRate,
}

/// The client of all upstreams. Clones share their connections.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    connector: Connector,
    destinations: Arc<Destinations>,
    via: HeaderValue,
}

impl Upstream {
    /// A client with connections for so many workers, which dials public addresses only and uses no
    /// more than its share of `descriptors`.
    pub(crate) fn new(workers: usize, descriptors: Arc<Descriptors>) -> Self {
        Self {
            connector: Connector::new(Addresses::default(), descriptors),
            destinations: Arc::new(Destinations::new(workers)),
            via: proxy::new_via(),
        }
    }

    /// The same client, which may dial other addresses, and uses this proxy.
    pub(crate) fn dialling(&self, addresses: Addresses, proxy: Option<&ProxySettings>) -> Self {
        let proxy = proxy.map(|proxy| Proxy::new(proxy, self.via.clone()));
        Self {
            connector: self.connector.dialling(addresses, proxy),
            destinations: Arc::clone(&self.destinations),
            via: self.via.clone(),
        }
    }

    /// The `Via` of everything that passes through this process.
    pub(crate) fn via(&self) -> &HeaderValue {
        &self.via
    }

    /// The server that `url` names. Senders to one server that speak to it in the same way share its
    /// connections.
    ///
    /// # Errors
    ///
    /// If it is no server that can be called, or too many are in use.
    pub(crate) fn destination(
        &self,
        url: &Url,
        trust: Trust,
        transport: &Transport,
    ) -> Result<Arc<Destination>, DestinationError> {
        let tls = || self.connector.tls(transport);
        self.destinations.find(url, trust, transport, tls)
    }

    /// Closes connections of this worker that were idle for too long.
    pub(crate) fn close_idle(&self, worker: usize) {
        self.destinations.close_idle(worker);
    }

    /// Forgets connections to servers whose addresses are checked.
    pub(crate) fn forget_untrusted(&self) {
        self.destinations.forget_untrusted();
    }

    /// Forgets all connections.
    pub(crate) fn forget_all(&self) {
        self.destinations.forget_all();
    }

    /// Opens a connection whose bytes are passed on as they are.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, or must not be.
    pub(crate) async fn open(
        &self,
        _permitted: &Attempt,
        destination: &Destination,
        timeouts: &Timeouts,
    ) -> Result<Tunnel, SendError> {
        self.connector.open(destination, timeouts).await
    }

    /// Sends a request once, over a connection of worker number `worker`, and waits for the
    /// response's head. The response is boxed, because it passes through many functions.
    ///
    /// `make` builds the request. It is called a second time, and never a third, if a reused
    /// connection turned out dead before any byte of a response and the request is idempotent or was
    /// not written.
    ///
    /// # Errors
    ///
    /// With what went wrong and how far the attempt had got.
    pub(crate) async fn send(
        &self,
        worker: usize,
        _permitted: &Attempt,
        destination: &Destination,
        timeouts: &Timeouts,
        wait: &StreamWait<'_>,
        mut make: impl FnMut() -> (Request<RequestBody>, ReplayableBody),
    ) -> Result<Box<Response<UpstreamBody>>, SendError> {
        let owner = destination.connections(worker);
        let mut started = Instant::now();
        let mut reused = owner.take(started, timeouts.idle);
        loop {
            let is_reused = reused.is_some();
            let connection = match reused.take() {
                Some(connection) => connection,
                None => {
                    // Rare, and five times as large as all the rest of a request.
                    let connecting = destination.connect(worker, &self.connector, timeouts, wait);
                    let connection = Box::pin(connecting).await?;
                    started = Instant::now();
                    connection
                }
            };
            let (request, body) = make();
            let sending = send_on(connection, owner, request, &body, timeouts, started);
            match sending.await {
                Ok(response) => return Ok(response),
                // The idle connection was dead. Other idle ones may be as well, so the one resend
                // goes over a fresh connection.
                Err(error) if is_reused && error.may_resend() && body.is_intact() => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Sends one request on one connection of `owner`, and waits for the response's head.
fn send_on<'a>(
    connection: Connection,
    owner: &'a Arc<WorkerConnections>,
    request: Request<RequestBody>,
    body: &'a ReplayableBody,
    timeouts: &'a Timeouts,
    started: Instant,
) -> impl Future<Output = Result<Box<Response<UpstreamBody>>, SendError>> + 'a {
    let is_idempotent = request.method().is_idempotent();
    // Not part of the future, which would be copied with it.
    let sending = match connection {
        Connection::Http1(mut connection) => {
            connection.begin(request);
            Sending::Http1(connection)
        }
        Connection::Http2(stream) => {
            let request = for_http2(request, stream.scheme());
            Sending::Http2(stream, Box::new(request))
        }
    };
    // The time for the response begins with the request's end. How long the client may pause before
    // that is bounded by the request's body.
    let deadline = move || match body.progress() {
        Progress::None => started + timeouts.first_byte,
        Progress::Partial => Instant::now() + timeouts.first_byte,
        Progress::Whole(since) => since + timeouts.first_byte,
    };
    async move {
        let response = match sending {
            Sending::Http1(mut connection) => match connection.response(deadline).await {
                // It is for us, and not for the client.
                Some(Ok(response))
                    if response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED
                        && connection.is_proxied() =>
                {
                    return Err(SendError::proxy_credentials());
                }
                Some(Ok(response)) => response.map(|()| {
                    let source = BodySource::Http1 {
                        connection,
                        // A server that responds early may never read the rest.
                        owner: body.is_sent().then(|| Arc::clone(owner)),
                    };
                    UpstreamBody::new(source, timeouts.idle)
                }),
                Some(Err(_)) if body.error().is_some() => return Err(SendError::request_body()),
                Some(Err(error)) => {
                    return Err(SendError::http1(
                        &error,
                        !connection.has_written(),
                        is_idempotent && !connection.has_received(),
                        body.phase(),
                    ));
                }
                None => return Err(SendError::late()),
            },
            Sending::Http2(stream, request) => {
                let Http2Stream { mut sender, place } = stream;
                let sending = sender.try_send_request(*request);
                match ReusableTimer::default().wait_for(sending, deadline).await {
                    Some(Ok(response)) => response.map(|body| {
                        let source = BodySource::Http2 {
                            body,
                            _place: place,
                        };
                        UpstreamBody::new(source, timeouts.idle)
                    }),
                    Some(Err(_)) if body.error().is_some() => {
                        return Err(SendError::request_body());
                    }
                    Some(Err(mut error)) => {
                        let was_untouched = error.take_message().is_some();
                        let error = error.into_error();
                        return Err(SendError::http2(&error, was_untouched, body.phase()));
                    }
                    None => return Err(SendError::late()),
                }
            }
        };
        // None was asked for: `upgrade` makes such requests.
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let message = "it switched to another protocol";
            return Err(SendError::failed(Failure::Reset, Phase::Waiting, message));
        }
        Ok(Box::new(response))
    }
}

/// A request on its way.
enum Sending {
    Http1(Box<Http1Connection>),
    Http2(Http2Stream, Box<Request<RequestBody>>),
}
