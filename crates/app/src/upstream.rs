//! The only code that calls out: requests to servers that are not ours.
//!
//! Nothing leaves without a permit. [`Upstream::send`] wants the [`Attempt`] that only a call
//! through a gate or a pool hands out, so there is no way around them. It sends once: whether to
//! send again is for the item to say. The one exception: an idempotent or unwritten request whose
//! reused connection turns out dead before any byte of a response is sent once more, on a fresh
//! connection.
//!
//! Connections are kept per target and per worker (`lane`), because a connection belongs to the
//! runtime it was made in. hyper's own pool is not used: it hides the moment from which on a server
//! may have acted, it looks targets up by name for every request, and it hands a request to another
//! task to wait for a connection. What is known here of a failure is how far the attempt had got,
//! which decides whether an unsafe request may be repeated.

mod address;
mod answer;
mod connect;
mod error;
mod lane;
mod patience;
mod replay;
mod target;

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use policy::outcome::{Failure, Phase};
use tidegate::Attempt;
use tokio::time::Instant;

pub use address::Addresses;
pub use answer::{AnswerBody, BodyError};
pub use connect::Connector;
pub use error::{SendError, Trouble};
pub use replay::{BodyBounds, BodyTrouble, Kept, RequestBody};
pub use target::{Target, TargetError, Trust};

use answer::Home;
use connect::{Connection, absolute};
use lane::Lane;
use patience::Patience;
use replay::Progress;

/// Times that bound one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Until a connection stands, name lookup and TLS included.
    pub connect: Duration,
    /// From the request's end to the answer's head.
    pub first_byte: Duration,
    /// Between two pieces of a body, and of a connection that nobody uses.
    pub idle: Duration,
}

/// What everything is sent through.
#[derive(Clone, Debug)]
pub struct Upstream {
    connector: Connector,
}

impl Upstream {
    /// What is sent over connections of `connector`.
    pub fn new(connector: Connector) -> Self {
        Self { connector }
    }

    /// Sends a request once, over a connection of worker number `worker`, and waits for the
    /// answer's head.
    ///
    /// `make` builds the request. It is called a second time, and never a third, if a reused
    /// connection turned out dead before any byte of a response and the request is idempotent or was
    /// not written.
    ///
    /// # Errors
    ///
    /// With what went wrong and how far the attempt had got.
    pub async fn send(
        &self,
        worker: usize,
        _permitted: &Attempt,
        target: &Target,
        times: &Times,
        mut make: impl FnMut() -> (Request<RequestBody>, Kept),
    ) -> Result<Response<AnswerBody>, SendError> {
        let lane = target.lane(worker);
        let mut reused = lane.take(times.idle).await;
        loop {
            let is_reused = reused.is_some();
            let connection = match reused.take() {
                Some(connection) => connection,
                None => {
                    // Rare, and five times as large as all the rest of a request.
                    let connecting = Box::pin(self.connector.connect(target, times));
                    let connection = connecting.await?;
                    lane.offer(&connection);
                    connection
                }
            };
            let (request, kept) = make();
            match exchange(connection, request, &kept, times).await {
                Ok((answer, connection)) => {
                    // A server that responds early may never read the rest.
                    let home = kept.is_sent().then(|| Home::new(lane.clone(), connection));
                    return Ok(answer.map(|body| AnswerBody::new(body, home, times.idle)));
                }
                // The idle connection was dead. Other idle ones may be as well, so the one resend
                // goes over a fresh connection.
                Err(error) if is_reused && error.may_try_another() && kept.is_intact() => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// One request over one connection, up to the answer's head.
async fn exchange(
    mut connection: Connection,
    request: Request<RequestBody>,
    kept: &Kept,
    times: &Times,
) -> Result<(Response<Incoming>, Connection), SendError> {
    let is_idempotent = request.method().is_idempotent();
    let started = Instant::now();
    // The time for the answer begins with the request's end. How long its sender may pause before
    // that is a matter of its body.
    let ends = || match kept.progress() {
        Progress::None => started + times.first_byte,
        Progress::Partial => Instant::now() + times.first_byte,
        Progress::Whole(since) => since + times.first_byte,
    };
    let answer = match &mut connection {
        Connection::One(one) => {
            one.has_received.store(false, Ordering::Relaxed);
            let sending = one.sender.try_send_request(request);
            one.patience.wait_for(sending, ends).await
        }
        Connection::Two(sender) => {
            let sending = sender.try_send_request(absolute(request));
            Patience::default().wait_for(sending, ends).await
        }
    };
    match answer {
        Some(Ok(answer)) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
            // `Upgrade` is never passed on, so nobody has asked for it.
            let what = "it switched to another protocol";
            Err(SendError::failed(Failure::Reset, Phase::Waiting, what))
        }
        Some(Ok(answer)) => Ok((answer, connection)),
        Some(Err(_)) if kept.trouble().is_some() => Err(SendError::body()),
        Some(Err(mut error)) => {
            let was_untouched = error.take_message().is_some();
            let has_received = match &connection {
                Connection::One(one) => one.has_received.load(Ordering::Relaxed),
                Connection::Two(_) => true,
            };
            Err(SendError::broken(
                error.into_error(),
                was_untouched,
                is_idempotent && !has_received,
                kept.phase(),
            ))
        }
        None => Err(SendError::failed(
            Failure::Timeout,
            Phase::Waiting,
            "no answer came in time",
        )),
    }
}
