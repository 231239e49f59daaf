//! Passes on requests that ask for another protocol, such as WebSocket, and then what both sides say.
//!
//! Such a request waits at the gate and is judged like all others. If the endpoint answers 101, both
//! connections are for the other protocol from then on, and [relayed](relay). The request has one permit
//! and is in flight up to their end. Any other answer is a response like all.
//!
//! Only HTTP/1.1 can be left this way. `Upgrade: h2c` is not passed on: it is about how the client
//! speaks to us, and a client may use HTTP/2 without asking.

use http::header::{CONNECTION, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};

use super::body::ServedBody;
use super::handle::{ArrivingBody, call};
use super::headers::words;
use super::relay;
use super::request::ParsedRequest;
use super::response::{MarkedResponse, Responder};
use super::serving::{ClientUpgrade, Serving};
use super::worker::Worker;
use crate::client_body::ClientBody;
use crate::exchange::declared_length;

/// A request for a pool that asks for another protocol.
#[derive(Debug)]
pub(super) struct UpgradeRequest {
    request: ParsedRequest,
    /// The client's connection, once it was answered 101.
    client: ClientUpgrade,
}

impl UpgradeRequest {
    pub(super) fn new(request: ParsedRequest, client: ClientUpgrade) -> Box<Self> {
        Box::new(Self { request, client })
    }
}

/// The protocols that a request asks for and that can be passed on. A request with a body is sent as
/// one that asks for none.
pub(super) fn requested_protocols<B>(request: &Request<B>) -> Option<HeaderValue> {
    let headers = request.headers();
    let is_upgrade = |word: &str| word.eq_ignore_ascii_case("upgrade");
    let is_asked = request.version() == Version::HTTP_11
        && headers
            .get_all(CONNECTION)
            .iter()
            .flat_map(words)
            .any(is_upgrade);
    let has_body = headers.contains_key(TRANSFER_ENCODING)
        || declared_length(headers).is_some_and(|length| length > 0);
    if !is_asked || has_body {
        return None;
    }
    let protocols = headers.get_all(UPGRADE).iter().flat_map(words);
    let protocols: Vec<&str> = protocols
        .filter(|protocol| !protocol.eq_ignore_ascii_case("h2c"))
        .collect();
    let is_empty = protocols.is_empty();
    let joined = HeaderValue::try_from(protocols.join(", ")).ok();
    joined.filter(|_| !is_empty)
}

/// Asks for these protocols, or agrees to one, on the connection that the message is sent on.
pub(super) fn add_headers(headers: &mut HeaderMap, protocols: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocols);
}

/// Serves one such request.
pub(super) async fn serve(
    worker: &Worker,
    serving: &Serving,
    request: Box<UpgradeRequest>,
    body: ClientBody,
    responder: Responder<'_>,
) -> MarkedResponse {
    let UpgradeRequest { request, client } = *request;
    let body = ArrivingBody::new(worker, body, request.route.bounds, true);
    let marked = call(worker, serving, &request, body, responder).await;
    if marked.response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return marked;
    }
    MarkedResponse {
        response: connect(worker, serving, client, marked.response),
        ..marked
    }
}

/// Connects both sides behind a response of status 101.
fn connect(
    worker: &Worker,
    serving: &Serving,
    client: ClientUpgrade,
    response: Response<ServedBody>,
) -> Response<ServedBody> {
    let (mut head, body) = response.into_parts();
    if let ServedBody::Passed(body, in_flight) = body
        && let Some((upstream, idle)) = body.into_tunnel()
    {
        add_headers(&mut head.headers, upstream.protocol().clone());
        relay::spawn(worker, serving, client, upstream, in_flight, idle);
    }
    Response::from_parts(head, ServedBody::Made(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(version: Version, headers: &[(&str, &str)]) -> Option<String> {
        let mut request = Request::builder().version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let protocols = requested_protocols(&request.body(()).unwrap());
        protocols.map(|protocols| protocols.to_str().unwrap().to_owned())
    }

    #[test]
    fn passes_on_protocols_that_http1_can_change_to() {
        let connection = ("connection", "keep-alive, Upgrade");
        let check = |headers: &[(&str, &str)], expected: Option<&str>| {
            let found = requested(Version::HTTP_11, headers);
            assert_eq!(found.as_deref(), expected, "{headers:?}");
        };
        check(&[connection, ("upgrade", "websocket")], Some("websocket"));
        check(
            &[connection, ("upgrade", "h2c, a/1"), ("upgrade", "b")],
            Some("a/1, b"),
        );
        check(&[connection, ("upgrade", "H2C")], None);
        check(&[connection, ("upgrade", "")], None);
        check(&[connection], None);
        check(&[("upgrade", "websocket")], None);
        check(&[("connection", "close"), ("upgrade", "websocket")], None);
        let with = |header| [connection, ("upgrade", "websocket"), header];
        check(&with(("content-length", "0")), Some("websocket"));
        check(&with(("content-length", "1")), None);
        check(&with(("transfer-encoding", "chunked")), None);
        for version in [Version::HTTP_10, Version::HTTP_2] {
            let headers = [connection, ("upgrade", "websocket")];
            assert_eq!(requested(version, &headers), None);
        }
    }
}
