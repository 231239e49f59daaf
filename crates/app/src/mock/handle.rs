//! One request, one answer.

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::request::Parts;
use http::{Method, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::body::MockBody;
use super::desk::{Desk, Ticket};
use super::endpoint::{self, Endpoint};
use super::journal::End;
use super::model::{Fate, Planned};

/// An answer.
pub(super) type Answer = Response<MockBody>;

/// Who is at the other end of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) desk: Arc<Desk>,
    /// Their number.
    pub(super) client: usize,
    pub(super) address: IpAddr,
    /// Is the connection to end with a reset?
    pub(super) is_reset: Arc<AtomicBool>,
}

/// A request and what is known about it.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) desk: &'a Arc<Desk>,
    pub(super) peer: &'a Peer,
    pub(super) head: Parts,
    pub(super) body: Incoming,
    pub(super) planned: Planned,
    /// The number of the request.
    pub(super) number: u64,
}

/// The connection ends without an answer.
#[derive(Debug)]
pub(super) struct HungUp;

impl fmt::Display for HungUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it hung up, as it was told to")
    }
}

impl std::error::Error for HungUp {}

pub(super) async fn handle(peer: Arc<Peer>, request: Request<Incoming>) -> Result<Answer, HungUp> {
    let desk = &peer.desk;
    let (head, body) = request.into_parts();
    let is_head = head.method == Method::HEAD;
    if let Some(answer) = unlimited(desk, &head) {
        return Ok(for_head(answer, is_head));
    }
    let (mut ticket, fate) = desk.arrive(peer.client, &head.method, head.uri.path());
    match fate {
        Fate::Reset => {
            ticket.end(End::Unanswered);
            peer.is_reset.store(true, Ordering::Relaxed);
            Err(HungUp)
        }
        Fate::Silent => {
            ticket.end(End::Unanswered);
            match silence(desk, body).await {}
        }
        Fate::Answered(planned) => {
            let call = Call {
                desk,
                peer: &peer,
                head,
                body,
                planned,
                number: ticket.number(),
            };
            Ok(answer(call, ticket).await)
        }
    }
}

/// The answer at a path that no limit is asked for.
fn unlimited(desk: &Desk, head: &Parts) -> Option<Answer> {
    let path = head.uri.path();
    match path.strip_prefix("/_mock/") {
        Some(name) => Some(endpoint::about(desk, &head.method, name)),
        None => desk.settings.style.free(desk, path),
    }
}

async fn answer(call: Call<'_>, mut ticket: Ticket) -> Answer {
    let (desk, planned) = (call.desk, call.planned);
    let is_head = call.head.method == Method::HEAD;
    let style = desk.settings.style;
    let mut answer = if planned.status == 200 {
        match Endpoint::of(call.head.uri.path(), call.head.uri.query()) {
            Some(endpoint) => endpoint.answer(call).await,
            None => style.content(call).await,
        }
    } else {
        let call = call.without_body().await;
        style.without_content(&call)
    };
    style.tell(desk, &planned, answer.headers_mut());
    desk.sleep_until(&ticket, planned.at).await;
    ticket.end(match planned.is_cut {
        true => End::Unanswered,
        false => End::Answered(answer.status().as_u16()),
    });
    if planned.is_cut {
        answer = answer.map(MockBody::cut);
    }
    for_head(answer, is_head).map(|body| body.with_ticket(ticket))
}

/// The answer without its body, if only its head was asked for; it still says how long that is.
fn for_head(mut answer: Answer, is_head: bool) -> Answer {
    if !is_head {
        return answer;
    }
    if let Some(length) = answer.body().size_hint().exact() {
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    answer.map(|_| MockBody::empty())
}

impl Call<'_> {
    /// Reads the request to its end and forgets it piece by piece; gives its length.
    pub(super) async fn drain(&mut self) -> u64 {
        drain(&mut self.body).await.0
    }

    async fn without_body(mut self) -> Self {
        self.drain().await;
        self
    }
}

/// Reads a body to its end and forgets it piece by piece; gives its length and its trailers.
pub(super) async fn drain(body: &mut Incoming) -> (u64, Option<http::HeaderMap>) {
    let (mut length, mut trailers) = (0, None);
    while !body.is_end_stream() {
        let Some(Ok(frame)) = body.frame().await else {
            break;
        };
        match frame.into_data() {
            Ok(data) => length += data.len() as u64,
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    (length, trailers)
}

/// Says nothing until the client goes away or the mock ends.
async fn silence(desk: &Desk, mut body: Incoming) -> Infallible {
    drain(&mut body).await;
    loop {
        let later = desk.clock().now() + Duration::from_secs(3600);
        desk.clock().sleep_until(later).await;
    }
}

/// A JSON body.
pub(super) fn json(status: u16, value: &serde_json::Value) -> Answer {
    typed(
        status,
        "application/json",
        MockBody::whole(value.to_string()),
    )
}

pub(super) fn typed(status: u16, media_type: &'static str, body: MockBody) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let value = http::HeaderValue::from_static(media_type);
    answer.headers_mut().insert(header::CONTENT_TYPE, value);
    answer
}
