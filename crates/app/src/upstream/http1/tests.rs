//! Tests of a connection, over a pipe in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

#[derive(Default)]
struct CountedWakes(AtomicUsize);

impl Wake for CountedWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl CountedWakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(test);
}

/// The response to a request, if it comes within a second.
fn begin(
    connection: &mut Http1Connection,
    request: Request<RequestBody>,
) -> impl Future<Output = Option<Result<Response<()>, Http1Error>>> {
    let end = Instant::now() + Duration::from_secs(1);
    connection.begin(request);
    connection.response(move || end)
}

/// A connection that got a response to one request, and how often the task of that was woken. The
/// server may close it while the body has arrived and is not read yet.
async fn exchange(closes: bool) -> (Http1Connection, Option<DuplexStream>, Arc<CountedWakes>) {
    let (near, mut far) = duplex(4096);
    let mut connection = Http1Connection::new(near);
    let wakes = Arc::new(CountedWakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut context = Context::from_waker(&waker);
    let far = {
        let mut sending = pin!(begin(&mut connection, Request::new(RequestBody::EMPTY)));
        assert!(sending.as_mut().poll(&mut context).is_pending());
        assert_eq!(wakes.count(), 0);
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        far.write_all(bytes).await.unwrap();
        match sending.as_mut().poll(&mut context) {
            Poll::Ready(Some(Ok(_))) => (!closes).then_some(far),
            other => panic!("{other:?}"),
        }
    };
    let read = connection.poll_frame(&mut context);
    assert!(matches!(read, Poll::Ready(Some(Ok(_)))), "{read:?}");
    assert!(connection.has_ended());
    let connection = *Box::new(connection).into_idle().unwrap();
    (connection, far, wakes)
}

#[test]
fn wakes_the_task_of_a_request_once_for_its_response() {
    run(async {
        let (mut connection, _far, wakes) = exchange(false).await;
        assert_eq!(wakes.count(), 1);
        assert!(connection.is_ready());
    });
}

#[test]
fn is_not_ready_when_the_server_closed_it_before_the_body_was_read() {
    run(async {
        let (mut connection, far, _) = exchange(true).await;
        assert!(far.is_none());
        assert!(!connection.is_ready());
    });
}

#[test]
fn is_not_ready_once_the_server_closed_it_or_wrote_at_rest() {
    run(async {
        let (mut connection, far, wakes) = exchange(false).await;
        assert!(connection.is_ready());
        drop(far);
        assert!(!connection.is_ready());
        assert_eq!(wakes.count(), 1);

        let (mut connection, far, _) = exchange(false).await;
        far.unwrap().write_all(b"x").await.unwrap();
        assert!(!connection.is_ready());
    });
}

/// The status of what `pieces` are read as, its body and trailers, and whether the connection can be
/// used again. The server closes it after the last piece.
async fn receive(pieces: &[&[u8]]) -> Result<(u16, String, bool), Http1Error> {
    let (near, mut far) = duplex(1 << 20);
    let mut connection = Http1Connection::new(near);
    let response = {
        let mut sending = pin!(begin(&mut connection, Request::new(RequestBody::EMPTY)));
        let mut context = Context::from_waker(Waker::noop());
        let mut response = sending.as_mut().poll(&mut context);
        for piece in pieces {
            far.write_all(piece).await.unwrap();
            if response.is_pending() {
                response = sending.as_mut().poll(&mut context);
            }
        }
        drop(far);
        match response {
            Poll::Ready(response) => response.unwrap()?,
            Poll::Pending => sending.await.unwrap()?,
        }
    };
    let mut body = String::new();
    while let Some(frame) = poll_fn(|context| connection.poll_frame(context)).await {
        match frame?.into_data() {
            Ok(data) => body.push_str(std::str::from_utf8(&data).unwrap()),
            Err(frame) => body.push_str(&format!("{:?}", frame.into_trailers().unwrap())),
        }
    }
    let is_kept = Box::new(connection).into_idle().is_some();
    Ok((response.status().as_u16(), body, is_kept))
}

#[test]
fn reads_responses_whole_and_byte_by_byte() {
    let long = "x".repeat(100_000);
    let with_long = format!("HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n{long}");
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n186a0\r\n{long}\r\n0\r\n\r\n"
    );
    for (text, status, body, is_kept) in [
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            200,
            "ok",
            true,
        ),
        ("HTTP/1.1 204 None\r\n\r\n", 204, "", true),
        ("HTTP/1.0 200 OK\r\n\r\nall of it", 200, "all of it", false),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\nx",
            200,
            "x",
            false,
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 x\r\na: b\r\n\r\nHTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n",
            404,
            "",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nt: 1\r\n\r\n",
            200,
            r#"abc{"t": "1"}"#,
            true,
        ),
        (&with_long, 200, &long, true),
        (&chunked, 200, &long, true),
    ] {
        let sizes = if text.len() > 1000 {
            [997, 40_000]
        } else {
            [1, text.len()]
        };
        for size in sizes {
            run(async {
                let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
                let received = receive(&pieces).await.unwrap();
                assert_eq!(
                    received,
                    (status, body.to_owned(), is_kept),
                    "{size}: {text:.80}"
                );
            });
        }
    }
}

