//! Passes on requests that ask for another protocol, such as WebSocket, and then what both sides say.
//!
//! Such a request waits at the gate and is judged like all others. If the endpoint answers 101, both
//! connections are for the other protocol from then on: bytes pass both ways, unread, until both sides
//! have closed, one breaks off, or neither has sent any for `idle_timeout`. The request has one permit and is
//! in flight up to that end. Any other answer is a response like all.
//!
//! Only HTTP/1.1 can be left this way. `Upgrade: h2c` is not passed on: it is about how the client
//! speaks to us, and a client may use HTTP/2 without asking.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONNECTION, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};

use super::body::ServedBody;
use super::connection::Serving;
use super::handle::{ArrivingBody, call};
use super::headers::words;
use super::request::ParsedRequest;
use super::response::Responder;
use super::worker::Worker;
use crate::exchange::{ReplayableBody, declared_length};

/// A request for a pool that asks for another protocol.
#[derive(Debug)]
pub(super) struct UpgradeRequest {
    request: ParsedRequest,
    /// The client's connection, once it was answered 101.
    client: OnUpgrade,
}

impl UpgradeRequest {
    pub(super) fn new<B>(parsed: ParsedRequest, request: &mut Request<B>) -> Box<Self> {
        Box::new(Self {
            request: parsed,
            client: hyper::upgrade::on(request),
        })
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
    body: Incoming,
    responder: Responder<'_>,
) -> Response<ServedBody> {
    let UpgradeRequest { request, client } = *request;
    let body = ArrivingBody {
        body: ReplayableBody::new(body, request.route.bounds),
        is_coming: true,
    };
    let response = call(worker, serving, &request, body, responder).await;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return response;
    }
    connect(worker, serving, client, response)
}

/// Connects both sides behind a response of status 101.
fn connect(
    worker: &Worker,
    serving: &Serving,
    client: OnUpgrade,
    response: Response<ServedBody>,
) -> Response<ServedBody> {
    let (mut head, body) = response.into_parts();
    if let ServedBody::Passed(body, in_flight) = body
        && let Some((mut upstream, idle)) = body.into_tunnel()
    {
        add_headers(&mut head.headers, upstream.protocol().clone());
        let open = worker.count_connection();
        let connection = serving.connection().clone();
        tokio::spawn(async move {
            // Both end with the tunnel.
            let (_open, _in_flight) = (open, in_flight);
            let Ok(client) = client.await else {
                return;
            };
            // The response is over, and the connection is still in use.
            let _serving = connection.serve();
            relay(TokioIo::new(client), &mut *upstream, idle).await;
        });
    }
    Response::from_parts(head, ServedBody::Made(None))
}

/// As much as is in memory for each direction.
const BUFFER: usize = 8 << 10;

/// Passes bytes both ways until both sides are done, one breaks off, or neither has sent any for
/// `idle`, and at most twice as long.
async fn relay<A, B>(client: A, upstream: B, idle: Duration)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let reads = AtomicU64::new(0);
    let mut client = Watched {
        inner: client,
        reads: &reads,
    };
    let mut upstream = Watched {
        inner: upstream,
        reads: &reads,
    };
    let silence = async {
        loop {
            let before = reads.load(Ordering::Relaxed);
            tokio::time::sleep(idle).await;
            if reads.load(Ordering::Relaxed) == before {
                return;
            }
        }
    };
    tokio::select! {
        // How it ends concerns both sides only.
        _ = copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER, BUFFER) => {}
        () = silence => {}
    }
}

/// Counts reads.
struct Watched<'a, T> {
    inner: T,
    reads: &'a AtomicU64,
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if read.is_ready() {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<'_, T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
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

    #[test]
    fn a_silent_tunnel_ends_and_one_in_use_does_not() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(async {
            use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
            let idle = Duration::from_secs(60);
            let ((mut near, client), (upstream, mut far)) = (duplex(64), duplex(64));
            let relaying = tokio::spawn(relay(client, upstream, idle));
            // For ten times as long as a silence may be, in one direction only.
            for _ in 0..12 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                far.write_all(b"ping").await.unwrap();
                let mut read = [0; 4];
                near.read_exact(&mut read).await.unwrap();
                assert_eq!(&read, b"ping");
            }
            let since = tokio::time::Instant::now();
            relaying.await.unwrap();
            let waited = since.elapsed();
            assert!(waited >= idle && waited <= 2 * idle, "{waited:?}");
            assert_eq!(near.read(&mut [0]).await.unwrap(), 0);
        });
    }
}
