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
mod http1;
mod request_body;
mod response_body;

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use policy::outcome::{Failure, Phase};
use tidegate::Attempt;
use tokio::time::Instant;
use url::Url;

pub use address::Addresses;
pub use destination::{Destination, DestinationError, Trust};
pub use error::{SendError, SendErrorKind};
pub use request_body::{BodyBounds, ReplayableBody, RequestBody, RequestBodyError};
pub use response_body::{BodyError, UpstreamBody};

use connect::{Connection, Connector, for_http2};
use destination::{Destinations, WorkerConnections};
use request_body::Progress;
use response_body::BodySource;

use crate::timer::ReusableTimer;

/// Timeouts of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until a connection is established, name lookup and TLS included.
    pub connect: Duration,
    /// From the request's end to the response's head.
    pub first_byte: Duration,
    /// Between two pieces of a body, and of an unused connection.
    pub idle: Duration,
}

/// The client of all upstreams. Clones share their connections.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    connector: Connector,
    destinations: Arc<Destinations>,
}

impl Upstream {
    /// A client with connections for so many workers, which dials public addresses only.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            connector: Connector::new(Addresses::default()),
            destinations: Arc::new(Destinations::new(workers)),
        }
    }

    /// The same client, which may dial other addresses.
    pub(crate) fn permitting(&self, addresses: Addresses) -> Self {
        Self {
            connector: self.connector.permitting(addresses),
            destinations: Arc::clone(&self.destinations),
        }
    }

    /// The server that `url` names. Senders to one server share its connections.
    ///
    /// # Errors
    ///
    /// If it is no server that can be called, or too many are in use.
    pub(crate) fn destination(
        &self,
        url: &Url,
        trust: Trust,
    ) -> Result<Arc<Destination>, DestinationError> {
        self.destinations.find(url, trust)
    }

    /// Closes connections of this worker that were idle for so long.
    pub(crate) fn close_idle(&self, worker: usize, idle_timeout: Duration) {
        self.destinations.close_idle(worker, idle_timeout);
    }

    /// Forgets connections to servers whose addresses are checked.
    pub(crate) fn forget_untrusted(&self) {
        self.destinations.forget_untrusted();
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
        mut make: impl FnMut() -> (Request<RequestBody>, ReplayableBody),
    ) -> Result<Box<Response<UpstreamBody>>, SendError> {
        let owner = destination.connections(worker);
        let mut reused = owner.take(timeouts.idle);
        loop {
            let is_reused = reused.is_some();
            let connection = match reused.take() {
                Some(connection) => connection,
                // Rare, and five times as large as all the rest of a request.
                None => Box::pin(destination.connect(worker, &self.connector, timeouts)).await?,
            };
            let (request, body) = make();
            let sending = send_on(connection, owner, request, &body, timeouts);
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
async fn send_on(
    connection: Connection,
    owner: &Arc<WorkerConnections>,
    request: Request<RequestBody>,
    body: &ReplayableBody,
    timeouts: &Timeouts,
) -> Result<Box<Response<UpstreamBody>>, SendError> {
    let is_idempotent = request.method().is_idempotent();
    let started = Instant::now();
    // The time for the response begins with the request's end. How long the client may pause before
    // that is bounded by the request's body.
    let deadline = || match body.progress() {
        Progress::None => started + timeouts.first_byte,
        Progress::Partial => Instant::now() + timeouts.first_byte,
        Progress::Whole(since) => since + timeouts.first_byte,
    };
    let sent = match connection {
        Connection::Http1(mut connection) => {
            let sent = connection.send(request, deadline).await;
            sent.map(|sent| match sent {
                Ok(response) => Ok(response.map(|()| BodySource::Http1 {
                    connection,
                    // A server that responds early may never read the rest.
                    owner: body.is_sent().then(|| Arc::clone(owner)),
                })),
                Err(error) => Err(SendError::http1(
                    &error,
                    !connection.has_written(),
                    is_idempotent && !connection.has_received(),
                    body.phase(),
                )),
            })
        }
        Connection::Http2(mut sender) => {
            let sending = sender.try_send_request(for_http2(request));
            let sent = ReusableTimer::default().wait_for(sending, deadline).await;
            sent.map(|sent| match sent {
                Ok(response) => Ok(response.map(BodySource::Http2)),
                Err(mut error) => {
                    let was_untouched = error.take_message().is_some();
                    let error = error.into_error();
                    Err(SendError::http2(&error, was_untouched, body.phase()))
                }
            })
        }
    };
    match sent {
        // `Upgrade` is never passed on.
        Some(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            let message = "it switched to another protocol";
            Err(SendError::failed(Failure::Reset, Phase::Waiting, message))
        }
        Some(Ok(response)) => {
            let response = response.map(|rest| UpstreamBody::new(rest, timeouts.idle));
            Ok(Box::new(response))
        }
        Some(Err(_)) if body.error().is_some() => Err(SendError::request_body()),
        Some(Err(error)) => Err(error),
        None => Err(SendError::failed(
            Failure::Timeout,
            Phase::Waiting,
            "no response came in time",
        )),
    }
}
