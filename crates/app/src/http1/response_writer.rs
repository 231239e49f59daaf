//! Writes responses: heads, and bodies as they come, by length, in chunks or up to the end of the
//! connection. It does no IO.

use std::mem;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderName, Response, StatusCode, header};
use hyper::body::{Body, Frame};
use hyper::ext::ReasonPhrase;
use policy::time::WallTime;

use super::date::put_date;
use super::head_text::{put_chunk_size, put_header, put_last_chunk, put_length, trailer_names};
use super::request_head::ResponseTerms;
use super::{WriteBuffer, read_length};

/// A response with lines of its head that are not among its headers.
#[derive(Debug)]
pub(crate) struct MarkedResponse<B, M> {
    pub(crate) response: Response<B>,
    pub(crate) mark: M,
}

/// Lines of a head.
pub(crate) trait HeadLines {
    /// Appends them.
    fn put(&self, text: &mut Vec<u8>);
}

/// Writes one response.
#[derive(Debug)]
pub(super) struct ResponseWriter {
    framing: Framing,
    /// What becomes of the connection behind it.
    ending: Ending,
}

#[derive(Debug, PartialEq, Eq)]
enum Framing {
    /// So many bytes are to come.
    Length(u64),
    /// In chunks, and then these trailers.
    Chunked(Vec<HeaderName>),
    /// Up to the end of the connection, for clients of HTTP/1.0.
    UntilClose,
    /// It is over.
    Ended,
}

/// What becomes of a connection behind a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Another request may follow.
    Open,
    /// The response is the last.
    Close,
    /// The connection is for another protocol.
    Switch,
    /// The response is not complete, and must not look so.
    Break,
}

/// A body that does not end as its head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Truncated;

/// How long a body is, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BodyLength(Option<u64>);

impl BodyLength {
    pub(super) fn of(body: &impl Body) -> Self {
        Self(match body.is_end_stream() {
            true => Some(0),
            false => body.size_hint().exact(),
        })
    }
}

