//! Tests of a served connection, over a pipe in memory and in virtual time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::{Response, StatusCode};
use hyper::body::{Frame, SizeHint};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::client_body::ClientBodyError;
use crate::http1::UpgradeTicket;
use crate::http1::connection::ClientIo;
use crate::http1::response_writer::tests::NoLines;

impl ClientIo for DuplexStream {
    fn has_left(&self) -> bool {
        false
    }

    fn poll_readable(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn reset(&self) {}
}

/// A response of a test: pieces, and perhaps an end that is none.
struct Pieces {
    pieces: Vec<Bytes>,
    breaks: bool,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = ();

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ()>>> {
        Poll::Ready(match self.pieces.is_empty() {
            false => Some(Ok(Frame::data(self.pieces.remove(0)))),
            true => self.breaks.then_some(Err(())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty() && !self.breaks
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::new()
    }
}

/// Responds as the path says.
#[derive(Default)]
struct TestService {
    is_draining: AtomicBool,
    /// Requests that are being served.
    served: AtomicUsize,
    /// A body that is kept beyond its request.
    kept: Mutex<Option<ClientBody>>,
    ticket: Mutex<Option<UpgradeTicket>>,
}

/// Counts a request while it is served.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn next_frame(body: &mut ClientBody) -> Option<Result<Frame<Bytes>, ClientBodyError>> {
    poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
}

impl Service for TestService {
    type Body = Pieces;
    type Mark = NoLines;

    async fn respond(
        &self,
        request: Request<ClientBody>,
        client: &Arc<ClientConnection>,
    ) -> MarkedResponse<Pieces, NoLines> {
        self.served.fetch_add(1, Ordering::Relaxed);
        let _counted = Counted(&self.served);
        let path = request.uri().path().to_owned();
        let mut body = request.into_body();
        let mut pieces = vec![Bytes::from(path.clone())];
        match path.as_str() {
            "/never" => std::future::pending().await,
            "/unread" => drop(body),
            "/upgrade" => *self.ticket.lock().unwrap() = Some(client.upgrade()),
            "/keep" => {
                while !matches!(&body, ClientBody::Http1(body) if body.has_ended()) {
                    next_frame(&mut body).await;
                }
                *self.kept.lock().unwrap() = Some(body);
            }
            _ => {
                while let Some(frame) = next_frame(&mut body).await {
                    match frame.map(Frame::into_data) {
                        Ok(Ok(data)) => pieces.push(data),
                        Ok(Err(_)) => pieces.push(Bytes::from("+trailers")),
                        Err(error) => {
                            pieces.push(Bytes::from(format!("+{error:?}")));
                            break;
                        }
                    }
                }
            }
        }
        let breaks = path == "/breaks" || path == "/upgrade";
        // In one piece, so that splits of the request do not show.
        let pieces = match breaks {
            true => pieces,
            false => vec![pieces.concat().into()],
        };
        marked(Response::new(Pieces { pieces, breaks }))
    }

    fn refuse(&self, refusal: Refusal) -> MarkedResponse<Pieces, NoLines> {
        let mut response = Response::new(Pieces {
            pieces: Vec::new(),
            breaks: false,
        });
        *response.status_mut() = match refusal {
            Refusal::Malformed => StatusCode::BAD_REQUEST,
            Refusal::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        };
        marked(response)
    }

    fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    fn now(&self) -> WallTime {
        WallTime::from_unix_millis(0)
    }
}

fn marked(response: Response<Pieces>) -> MarkedResponse<Pieces, NoLines> {
    let mark = NoLines;
    MarkedResponse { response, mark }
}

const IDLE: Duration = Duration::from_secs(60);

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(test)
}

/// Serves a connection until it ends or rests, while `client` uses its other side.
async fn served<T>(
    service: &TestService,
    client: impl AsyncFnOnce(DuplexStream) -> T,
) -> (Served, T) {
    let (near, far) = duplex(1 << 20);
    let connection = ClientConnection::new(near);
    let serving = async {
        let served = serve(service, &connection, IDLE, Instant::now()).await;
        drop(connection);
        served
    };
    tokio::join!(serving, client(far))
}

/// What a client reads that sends these pieces one after the other and then waits.
fn answers(pieces: &[&[u8]]) -> (Served, String) {
    run(async {
        let service = TestService::default();
        served(&service, async |mut far: DuplexStream| {
            for piece in pieces {
                _ = far.write_all(piece).await;
                tokio::task::yield_now().await;
            }
            let mut read = Vec::new();
            _ = far.read_to_end(&mut read).await;
            let text = String::from_utf8(read).unwrap();
            text.replace("date: Thu, 01 Jan 1970 00:00:00 GMT\r\n", "")
        })
        .await
    })
}

const OK: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

fn ok(body: &str) -> String {
    format!("{OK}{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

fn check(text: &str, expected: &[String], is_resting: bool) {
    for size in [text.len(), 1, 7] {
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
        let (served, read) = answers(&pieces);
        assert_eq!(read, expected.concat(), "{text:?} in pieces of {size}");
        let rests = matches!(served, Served::Resting { .. });
        assert_eq!(rests, is_resting, "{text:?}: {served:?}");
    }
}

#[test]
fn serves_requests_in_order_and_rests() {
    let post = "POST /a HTTP/1.1\r\ncontent-length: 2\r\n\r\nhi";
    let chunked =
        "POST /b HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2;x\r\nho\r\n0\r\na: b\r\n\r\n";
    let text = format!("GET /c HTTP/1.1\r\n\r\n{post}\r\n{chunked}GET /d HTTP/1.1\r\n\r\n");
    let expected = ["/c", "/ahi", "/bho+trailers", "/d"].map(ok);
    check(&text, &expected, true);
}

#[test]
fn closes_when_the_client_asks_for_it() {
    let text = "GET /a HTTP/1.1\r\nconnection: close\r\n\r\nGET /b HTTP/1.1\r\n\r\n";
    let head = OK.replace("chunked\r\n", "chunked\r\nconnection: close\r\n");
    check(text, &[format!("{head}2\r\n/a\r\n0\r\n\r\n")], false);
    let old = "HTTP/1.0 200 OK\r\n\r\n/a".to_owned();
    check("GET /a HTTP/1.0\r\n\r\n", &[old], false);
}

#[test]
fn throws_bodies_away_that_are_not_read() {
    let body = "x".repeat(100_000);
    let length = body.len();
    let text = format!(
        "POST /unread HTTP/1.1\r\ncontent-length: {length}\r\n\r\n{body}GET /a HTTP/1.1\r\n\r\n"
    );
    let (served, read) = answers(&[text.as_bytes()]);
    assert_eq!(read, ok("/unread") + &ok("/a"));
    assert!(matches!(served, Served::Resting { .. }));
}

#[test]
fn asks_for_a_body_when_it_is_read() {
    let head = "HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
    let asked = "HTTP/1.1 100 Continue\r\n\r\n".to_owned();
    check(&format!("POST /a {head}hi"), &[asked, ok("/ahi")], true);
    // It is not asked for, and whether it comes is not known.
    let closing = OK.replace("chunked\r\n", "chunked\r\nconnection: close\r\n");
    let closing = format!("{closing}7\r\n/unread\r\n0\r\n\r\n");
    check(&format!("POST /unread {head}hi"), &[closing], false);
}

#[test]
fn refuses_what_is_no_request_and_closes() {
    let refused = |status: &str| {
        format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    };
    let bad = refused("400 Bad Request");
    check("GET /a HTTP/1.1\r\n\r\nno\r\n\r\n", &[ok("/a"), bad], false);
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101));
    let many = many + "GET / HTTP/1.1\r\n\r\n";
    check(
        &many,
        &[refused("431 Request Header Fields Too Large")],
        false,
    );
}

#[test]
fn a_malformed_or_short_body_is_an_error_and_the_end() {
    let head = "POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
    let (served, read) = answers(&[head.as_bytes(), b"2\r\nhi\r\nx\r\n"]);
    assert!(read.contains("+Malformed"), "{read}");
    assert!(read.contains("connection: close"), "{read}");
    assert_eq!(served, Served::Ended);
}

#[test]
fn a_response_that_breaks_off_does_not_end_cleanly() {
    let (served, read) = answers(&[b"GET /breaks HTTP/1.1\r\n\r\nGET /a HTTP/1.1\r\n\r\n"]);
    assert_eq!(read, format!("{OK}7\r\n/breaks\r\n"));
    assert_eq!(served, Served::Ended);
}

#[test]
fn drops_a_request_whose_client_leaves() {
    run(async {
        let service = TestService::default();
        let (ended, ()) = served(&service, async |mut far: DuplexStream| {
            far.write_all(b"GET /never HTTP/1.1\r\n\r\n").await.unwrap();
            sleep(IDLE * 10).await;
            assert_eq!(service.served.load(Ordering::Relaxed), 1);
        })
        .await;
        assert_eq!(ended, Served::Ended);
        assert_eq!(service.served.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_protocol_that_waits_for_a_connection_learns_that_it_ended() {
    run(async {
        let service = TestService::default();
        let (ended, ()) = served(&service, async |mut far: DuplexStream| {
            far.write_all(b"GET /upgrade HTTP/1.1\r\n\r\n")
                .await
                .unwrap();
            let ticket = loop {
                sleep(TICK).await;
                if let Some(ticket) = service.ticket.lock().unwrap().take() {
                    break ticket;
                }
            };
            let responded = timeout(IDLE, ticket.responded()).await;
            assert!(responded.expect("it is not waited for").is_none());
        })
        .await;
        assert_eq!(ended, Served::Ended);
    });
}

#[test]
fn a_kept_body_reads_nothing_of_later_requests() {
    run(async {
        let service = TestService::default();
        let text = "POST /keep HTTP/1.1\r\ncontent-length: 2\r\n\r\nhi\
                    POST /a HTTP/1.1\r\ncontent-length: 4\r\n\r\nhoho";
        let (ended, read) = served(&service, async |mut far: DuplexStream| {
            far.write_all(&text.as_bytes()[..text.len() - 2])
                .await
                .unwrap();
            sleep(Duration::from_millis(1)).await;
            let mut kept = service.kept.lock().unwrap().take().unwrap();
            assert!(next_frame(&mut kept).await.is_none());
            far.write_all(b"ho").await.unwrap();
            let mut read = vec![0; 2 * OK.len() + 128];
            let mut length = 0;
            while !String::from_utf8_lossy(&read[..length]).contains("/ahoho") {
                length += far.read(&mut read[length..]).await.unwrap();
            }
            drop(kept);
            String::from_utf8_lossy(&read[..length]).into_owned()
        })
        .await;
        assert!(read.contains("/keep"), "{read}");
        assert_eq!(ended, Served::Ended);
    });
}

#[test]
fn rests_soon_and_ends_half_a_head_in_time() {
    run(async {
        let service = TestService::default();
        let since = Instant::now();
        let (rests, ()) = served(&service, async |far: DuplexStream| {
            sleep(TICK * 3).await;
            drop(far);
        })
        .await;
        assert_eq!(rests, Served::Resting { since });
        let began = Instant::now();
        let (ended, ()) = served(&service, async |mut far: DuplexStream| {
            // A byte now and then does not help.
            for byte in
                b"GET /a HTTP/1.1\r\nx: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
            {
                if far.write_all(&[*byte]).await.is_err() {
                    return;
                }
                sleep(Duration::from_secs(1)).await;
            }
        })
        .await;
        assert_eq!(ended, Served::Ended);
        let took = began.elapsed();
        assert!(took >= IDLE && took <= IDLE * 3 / 2, "{took:?}");
    });
}

#[test]
fn a_drain_ends_connections_and_says_so() {
    run(async {
        let service = TestService::default();
        let (ended, read) = served(&service, async |mut far: DuplexStream| {
            far.write_all(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP")
                .await
                .unwrap();
            sleep(TICK * 3).await;
            service.is_draining.store(true, Ordering::Relaxed);
            let mut read = Vec::new();
            far.read_to_end(&mut read).await.unwrap();
            String::from_utf8(read).unwrap()
        })
        .await;
        assert_eq!(ended, Served::Ended);
        assert!(read.contains("/a"), "{read}");
        let (ended, read) = served(&service, async |mut far: DuplexStream| {
            far.write_all(b"GET /a HTTP/1.1\r\n\r\n").await.unwrap();
            let mut read = Vec::new();
            far.read_to_end(&mut read).await.unwrap();
            String::from_utf8(read).unwrap()
        })
        .await;
        assert_eq!(ended, Served::Ended);
        assert!(read.contains("connection: close"), "{read}");
    });
}

const HOSTILE: &[&[u8]] = &[
    b"GET /a HTTP/1.1\r\n\r\n",
    b"POST /unread HTTP/1.1\r\n",
    b"POST /a HTTP/1.1\r\n",
    b"content-length: 3\r\n\r\n",
    b"transfer-encoding: chunked\r\n\r\n",
    b"3\r\nabc\r\n",
    b"0\r\n\r\n",
    b"expect: 100-continue\r\n",
    b"GET /breaks HTTP/1.0\r\n\r\n",
    b"\r\n",
    b"\n",
    b"PRI * HTTP/2.0",
    b"CONNECT a:1 HTTP/1.1\r\n\r\n",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn hostile_bytes_end_a_connection_or_leave_it_at_rest(
        pieces in vec(prop_oneof![
            vec(any::<u8>(), 0..30),
            prop::sample::select(HOSTILE).prop_map(<[u8]>::to_vec),
        ], 0..16),
    ) {
        run(async {
            let service = TestService::default();
            let (_, ()) = served(&service, async |mut far: DuplexStream| {
                for piece in &pieces {
                    _ = far.write_all(piece).await;
                    tokio::task::yield_now().await;
                }
                // The client says that it sends no more.
                _ = far.shutdown().await;
                let mut read = Vec::new();
                _ = far.read_to_end(&mut read).await;
            })
            .await;
        });
    }
}
