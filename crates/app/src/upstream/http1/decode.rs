//! Reads the heads of responses. It sees bytes as they arrive and does no IO.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version, header};
use httparse::{ParserConfig, Status};
use hyper::ext::ReasonPhrase;

use super::known_head::{KnownHead, read_field};
use crate::http1::{BodyDecoder, InvalidHttp, MAX_HEADERS, read_length};

/// The head of a response.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) response: Response<()>,
    pub(super) body: BodyDecoder,
    /// The connection may be used again when the body is over.
    pub(super) is_kept_alive: bool,
}

/// What the first bytes of a response are.
#[derive(Debug)]
pub(super) enum Parsed {
    /// A head, which was taken off the bytes.
    Head(ResponseHead),
    /// An informational one such as `100 Continue`, which was taken off and is not passed on.
    Informational,
    /// The beginning of a head.
    Partial,
}

/// Reads the head of a response to a request with the method HEAD (`is_head`) or another. Headers are
/// put into `headers`, which is empty: its memory is used again. `known` is of the same connection.
pub(super) fn parse_head(
    bytes: &mut Bytes,
    is_head: bool,
    headers: &mut HeaderMap,
    known: &mut KnownHead,
) -> Result<Parsed, InvalidHttp> {
    let mut fields = HeaderFields {
        headers,
        framing: FramingHeaders::default(),
    };
    let read = match known.status(bytes) {
        Some((status, start)) => read_known(bytes, status, start, known, &mut fields),
        None => read_head(bytes, known, &mut fields),
    };
    let HeaderFields { mut framing, .. } = fields;
    let head = match read? {
        HeadRead::Head(head) => head,
        HeadRead::Informational(length) => {
            _ = bytes.split_to(length);
            return Ok(Parsed::Informational);
        }
        HeadRead::Partial => {
            headers.clear();
            return Ok(Parsed::Partial);
        }
    };
    let (status, is_http10) = (head.status, head.is_http10);
    framing.is_kept_alive = match is_http10 {
        true => framing.has_keep_alive && !framing.has_close,
        false => !framing.has_close,
    };
    let body = framing.body(status, is_head, is_http10)?;
    if framing.are_ambiguous(status) {
        headers.remove(header::CONTENT_LENGTH);
        framing.is_kept_alive = false;
    } else if framing.repeats_length
        && let Some(length) = framing.length
    {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    let mut response = Response::new(());
    if let Some(reason) = head.reason {
        response.extensions_mut().insert(reason);
    }
    *response.status_mut() = status;
    *response.version_mut() = match is_http10 {
        true => Version::HTTP_10,
        false => Version::HTTP_11,
    };
    *response.headers_mut() = std::mem::take(headers);
    _ = bytes.split_to(head.length);
    Ok(Parsed::Head(ResponseHead {
        response,
        is_kept_alive: framing.is_kept_alive
            && status != StatusCode::SWITCHING_PROTOCOLS
            && body != BodyDecoder::UntilClose,
        body,
    }))
}

/// What was read of a head.
enum HeadRead {
    Head(HeadParts),
    /// So many bytes of an informational one.
    Informational(usize),
    Partial,
}

struct HeadParts {
    status: StatusCode,
    is_http10: bool,
    /// If it is not the usual one.
    reason: Option<ReasonPhrase>,
    length: usize,
}

/// Where headers are put.
struct HeaderFields<'a> {
    headers: &'a mut HeaderMap,
    framing: FramingHeaders,
}

impl HeaderFields<'_> {
    fn add(&mut self, name: HeaderName, value: HeaderValue) -> Result<(), InvalidHttp> {
        self.framing.note(&name, &value)?;
        // Most servers send this. It says nothing that anyone looks for.
        if name != header::CONNECTION || !value.as_bytes().eq_ignore_ascii_case(b"keep-alive") {
            self.headers.append(name, value);
        }
        Ok(())
    }
}