#[test]
fn bytes_behind_a_response_answer_no_later_request() {
    run(async {
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n";
        let received = receive(&[bytes]).await.unwrap();
        assert_eq!(received, (200, "ok".to_owned(), false));
    });
}

#[test]
fn a_response_that_breaks_off_is_an_error() {
    for text in [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n",
    ] {
        run(async {
            let received = receive(&[text.as_bytes()]).await;
            assert!(
                matches!(received, Err(Http1Error::Closed)),
                "{text}: {received:?}"
            );
        });
    }
}

#[test]
fn refuses_what_is_not_http_and_endless_heads() {
    for text in [
        "SSH-2.0-x\r\n".to_owned(),
        format!("HTTP/1.1 200 {}\r\n", "x".repeat(MAX_HEAD)),
    ] {
        run(async {
            let received = receive(&[text.as_bytes()]).await;
            assert!(
                matches!(received, Err(Http1Error::Invalid(_))),
                "{received:?}"
            );
        });
    }
}

#[test]
fn ends_a_flood_of_informational_responses_and_empty_lines() {
    for (flood, count) in [
        ("HTTP/1.1 100 Continue\r\n\r\n", MAX_PRELIMINARIES),
        ("\r\n", MAX_PRELIMINARIES / 2),
    ] {
        let response = "HTTP/1.1 204 x\r\n\r\n";
        for more in [0, 1] {
            run(async {
                let text = flood.repeat(usize::from(count) + more) + response;
                let pieces: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
                let received = receive(&pieces).await.map(|(status, ..)| status);
                match more {
                    0 => assert_eq!(received.unwrap(), 204),
                    _ => assert!(matches!(received, Err(Http1Error::Invalid(_)))),
                }
            });
        }
    }
}