impl ResponseWriter {
    /// Writes the head of a response, whose body is this long. `closes`: it is the last.
    pub(super) fn begin(
        buffer: &mut WriteBuffer,
        head: &Parts,
        mark: &impl HeadLines,
        length: BodyLength,
        terms: ResponseTerms,
        closes: bool,
        now: WallTime,
    ) -> Self {
        let text = buffer.text();
        put_status(text, head, terms);
        let framing = framing(head, length, terms);
        let is_chunked = matches!(framing, Framing::Chunked(_));
        let mut names_close = false;
        let (mut has_date, mut has_connection) = (false, false);
        for (name, value) in &head.headers {
            match *name {
                // The framing is ours: it has to be that of the bytes that follow.
                header::CONTENT_LENGTH | header::TRANSFER_ENCODING => continue,
                header::TRAILER if !is_chunked => continue,
                header::DATE => has_date = true,
                header::CONNECTION => {
                    has_connection = true;
                    names_close |= value.as_bytes().eq_ignore_ascii_case(b"close");
                }
                _ => {}
            }
            put_header(text, name, value.as_bytes());
        }
        mark.put(text);
        put_framing(text, head, &framing, length, terms);
        let is_last =
            closes || names_close || !terms.is_kept_alive || framing == Framing::UntilClose;
        let ending = match is_last {
            _ if is_switch(head.status, terms) => Ending::Switch,
            true => Ending::Close,
            false => Ending::Open,
        };
        match ending {
            _ if has_connection => {}
            Ending::Close if !terms.is_http10 => {
                text.extend_from_slice(b"connection: close\r\n");
            }
            Ending::Open if terms.is_http10 => {
                text.extend_from_slice(b"connection: keep-alive\r\n");
            }
            _ => {}
        }
        if !has_date {
            text.extend_from_slice(b"date: ");
            put_date(text, now);
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(b"\r\n");
        let framing = match framing {
            Framing::Length(0) => Framing::Ended,
            framing => framing,
        };
        Self { framing, ending }
    }

    /// Is there no more of the body to write?
    pub(super) fn has_ended(&self) -> bool {
        self.framing == Framing::Ended
    }

    /// What becomes of the connection behind the response.
    pub(super) fn ending(&self) -> Ending {
        self.ending
    }

    /// Would a client take the end of the connection for the end of the body?
    pub(super) fn is_until_close(&self) -> bool {
        self.framing == Framing::UntilClose
    }

    /// Writes the next piece of the body, or its end. `is_whole`: nothing follows this piece.
    pub(super) fn write(
        &mut self,
        buffer: &mut WriteBuffer,
        frame: Option<Frame<Bytes>>,
        is_whole: bool,
    ) -> Result<(), Truncated> {
        let piece = match frame.map(Frame::into_data) {
            Some(Ok(piece)) => piece,
            Some(Err(trailers)) => return self.end(buffer, Some(trailers)),
            None => return self.end(buffer, None),
        };
        match &mut self.framing {
            Framing::Length(left) => {
                // As much as was announced: the rest would be taken for another response.
                *left = left.checked_sub(piece.len() as u64).ok_or(Truncated)?;
                if *left == 0 {
                    self.framing = Framing::Ended;
                }
                buffer.push(piece, b"");
            }
            // An empty chunk is the last.
            Framing::Chunked(_) if piece.is_empty() => {}
            Framing::Chunked(_) => {
                put_chunk_size(buffer.text(), piece.len());
                if is_whole {
                    buffer.push(piece, b"\r\n0\r\n\r\n");
                    self.framing = Framing::Ended;
                } else {
                    buffer.push(piece, b"\r\n");
                }
            }
            Framing::UntilClose => buffer.push(piece, b""),
            Framing::Ended => {}
        }
        Ok(())
    }

    fn end(
        &mut self,
        buffer: &mut WriteBuffer,
        trailers: Option<Frame<Bytes>>,
    ) -> Result<(), Truncated> {
        match mem::replace(&mut self.framing, Framing::Ended) {
            Framing::Length(_) => return Err(Truncated),
            Framing::Chunked(names) => put_last_chunk(buffer.text(), &names, trailers),
            Framing::UntilClose | Framing::Ended => {}
        }
        Ok(())
    }
}

/// The whole of a response with this body, as the last of its connection, whose request is not known.
pub(crate) fn response_bytes(
    head: &Parts,
    mark: &impl HeadLines,
    body: &[u8],
    now: WallTime,
) -> Vec<u8> {
    let terms = ResponseTerms {
        is_kept_alive: false,
        ..ResponseTerms::default()
    };
    let mut buffer = WriteBuffer::default();
    let length = BodyLength(Some(body.len() as u64));
    ResponseWriter::begin(&mut buffer, head, mark, length, terms, true, now);
    let mut bytes = mem::take(buffer.text());
    bytes.extend_from_slice(body);
    bytes
}

/// Is the connection for another protocol behind this response?
fn is_switch(status: StatusCode, terms: ResponseTerms) -> bool {
    status == StatusCode::SWITCHING_PROTOCOLS || (terms.is_connect && status.is_success())
}

/// Has a response with this status a body, or a length, whatever its request?
fn has_body(status: StatusCode) -> bool {
    !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// How the body is framed (RFC 9112, section 6.3).
fn framing(head: &Parts, length: BodyLength, terms: ResponseTerms) -> Framing {
    if terms.is_head || is_switch(head.status, terms) || !has_body(head.status) {
        return Framing::Length(0);
    }
    // A body that broke off may have a length all the same: the client is to miss the rest.
    match length.0.or_else(|| declared_length(head)) {
        Some(length) => Framing::Length(length),
        None if terms.is_http10 => Framing::UntilClose,
        None => Framing::Chunked(match terms.takes_trailers {
            true => trailer_names(&head.headers),
            false => Vec::new(),
        }),
    }
}

fn declared_length(head: &Parts) -> Option<u64> {
    read_length(head.headers.get(header::CONTENT_LENGTH)?.as_bytes())
}

/// Writes what a client has to know to find the end of the response.
fn put_framing(
    text: &mut Vec<u8>,
    head: &Parts,
    framing: &Framing,
    length: BodyLength,
    terms: ResponseTerms,
) {
    match framing {
        Framing::Chunked(_) => text.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Framing::UntilClose | Framing::Ended => {}
        Framing::Length(_) if is_switch(head.status, terms) => {}
        // The length that a GET would have led to, if it is known.
        Framing::Length(_) if terms.is_head || head.status == StatusCode::NOT_MODIFIED => {
            let length = declared_length(head).or_else(|| length.0.filter(|length| *length > 0));
            if let Some(length) = length {
                put_length(text, length);
            }
        }
        Framing::Length(_) if head.status == StatusCode::NO_CONTENT => {}
        Framing::Length(length) => put_length(text, *length),
    }
}

fn put_status(text: &mut Vec<u8>, head: &Parts, terms: ResponseTerms) {
    let own_reason = head.extensions.get::<ReasonPhrase>();
    if head.status == StatusCode::OK && own_reason.is_none() && !terms.is_http10 {
        text.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    let reason = match own_reason {
        Some(reason) => reason.as_bytes(),
        None => head
            .status
            .canonical_reason()
            .unwrap_or_default()
            .as_bytes(),
    };
    let version: &[u8] = match terms.is_http10 {
        true => b"HTTP/1.0 ",
        false => b"HTTP/1.1 ",
    };
    for part in [
        version,
        head.status.as_str().as_bytes(),
        b" ",
        reason,
        b"\r\n",
    ] {
        text.extend_from_slice(part);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use hyper::body::SizeHint;

    use super::*;

    pub(in crate::http1) struct NoLines;

    impl HeadLines for NoLines {
        fn put(&self, _: &mut Vec<u8>) {}
    }

    /// A body of these frames.
    struct Frames {
        frames: Vec<Frame<Bytes>>,
        length: Option<u64>,
    }

    impl Body for Frames {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.frames.is_empty() {
                true => Poll::Ready(None),
                false => Poll::Ready(Some(Ok(self.frames.remove(0)))),
            }
        }

        fn is_end_stream(&self) -> bool {
            self.frames.is_empty()
        }

        fn size_hint(&self) -> SizeHint {
            self.length.map_or_else(SizeHint::new, SizeHint::with_exact)
        }
    }

    fn pieces(pieces: &[&str], length: Option<u64>) -> Frames {
        let frames = pieces
            .iter()
            .map(|piece| Bytes::copy_from_slice(piece.as_bytes()));
        Frames {
            frames: frames.map(Frame::data).collect(),
            length,
        }
    }

    const KEPT: ResponseTerms = ResponseTerms {
        is_head: false,
        is_connect: false,
        is_http10: false,
        is_kept_alive: true,
        takes_trailers: false,
    };

    /// What is written of a response, without its date, and what becomes of the connection.
    fn written(
        status: u16,
        headers: &[(&str, &str)],
        mut body: Frames,
        terms: ResponseTerms,
    ) -> (String, Ending) {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        let (head, ()) = response.body(()).unwrap().into_parts();
        let mut buffer = WriteBuffer::default();
        let length = BodyLength::of(&body);
        let now = WallTime::from_unix_millis(0);
        let mut writer =
            ResponseWriter::begin(&mut buffer, &head, &NoLines, length, terms, false, now);
        let mut context = Context::from_waker(Waker::noop());
        let mut is_truncated = false;
        while !writer.has_ended() && !is_truncated {
            let Poll::Ready(frame) = Pin::new(&mut body).poll_frame(&mut context) else {
                panic!("it is ready");
            };
            let frame = frame.map(|frame| frame.unwrap_or_else(|never| match never {}));
            is_truncated = writer
                .write(&mut buffer, frame, body.is_end_stream())
                .is_err();
        }
        let text = String::from_utf8(mem::take(buffer.text())).unwrap();
        let text = text.replace("date: Thu, 01 Jan 1970 00:00:00 GMT\r\n", "");
        match is_truncated {
            true => (text, Ending::Break),
            false => (text, writer.ending()),
        }
    }

    fn check(
        status: u16,
        headers: &[(&str, &str)],
        body: Frames,
        terms: ResponseTerms,
        expected: &str,
        ending: Ending,
    ) {
        let (text, found) = written(status, headers, body, terms);
        assert_eq!(
            (text.as_str(), found),
            (expected, ending),
            "{status} {headers:?} {terms:?}"
        );
    }

    #[test]
    fn frames_bodies_by_length_if_it_is_known() {
        check(
            200,
            &[
                ("content-length", "9"),
                ("transfer-encoding", "x"),
                ("a", "b"),
            ],
            pieces(&["ab", "c"], Some(3)),
            KEPT,
            "HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 3\r\n\r\nabc",
            Ending::Open,
        );
        check(
            404,
            &[],
            pieces(&[], None),
            KEPT,
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            Ending::Open,
        );
    }

    #[test]
    fn a_body_that_breaks_off_keeps_the_length_that_was_announced() {
        let announced = [("content-length", "5")];
        let body = pieces(&["abc"], None);
        let expected = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc";
        check(200, &announced, body, KEPT, expected, Ending::Break);
        let long = pieces(&["abc", "defg"], Some(5));
        check(200, &[], long, KEPT, expected, Ending::Break);
    }

    #[test]
    fn writes_chunks_if_no_length_is_known() {
        let long = "x".repeat(20);
        check(
            200,
            &[("trailer", "x-sum")],
            pieces(&["abc", "", &long], None),
            KEPT,
            &format!(
                "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n14\r\n{long}\r\n0\r\n\r\n"
            ),
            Ending::Open,
        );
    }

    #[test]
    fn writes_trailers_that_were_announced_to_clients_that_take_them() {
        let body = || {
            let mut body = pieces(&["a"], None);
            let trailers = [("x-sum", "1"), ("x-other", "2")];
            let trailers = trailers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
            body.frames.push(Frame::trailers(trailers.collect()));
            body
        };
        let head = "HTTP/1.1 200 OK\r\ntrailer: x-sum, x-more\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n";
        let announced = [("trailer", "x-sum, x-more")];
        let taking = ResponseTerms {
            takes_trailers: true,
            ..KEPT
        };
        let with = format!("{head}x-sum: 1\r\n\r\n");
        check(200, &announced, body(), taking, &with, Ending::Open);
        check(
            200,
            &announced,
            body(),
            KEPT,
            &format!("{head}\r\n"),
            Ending::Open,
        );
    }

    #[test]
    fn ends_bodies_for_http10_with_the_connection() {
        let old = ResponseTerms {
            is_http10: true,
            ..KEPT
        };
        let body = || pieces(&["ab", "c"], None);
        check(
            200,
            &[("trailer", "x")],
            body(),
            old,
            "HTTP/1.0 200 OK\r\n\r\nabc",
            Ending::Close,
        );
        check(
            200,
            &[],
            pieces(&["a"], Some(1)),
            old,
            "HTTP/1.0 200 OK\r\ncontent-length: 1\r\nconnection: keep-alive\r\n\r\na",
            Ending::Open,
        );
    }

    #[test]
    fn writes_no_body_where_there_is_none() {
        let is_head = ResponseTerms {
            is_head: true,
            ..KEPT
        };
        let body = || pieces(&["abc"], Some(3));
        let length = [("content-length", "7")];
        let none = pieces(&[], None);
        check(
            200,
            &length,
            none,
            is_head,
            "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n",
            Ending::Open,
        );
        check(
            200,
            &[],
            body(),
            is_head,
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n",
            Ending::Open,
        );
        check(
            200,
            &[],
            pieces(&[], None),
            is_head,
            "HTTP/1.1 200 OK\r\n\r\n",
            Ending::Open,
        );
        check(
            204,
            &length,
            body(),
            KEPT,
            "HTTP/1.1 204 No Content\r\n\r\n",
            Ending::Open,
        );
        check(
            304,
            &length,
            pieces(&[], None),
            KEPT,
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n",
            Ending::Open,
        );
    }

    #[test]
    fn says_how_the_connection_goes_on() {
        let closing = ResponseTerms {
            is_kept_alive: false,
            ..KEPT
        };
        let empty = || pieces(&[], None);
        let closed = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        check(200, &[], empty(), closing, closed, Ending::Close);
        let named = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        check(
            200,
            &[("connection", "close")],
            empty(),
            KEPT,
            named,
            Ending::Close,
        );
        let old = ResponseTerms {
            is_http10: true,
            ..closing
        };
        check(
            200,
            &[],
            empty(),
            old,
            "HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
            Ending::Close,
        );
        let asks = [("connection", "upgrade"), ("upgrade", "a")];
        let switches =
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: a\r\n\r\n";
        check(101, &asks, empty(), KEPT, switches, Ending::Switch);
        let connect = ResponseTerms {
            is_connect: true,
            ..closing
        };
        check(
            200,
            &[("content-length", "0")],
            empty(),
            connect,
            "HTTP/1.1 200 OK\r\n\r\n",
            Ending::Switch,
        );
        let refused = "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno";
        check(
            403,
            &[],
            pieces(&["no"], Some(2)),
            connect,
            refused,
            Ending::Close,
        );
    }

    #[test]
    fn writes_the_reason_and_date_of_the_upstream() {
        let mut response = Response::builder().status(299).body(()).unwrap();
        let reason = ReasonPhrase::try_from(&b"Odd"[..]).unwrap();
        response.extensions_mut().insert(reason);
        let date = "Fri, 02 Jan 1970 00:00:00 GMT".parse().unwrap();
        response.headers_mut().insert(header::DATE, date);
        let now = WallTime::from_unix_millis(0);
        let bytes = response_bytes(&response.into_parts().0, &NoLines, b"hi", now);
        let expected = "HTTP/1.1 299 Odd\r\ndate: Fri, 02 Jan 1970 00:00:00 GMT\r\n\
                        content-length: 2\r\nconnection: close\r\n\r\nhi";
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }
}