/// Reads a head of which nothing is known.
fn read_head(
    bytes: &Bytes,
    known: &mut KnownHead,
    fields: &mut HeaderFields<'_>,
) -> Result<HeadRead, InvalidHttp> {
    let mut space = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut head = httparse::Response::new(&mut []);
    let config = ParserConfig::default();
    let parsed = config.parse_response_with_uninit_headers(&mut head, bytes, &mut space);
    let length = match parsed.map_err(malformed)? {
        Status::Complete(length) => length,
        Status::Partial => return Ok(HeadRead::Partial),
    };
    let status = StatusCode::from_u16(head.code.unwrap_or_default());
    let status = status.map_err(|_| InvalidHttp("a status out of range"))?;
    if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(HeadRead::Informational(length));
    }
    fields.headers.reserve(head.headers.len());
    for field in &*head.headers {
        let (name, value) = read_field(bytes, field)?;
        fields.add(name, value)?;
    }
    let is_http10 = head.version == Some(0);
    let reason = head
        .reason
        .filter(|reason| Some(*reason) != status.canonical_reason());
    let reason = reason.and_then(|reason| ReasonPhrase::try_from(reason.as_bytes()).ok());
    if !is_http10 && status.is_success() && reason.is_none() {
        known.learn(bytes, status, head.headers);
    }
    Ok(HeadRead::Head(HeadParts {
        status,
        is_http10,
        reason,
        length,
    }))
}

/// Reads a head that begins with the known status line, `start` bytes long.
fn read_known(
    bytes: &Bytes,
    status: StatusCode,
    start: usize,
    known: &mut KnownHead,
    fields: &mut HeaderFields<'_>,
) -> Result<HeadRead, InvalidHttp> {
    let repeated = known.read_repeated(&bytes[start..], |name, value| fields.add(name, value));
    let (count, length) = repeated?;
    let start = start + length;
    let rest = match bytes[start..].starts_with(b"\r\n") {
        true => Status::Complete(2),
        false => read_rest(bytes, start, count, known, fields)?,
    };
    Ok(match rest {
        Status::Complete(length) => HeadRead::Head(HeadParts {
            status,
            is_http10: false,
            reason: None,
            length: start + length,
        }),
        Status::Partial => HeadRead::Partial,
    })
}

/// Reads the lines of a head behind `count` known ones. Returns how long they are. Not inlined, so that
/// heads without need not have the room on their stack.
#[inline(never)]
fn read_rest(
    bytes: &Bytes,
    start: usize,
    count: usize,
    known: &mut KnownHead,
    fields: &mut HeaderFields<'_>,
) -> Result<Status<usize>, InvalidHttp> {
    let mut space = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let parsed = httparse::parse_headers(&bytes[start..], &mut space[count..]);
    let (length, rest) = match parsed.map_err(malformed)? {
        Status::Complete(read) => read,
        Status::Partial => return Ok(Status::Partial),
    };
    let mut next = count;
    for field in rest {
        let (name, value) = known.field(&mut next, bytes, field)?;
        fields.add(name, value)?;
    }
    Ok(Status::Complete(length))
}

fn malformed(error: httparse::Error) -> InvalidHttp {
    match error {
        httparse::Error::TooManyHeaders => InvalidHttp("too many headers"),
        _ => InvalidHttp("a malformed head"),
    }
}

/// What the headers of a response say about its framing.
#[derive(Debug, Default)]
struct FramingHeaders {
    length: Option<u64>,
    /// The length is written more than once.
    repeats_length: bool,
    encoding: Option<Encoding>,
    is_kept_alive: bool,
    has_keep_alive: bool,
    has_close: bool,
}

/// How a body is encoded for its transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    /// In chunks, and in no other way.
    Chunked,
    /// In a way that was not asked for: what is behind it cannot be passed on without its name.
    Other,
}