/// The bytes that a request is written as.
async fn written(request: Request<RequestBody>) -> String {
    let (near, mut far) = duplex(1 << 20);
    let mut connection = Http1Connection::new(near);
    let mut context = Context::from_waker(Waker::noop());
    let sending = pin!(begin(&mut connection, request)).poll(&mut context);
    assert!(sending.is_pending());
    let mut bytes = vec![0; 4096];
    let length = far.read(&mut bytes).await.unwrap();
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

#[test]
fn writes_heads_and_bodies_with_framing_of_its_own() {
    run(async {
        let mut request = Request::new(RequestBody::EMPTY);
        *request.method_mut() = Method::PUT;
        *request.uri_mut() = "/a/b?c=d".parse().unwrap();
        let headers = request.headers_mut();
        headers.append("host", "h".parse().unwrap());
        headers.append("a", "1".parse().unwrap());
        headers.append("a", "2".parse().unwrap());
        headers.append("content-length", "7".parse().unwrap());
        headers.append("transfer-encoding", "chunked".parse().unwrap());
        assert_eq!(
            written(request).await,
            "PUT /a/b?c=d HTTP/1.1\r\nhost: h\r\na: 1\r\na: 2\r\ncontent-length: 0\r\n\r\n"
        );
        let mut request = Request::new(RequestBody::whole(Bytes::from("body")));
        *request.method_mut() = Method::POST;
        request
            .headers_mut()
            .append("content-length", "7".parse().unwrap());
        assert_eq!(
            written(request).await,
            "POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\nbody"
        );
        let mut request = Request::new(RequestBody::EMPTY);
        *request.method_mut() = Method::POST;
        request
            .headers_mut()
            .append("content-length", "0".parse().unwrap());
        assert_eq!(
            written(request).await,
            "POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n"
        );
    });
}

#[test]
fn names_an_empty_body_once_and_no_encoding() {
    for (method, fields, expected) in [
        (Method::POST, &[][..], "content-length: 0\r\n"),
        (Method::PATCH, &["content-length"], "content-length: 0\r\n"),
        (Method::DELETE, &["content-length"], "content-length: 0\r\n"),
        (
            Method::PUT,
            &["content-length", "content-length"],
            "content-length: 0\r\n",
        ),
        (Method::GET, &["transfer-encoding"], ""),
        (Method::GET, &[], ""),
        (Method::DELETE, &[], ""),
    ] {
        run(async {
            let mut request = Request::new(RequestBody::EMPTY);
            *request.method_mut() = method.clone();
            for name in fields {
                let value = "0".parse().unwrap();
                request.headers_mut().append(*name, value);
            }
            let expected = format!("{method} / HTTP/1.1\r\n{expected}\r\n");
            assert_eq!(written(request).await, expected);
        });
    }
}

#[test]
fn writes_a_path_for_an_address_without_one() {
    run(async {
        for (uri, path) in [
            ("http://h?a=b", "/?a=b"),
            ("http://h", "/"),
            ("/x?y", "/x?y"),
        ] {
            let mut request = Request::new(RequestBody::EMPTY);
            *request.uri_mut() = uri.parse().unwrap();
            let expected = format!("GET {path} HTTP/1.1\r\n\r\n");
            assert_eq!(written(request).await, expected);
        }
        let mut request = Request::new(RequestBody::EMPTY);
        *request.method_mut() = Method::OPTIONS;
        *request.uri_mut() = "*".parse().unwrap();
        assert_eq!(written(request).await, "OPTIONS * HTTP/1.1\r\n\r\n");
    });
}

#[test]
fn knows_whether_anything_was_written_and_received() {
    run(async {
        let (near, far) = duplex(4096);
        drop(far);
        let mut connection = Http1Connection::new(near);
        let sent = begin(&mut connection, Request::new(RequestBody::EMPTY)).await;
        assert!(matches!(sent, Some(Err(Http1Error::Io(_)))), "{sent:?}");
        assert!(!connection.has_written());
        assert!(!connection.has_received());

        let (near, mut far) = duplex(4096);
        let mut connection = Http1Connection::new(near);
        far.write_all(b"H").await.unwrap();
        let sent = begin(&mut connection, Request::new(RequestBody::EMPTY)).await;
        assert!(sent.is_none(), "{sent:?}");
        assert!(connection.has_written());
        assert!(connection.has_received());
    });
}

#[test]
fn passes_on_the_response_of_a_server_that_closed_without_reading() {
    run(async {
        let (near, mut far) = duplex(64);
        let bytes = b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n";
        far.write_all(bytes).await.unwrap();
        drop(far);
        let mut connection = Http1Connection::new(near);
        let body = RequestBody::whole(Bytes::from(vec![b'x'; 1000]));
        let sent = begin(&mut connection, Request::new(body)).await;
        assert_eq!(sent.unwrap().unwrap().status(), 413);
        assert!(Box::new(connection).into_idle().is_none());
    });
}

/// What a connection reads of this response to its next request, sent whole or in pieces: its length and
/// framing as passed on, its body, and whether the connection can be used again.
async fn next_response(
    connection: &mut Http1Connection,
    far: &mut DuplexStream,
    method: Method,
    text: &str,
    size: usize,
) -> Result<(String, String, bool), Http1Error> {
    let mut request = Request::new(RequestBody::EMPTY);
    *request.method_mut() = method;
    let response = {
        let mut sending = pin!(begin(connection, request));
        let mut context = Context::from_waker(Waker::noop());
        let mut response = sending.as_mut().poll(&mut context);
        for piece in text.as_bytes().chunks(size) {
            far.write_all(piece).await.unwrap();
            if response.is_pending() {
                response = sending.as_mut().poll(&mut context);
            }
        }
        match response {
            Poll::Ready(response) => response.unwrap()?,
            Poll::Pending => panic!("{text:?} is no whole head"),
        }
    };
    let mut body = String::new();
    while !connection.has_ended() {
        let mut context = Context::from_waker(Waker::noop());
        match connection.poll_frame(&mut context) {
            Poll::Ready(Some(frame)) => {
                body.push_str(std::str::from_utf8(&frame?.into_data().unwrap()).unwrap());
            }
            Poll::Ready(None) => break,
            Poll::Pending => panic!("{text:?} is no whole body"),
        }
    }
    let framing = [
        http::header::CONTENT_LENGTH,
        http::header::TRANSFER_ENCODING,
    ];
    let framing = framing.map(|name| {
        let values = response.headers().get_all(&name).iter();
        let values: Vec<_> = values.map(|value| value.to_str().unwrap()).collect();
        values.join("|")
    });
    let is_kept = connection.is_kept_alive && connection.unread.is_empty();
    Ok((framing.join("/"), body, is_kept))
}

#[test]
fn framing_that_changes_behind_repeated_lines_is_followed() {
    const SAME: &str = "HTTP/1.1 200 OK\r\nServer: a\r\n";
    // Each comes when the lines before are known, and the last response is read whole.
    let responses = [
        ("GET", "Content-Length: 2\r\n\r\nok", "2/", "ok", true),
        (
            "GET",
            "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            "/chunked",
            "ok",
            true,
        ),
        ("HEAD", "Content-Length: 2\r\n\r\n", "2/", "", true),
        ("GET", "content-length: 3\r\n\r\nabc", "3/", "abc", true),
        (
            "HEAD",
            "Transfer-Encoding: chunked\r\n\r\n",
            "/chunked",
            "",
            true,
        ),
        ("GET", "Content-Length: 0\r\n\r\n", "0/", "", true),
        (
            "GET",
            "Content-Length: 2\r\nContent-Length: 2\r\n\r\nok",
            "2/",
            "ok",
            true,
        ),
        (
            "GET",
            "Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "/chunked",
            "",
            false,
        ),
    ];
    for size in [1, 7, 1000] {
        run(async {
            let (near, mut far) = duplex(1 << 16);
            let mut connection = Http1Connection::new(near);
            for round in 0..3 {
                for (method, rest, framing, body, is_kept) in responses {
                    // Of a connection that is not used again, nothing follows.
                    if !is_kept && round < 2 {
                        continue;
                    }
                    let early = "HTTP/1.1 103 Early Hints\r\nContent-Length: 7\r\n\r\n";
                    let early = if round == 1 { early } else { "" };
                    let text = format!("{early}{SAME}{rest}");
                    let method = method.parse().unwrap();
                    let read = next_response(&mut connection, &mut far, method, &text, size);
                    let expected = (framing.to_owned(), body.to_owned(), is_kept);
                    assert_eq!(read.await.unwrap(), expected, "{round} {size} {text:?}");
                }
            }
        });
    }
}

#[test]
fn lengths_that_contradict_known_ones_are_refused() {
    const SAME: &str = "HTTP/1.1 200 OK\r\nServer: a\r\nContent-Length: 2\r\n";
    for bad in [
        "Content-Length: 3\r\n\r\nok",
        "content-length: 2, 3\r\n\r\nok",
        "Content-Length: \r\n\r\nok",
        "Transfer-Encoding: gzip\r\n\r\nok",
        " 3\r\n\r\nok",
        "\tContent-Length: 3\r\n\r\nok",
        "Content-Length : 2\r\n\r\nok",
    ] {
        run(async {
            let (near, mut far) = duplex(1 << 16);
            let mut connection = Http1Connection::new(near);
            for _ in 0..3 {
                let text = format!("{SAME}\r\nok");
                let read = next_response(&mut connection, &mut far, Method::GET, &text, 1000);
                assert_eq!(
                    read.await.unwrap(),
                    ("2/".to_owned(), "ok".to_owned(), true)
                );
            }
            let text = format!("{SAME}{bad}");
            let read = next_response(&mut connection, &mut far, Method::GET, &text, 1000).await;
            assert!(
                matches!(read, Err(Http1Error::Invalid(_))),
                "{bad:?}: {read:?}"
            );
        });
    }
}