impl FramingHeaders {
    fn note(&mut self, name: &HeaderName, value: &HeaderValue) -> Result<(), InvalidHttp> {
        match *name {
            // A list of equal lengths is one length.
            header::CONTENT_LENGTH => {
                for part in value.as_bytes().split(|byte| *byte == b',') {
                    let length = read_length(part).ok_or(InvalidHttp("its length"))?;
                    if self.length.is_some_and(|other| other != length) {
                        return Err(InvalidHttp("two lengths"));
                    }
                    self.repeats_length = self.length.is_some();
                    self.length = Some(length);
                }
            }
            header::TRANSFER_ENCODING => {
                let is_chunked = value.as_bytes().eq_ignore_ascii_case(b"chunked");
                self.encoding = Some(match (self.encoding, is_chunked) {
                    (None, true) => Encoding::Chunked,
                    _ => Encoding::Other,
                });
            }
            header::CONNECTION => {
                let mut words = words(value);
                self.has_close |= words
                    .clone()
                    .any(|word| word.eq_ignore_ascii_case(b"close"));
                self.has_keep_alive |= words.any(|word| word.eq_ignore_ascii_case(b"keep-alive"));
            }
            _ => {}
        }
        Ok(())
    }

    /// How the body is framed (RFC 9112, section 6.3).
    fn body(
        &self,
        status: StatusCode,
        is_head: bool,
        is_http10: bool,
    ) -> Result<BodyDecoder, InvalidHttp> {
        let has_no_body = matches!(status.as_u16(), 101 | 204 | 304);
        match (self.encoding, self.length) {
            _ if is_head || has_no_body => Ok(BodyDecoder::Length(0)),
            (Some(_), _) if is_http10 => Err(InvalidHttp("an encoding in HTTP/1.0")),
            (Some(Encoding::Other), _) => Err(InvalidHttp("an unknown transfer encoding")),
            (Some(Encoding::Chunked), _) => Ok(BodyDecoder::Chunked(Box::default())),
            (None, Some(length)) => Ok(BodyDecoder::Length(length)),
            (None, None) => Ok(BodyDecoder::UntilClose),
        }
    }

    /// Do the headers leave open where the next response begins? Of an encoding next to a length, one
    /// is wrong. A 204 has no body, but a server that names one may send it.
    fn are_ambiguous(&self, status: StatusCode) -> bool {
        let names_body = self.encoding.is_some() || self.length.is_some_and(|length| length > 0);
        (self.encoding.is_some() && self.length.is_some())
            || (status == StatusCode::NO_CONTENT && names_body)
    }
}

/// The comma-separated words of a header.
fn words(value: &HeaderValue) -> impl Iterator<Item = &[u8]> + Clone {
    let parts = value.as_bytes().split(|byte| *byte == b',');
    parts.map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<ResponseHead, InvalidHttp> {
        head_of("GET", text)
    }

    fn head_of(method: &str, text: &str) -> Result<ResponseHead, InvalidHttp> {
        let mut bytes = Bytes::copy_from_slice(text.as_bytes());
        let mut headers = HeaderMap::new();
        let mut known = KnownHead::default();
        match parse_head(&mut bytes, method == "HEAD", &mut headers, &mut known)? {
            Parsed::Head(head) => Ok(head),
            other => panic!("{other:?}"),
        }
    }

    fn parse(bytes: &mut Bytes, known: &mut KnownHead) -> Result<Parsed, InvalidHttp> {
        parse_head(bytes, false, &mut HeaderMap::new(), known)
    }

    /// What is read of a head: everything that matters, as text.
    fn read(text: &str, known: &mut KnownHead) -> String {
        let mut bytes = Bytes::copy_from_slice(text.as_bytes());
        let parsed = parse(&mut bytes, known);
        format!("{parsed:?}, then {bytes:?}")
    }

    #[test]
    fn known_lines_change_nothing() {
        let heads = [
            "Server: a\r\nDate: 1\r\nConnection: keep-alive\r\nContent-Length: 3\r\nX-A: \r\n",
            "Server: a\r\nDate: 2\r\nConnection: keep-alive\r\nContent-Length: 3\r\nX-A: \r\n",
            "Server: a\r\nDate: 2\r\nContent-Length: 3\r\nX-A: \r\n",
            "server: a\r\nDate: 2\r\nNew: 1\r\nContent-Length: 4\r\nX-A: b\r\nX-A: c\r\n",
            "Server: a\r\n Date: 2\r\nContent-Length: 3\r\n",
            "Server: a\r\n\tb\r\n",
            "Server: a\nDate: 3\nContent-Length: 3\n",
            "Server: a\r\nDate : 2\r\n",
            "Server: a\r\nDate: 2\r\nContent-Length: 3\r\nContent-Length: 4\r\n",
            "Server: a\r\nDate: 2\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n",
            "Server: a\r\nDate: 2\r\nSet-Cookie: a=b\r\nConnection: close\r\n",
            "Server: a\r\nServer: a\r\nDate: 2\r\nContent-Length: 03\r\n",
            "Content-Length: 3\r\nX-A: \r\nServer: a\r\n",
            "",
        ];
        let statuses = [
            "1.1 200 OK",
            "1.1 200 Fine",
            "1.0 200 OK",
            "1.1 404 Not Found",
            "1.1 204 No Content",
        ];
        let many = "Server: a\r\n".repeat(MAX_HEADERS);
        let mut known = KnownHead::default();
        for round in 0..3 {
            for lines in heads
                .iter()
                .copied()
                .chain([&*many, &format!("{many}X-A: b\r\n")])
            {
                for status in statuses {
                    let text = format!("HTTP/{status}\r\n{lines}\r\nrest");
                    let expected = read(&text, &mut KnownHead::default());
                    assert_eq!(read(&text, &mut known), expected, "round {round}: {text:?}");
                    for end in 0..text.len().min(120) {
                        let expected = read(&text[..end], &mut KnownHead::default());
                        assert_eq!(
                            read(&text[..end], &mut known),
                            expected,
                            "{:?}",
                            &text[..end]
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn learns_lines_that_repeat_but_no_cookies() {
        let text = "HTTP/1.1 200 OK\r\nServer: a\r\nSet-Cookie: secret\r\n\r\n";
        let mut known = KnownHead::default();
        read(text, &mut known);
        assert!(!format!("{known:?}").contains("server"));
        read(text, &mut known);
        let learned = format!("{known:?}");
        assert!(learned.contains("server"), "{learned}");
        assert!(!learned.contains("secret"), "{learned}");
    }

    #[test]
    fn reads_status_headers_and_reason() {
        let head = head("HTTP/1.1 299 Odd\r\nA: 1\r\na: 2\r\nContent-Length: 3\r\n\r\n").unwrap();
        let response = head.response;
        assert_eq!(response.status(), 299);
        let values: Vec<_> = response.headers().get_all("a").iter().collect();
        assert_eq!(values, ["1", "2"]);
        let reason = response.extensions().get::<ReasonPhrase>().unwrap();
        assert_eq!(reason.as_bytes(), b"Odd");
        assert_eq!(head.body, BodyDecoder::Length(3));
        assert!(head.is_kept_alive);
    }

    #[test]
    fn takes_the_head_off_and_waits_for_all_of_it() {
        let text = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        for end in 0..text.len() - 2 {
            let mut bytes = Bytes::copy_from_slice(&text.as_bytes()[..end]);
            let parsed = parse(&mut bytes, &mut KnownHead::default());
            assert!(matches!(parsed, Ok(Parsed::Partial)), "{end}");
            assert_eq!(bytes.len(), end);
        }
        let mut bytes = Bytes::from(text);
        let parsed = parse(&mut bytes, &mut KnownHead::default());
        assert!(matches!(parsed, Ok(Parsed::Head(_))));
        assert_eq!(bytes, "ok");
        let mut bytes = Bytes::from("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP");
        let parsed = parse(&mut bytes, &mut KnownHead::default());
        assert!(matches!(parsed, Ok(Parsed::Informational)));
        assert_eq!(bytes, "HTTP");
    }

    #[test]
    fn frames_bodies_as_the_standard_says() {
        let check = |method, lines: &str, expected: Option<(BodyDecoder, bool)>| {
            let head = head_of(method, &format!("HTTP/1.{lines}\r\n\r\n"));
            let found = head.ok().map(|head| (head.body, head.is_kept_alive));
            assert_eq!(found, expected, "{method} {lines}");
        };
        let length = |length, is_kept_alive| Some((BodyDecoder::Length(length), is_kept_alive));
        let chunked = || BodyDecoder::Chunked(Box::default());
        check("GET", "1 200 OK\r\ncontent-length: 5", length(5, true));
        check("HEAD", "1 200 OK\r\ncontent-length: 5", length(0, true));
        check("GET", "1 304 x\r\ncontent-length: 5", length(0, true));
        check("GET", "1 204 x", length(0, true));
        check("GET", "1 101 x\r\nupgrade: x", length(0, false));
        check("GET", "1 200 OK", Some((BodyDecoder::UntilClose, false)));
        check(
            "GET",
            "1 200 OK\r\ncontent-length: 5, 5\r\ncontent-length: 5",
            length(5, true),
        );
        for bad in ["", "+5", "-1", "0x5", "5 6", "5,6", "99999999999999999999"] {
            check("GET", &format!("1 200 OK\r\ncontent-length: {bad}"), None);
        }
        check(
            "GET",
            "1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6",
            None,
        );
        check(
            "GET",
            "1 200 OK\r\ntransfer-encoding: Chunked",
            Some((chunked(), true)),
        );
        for encodings in [
            "gzip",
            "gzip, chunked",
            "chunked, chunked",
            "chunked;x=y",
            "chunked\r\ntransfer-encoding: chunked",
            "chunked\r\ntransfer-encoding: gzip",
            "",
        ] {
            check(
                "GET",
                &format!("1 200 OK\r\ntransfer-encoding: {encodings}"),
                None,
            );
        }
        check("GET", "1 204 x\r\ncontent-length: 5", length(0, false));
        check("GET", "1 204 x\r\ncontent-length: 0", length(0, true));
        check(
            "GET",
            "1 204 x\r\ntransfer-encoding: chunked",
            length(0, false),
        );
        check("GET", "0 200 OK\r\ntransfer-encoding: chunked", None);
        let both = "1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked";
        check("GET", both, Some((chunked(), false)));
        let head = head(&format!("HTTP/1.{both}\r\n\r\n")).unwrap();
        assert!(!head.response.headers().contains_key("content-length"));
    }

    #[test]
    fn passes_on_a_repeated_length_once() {
        for lines in [
            "content-length: 5, 5",
            "content-length: 5\r\ncontent-length: 5",
        ] {
            let head = head(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n")).unwrap();
            let values = head.response.headers().get_all("content-length");
            assert_eq!(values.iter().collect::<Vec<_>>(), ["5"], "{lines}");
        }
    }

    #[test]
    fn keeps_connections_alive_as_the_standard_says() {
        let check = |lines: &str, expected| {
            let head = head(&format!("HTTP/1.{lines}\r\ncontent-length: 0\r\n\r\n"));
            assert_eq!(head.unwrap().is_kept_alive, expected, "{lines}");
        };
        check("1 200 OK", true);
        check("1 200 OK\r\nconnection: x, Close", false);
        check(
            "1 200 OK\r\nconnection: close\r\nconnection: keep-alive",
            false,
        );
        check("0 200 OK", false);
        check("0 200 OK\r\nconnection: Keep-Alive", true);
        check("0 200 OK\r\nconnection: keep-alive, close", false);
    }

    #[test]
    fn refuses_what_is_no_response() {
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101));
        for text in [
            "GET / HTTP/1.1\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.1 20x OK\r\n\r\n",
            "HTTP/1.1 099 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\na b: c\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n",
            "HTTP/1.1 200 OK\r\na : b\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: \x01\r\n\r\n",
            &many,
        ] {
            assert!(head(text).is_err(), "{text:?}");
        }
    }
}
