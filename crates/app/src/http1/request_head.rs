//! Reads the heads of requests. It sees bytes as they arrive and does no IO.
//!
//! Two servers may disagree about where a request ends whose framing contradicts itself or can be read
//! in two ways, which is how requests are smuggled. Such a request is refused: one with a
//! `Content-Length` next to a `Transfer-Encoding`, with more than one of either, with a length that is
//! more than digits, with any encoding but `chunked`, and with one in HTTP/1.0.

use std::mem::{self, MaybeUninit};

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header};
use httparse::{ParserConfig, Status};

use super::{BodyDecoder, MAX_HEAD, MAX_HEADERS, read_length};

/// The head of a request.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub(super) request: Request<()>,
    pub(super) body: BodyDecoder,
    /// The client sends the body when it is asked for.
    pub(super) awaits_continue: bool,
    pub(super) terms: ResponseTerms,
}

/// What the response to a request depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ResponseTerms {
    pub(super) is_head: bool,
    pub(super) is_connect: bool,
    pub(super) is_http10: bool,
    /// The client may send another request on the connection.
    pub(super) is_kept_alive: bool,
    pub(super) takes_trailers: bool,
}

/// What the next bytes of a connection are.
#[derive(Debug)]
pub(super) enum HeadRead {
    /// A head, which was taken off the bytes. It waits to be taken: it is large, and would be copied.
    Head,
    /// The beginning of HTTP/2, which was left in the bytes.
    Http2,
    /// The beginning of a head, or nothing, which was taken off the bytes.
    Partial,
}

/// Why bytes are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// They are not HTTP, or their framing is ambiguous.
    Malformed,
    /// The head is longer than is read.
    TooLarge,
}

/// Reads one head after the other.
#[derive(Debug, Default)]
pub(super) struct RequestReader {
    /// The beginning of a head.
    partial: Vec<u8>,
    /// How many came before the head.
    empty_lines: u8,
    /// HTTP/2 begins with its first bytes, if at all.
    is_http1: bool,
    /// A head that was read.
    head: Option<RequestHead>,
    /// Memory for the headers of the next request.
    headers: HeaderMap,
}

/// Clients may send some between requests. Without a bound they would be a request without end.
const MAX_EMPTY_LINES: u8 = 100;

/// The longest that `http` takes.
const MAX_URI: usize = 65_534;

/// What a client of HTTP/2 sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

impl RequestReader {
    /// Takes a head off the bytes, with what is left from before.
    pub(super) fn read(&mut self, bytes: &mut Bytes) -> Result<HeadRead, Refusal> {
        if !self.partial.is_empty() {
            self.partial.extend_from_slice(bytes);
            // A head that comes byte by byte is not parsed for each.
            if memchr::memchr(b'\n', bytes).is_none() && self.partial.len() <= MAX_HEAD {
                bytes.clear();
                return Ok(HeadRead::Partial);
            }
            *bytes = mem::take(&mut self.partial).into();
        }
        if !self.is_http1 {
            if bytes.starts_with(PREFACE) {
                return Ok(HeadRead::Http2);
            }
            if PREFACE.starts_with(bytes) {
                return Ok(self.keep(bytes));
            }
            self.is_http1 = true;
        }
        self.skip_empty_lines(bytes)?;
        match self.read_head(bytes)? {
            Status::Complete(length) => {
                bytes.advance(length);
                self.empty_lines = 0;
                Ok(HeadRead::Head)
            }
            Status::Partial if bytes.len() > MAX_HEAD => Err(Refusal::TooLarge),
            Status::Partial => Ok(self.keep(bytes)),
        }
    }

    /// The head that was read last.
    pub(super) fn take_head(&mut self) -> Option<RequestHead> {
        self.head.take()
    }

    /// Has the beginning of a head come?
    pub(super) fn has_part(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Memory for the headers of the next request.
    pub(super) fn reuse(&mut self, mut headers: HeaderMap) {
        // More than requests have must not be kept because one response had it.
        if headers.capacity() <= 2 * MAX_HEADERS {
            headers.clear();
            self.headers = headers;
        }
    }

    fn keep(&mut self, bytes: &mut Bytes) -> HeadRead {
        self.partial = mem::take(bytes).into();
        HeadRead::Partial
    }

    fn skip_empty_lines(&mut self, bytes: &mut Bytes) -> Result<(), Refusal> {
        loop {
            let length = match bytes[..] {
                [b'\n', ..] => 1,
                [b'\r', b'\n', ..] => 2,
                _ => return Ok(()),
            };
            bytes.advance(length);
            self.empty_lines += 1;
            if self.empty_lines > MAX_EMPTY_LINES {
                return Err(Refusal::Malformed);
            }
        }
    }

    /// Reads a head, if it is whole. Returns its length.
    fn read_head(&mut self, bytes: &Bytes) -> Result<Status<usize>, Refusal> {
        let mut space = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut head = httparse::Request::new(&mut []);
        let config = ParserConfig::default();
        let parsed = config.parse_request_with_uninit_headers(&mut head, bytes, &mut space);
        let length = match parsed {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) => return Ok(Status::Partial),
            Err(httparse::Error::TooManyHeaders) => return Err(Refusal::TooLarge),
            Err(_) => return Err(Refusal::Malformed),
        };
        let (method, path) = (head.method.unwrap_or(""), head.path.unwrap_or(""));
        if path.len() > MAX_URI {
            return Err(Refusal::TooLarge);
        }
        let method = Method::from_bytes(method.as_bytes()).map_err(malformed)?;
        let uri = bytes.slice_ref(path.as_bytes());
        let uri = Uri::from_maybe_shared(uri).map_err(malformed)?;
        let mut request = Request::new(());
        let mut fields = RequestFields::default();
        let mut headers = mem::take(&mut self.headers);
        headers.reserve(head.headers.len());
        for field in &*head.headers {
            let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(malformed)?;
            let value = bytes.slice_ref(field.value);
            let value = HeaderValue::from_maybe_shared(value).map_err(malformed)?;
            fields.note(&name, &value)?;
            headers.append(name, value);
        }
        let is_http10 = head.version == Some(0);
        let body = fields.body(is_http10)?;
        let terms = ResponseTerms {
            is_head: method == Method::HEAD,
            is_connect: method == Method::CONNECT,
            is_http10,
            is_kept_alive: !fields.has_close && (!is_http10 || fields.has_keep_alive),
            takes_trailers: fields.takes_trailers,
        };
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        *request.version_mut() = match is_http10 {
            true => Version::HTTP_10,
            false => Version::HTTP_11,
        };
        self.head = Some(RequestHead {
            request,
            // A client of HTTP/1.0 does not know the answer to it.
            awaits_continue: fields.expects_continue && !is_http10 && !body.has_ended(),
            body,
            terms,
        });
        Ok(Status::Complete(length))
    }
}

fn malformed<E>(_: E) -> Refusal {
    Refusal::Malformed
}

/// What the headers of a request say about its framing and its connection.
#[derive(Debug, Default)]
struct RequestFields {
    length: Option<u64>,
    is_chunked: bool,
    has_close: bool,
    has_keep_alive: bool,
    expects_continue: bool,
    takes_trailers: bool,
}

impl RequestFields {
    fn note(&mut self, name: &HeaderName, value: &HeaderValue) -> Result<(), Refusal> {
        let has = |word: &[u8]| {
            let mut words = value.as_bytes().split(|byte| *byte == b',');
            words.any(|other| other.trim_ascii().eq_ignore_ascii_case(word))
        };
        match *name {
            header::CONTENT_LENGTH => {
                let length = read_length(value.as_bytes()).ok_or(Refusal::Malformed)?;
                if self.length.replace(length).is_some() {
                    return Err(Refusal::Malformed);
                }
            }
            header::TRANSFER_ENCODING => {
                let is_chunked = value.as_bytes().eq_ignore_ascii_case(b"chunked");
                if !is_chunked || mem::replace(&mut self.is_chunked, true) {
                    return Err(Refusal::Malformed);
                }
            }
            header::CONNECTION => {
                self.has_close |= has(b"close");
                self.has_keep_alive |= has(b"keep-alive");
            }
            header::EXPECT => self.expects_continue |= has(b"100-continue"),
            header::TE => self.takes_trailers |= has(b"trailers"),
            _ => {}
        }
        Ok(())
    }

    /// How the body is framed (RFC 9112, section 6.3).
    fn body(&self, is_http10: bool) -> Result<BodyDecoder, Refusal> {
        match (self.is_chunked, self.length) {
            (false, length) => Ok(BodyDecoder::Length(length.unwrap_or(0))),
            (true, None) if !is_http10 => Ok(BodyDecoder::Chunked(Box::default())),
            (true, _) => Err(Refusal::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::http1::Decoded;

    /// What comes of bytes: requests as text, and how it ended.
    #[derive(Debug, PartialEq, Eq)]
    struct Outcome {
        requests: Vec<String>,
        end: End,
    }

    #[derive(Debug, PartialEq, Eq)]
    enum End {
        /// The bytes end with the last request.
        Whole,
        /// There is the beginning of another.
        Part,
        /// A body is malformed.
        Body,
        Refused(Refusal),
        Http2,
    }

    /// Reads requests as a connection does.
    fn read_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
        let mut reader = RequestReader::default();
        let mut requests = Vec::new();
        let mut open: Option<(String, BodyDecoder)> = None;
        let mut pieces = pieces.into_iter();
        let mut unread = Bytes::new();
        let end = loop {
            if let Some((text, body)) = &mut open {
                match body.decode(&mut unread) {
                    Ok(Decoded::Frame(frame)) => {
                        match frame.into_data() {
                            Ok(data) => text.push_str(&String::from_utf8_lossy(&data)),
                            Err(trailers) => {
                                text.push_str(&format!("{:?}", trailers.into_trailers()))
                            }
                        }
                        continue;
                    }
                    Ok(Decoded::End) => {
                        requests.extend(open.take().map(|(text, _)| text));
                        continue;
                    }
                    Ok(Decoded::More) => {}
                    Err(_) => break End::Body,
                }
            } else if !unread.is_empty() {
                match reader.read(&mut unread) {
                    Ok(HeadRead::Head) => {
                        let head = reader.take_head().unwrap();
                        let text = format!("{:?} {:?} ", head.request, head.terms);
                        open = Some((text, head.body));
                        continue;
                    }
                    Ok(HeadRead::Partial) => assert!(unread.is_empty()),
                    Ok(HeadRead::Http2) => break End::Http2,
                    Err(refusal) => break End::Refused(refusal),
                }
            }
            match pieces.next() {
                Some(piece) => unread = Bytes::copy_from_slice(piece),
                None if open.is_none() && !reader.has_part() => break End::Whole,
                None => break End::Part,
            }
        };
        Outcome { requests, end }
    }

    /// The same in one piece, byte by byte, and in odd pieces.
    fn read(text: &str) -> Outcome {
        let [whole, bytes, odd] =
            [text.len().max(1), 1, 7].map(|size| read_pieces(text.as_bytes().chunks(size)));
        assert_eq!(whole, bytes, "{text:?}");
        assert_eq!(whole, odd, "{text:?}");
        whole
    }

    /// How many requests are read, and how it ends.
    fn check(text: &str, count: usize, end: End) {
        let outcome = read(text);
        assert_eq!(
            (outcome.requests.len(), outcome.end),
            (count, end),
            "{text:?}"
        );
    }

    const REFUSED: End = End::Refused(Refusal::Malformed);
    const CONFLICT: &str =
        "POST / HTTP/1.1\r\ncontent-length: 3\r\nTRANSFER-ENCODING: chunked\r\n\r\n";

    #[test]
    fn refuses_both_framings_in_both_orders() {
        check(CONFLICT, 0, REFUSED);
        let other = "POST / HTTP/1.1\ntransfer-encoding:chunked\nContent-Length:3\n\n";
        check(other, 0, REFUSED);
    }

    #[test]
    fn refuses_repeated_lengths_and_other_encodings() {
        for lines in [
            "content-length: 3\r\nContent-Length: 3",
            "content-length: 3, 3",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
            "transfer-encoding: gzip, chunked",
            "transfer-encoding: chunked, identity",
            "transfer-encoding: identity",
            "transfer-encoding: chunked;q=1",
            "transfer-encoding: \x0bchunked",
            "transfer-encoding:",
        ] {
            check(&format!("POST / HTTP/1.1\r\n{lines}\r\n\r\n"), 0, REFUSED);
        }
        check(
            "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n",
            0,
            REFUSED,
        );
    }

    #[test]
    fn refuses_lengths_that_are_not_digits() {
        for length in [
            "",
            "x",
            "-1",
            "+5",
            "0x5",
            "5 5",
            "5.0",
            "5,",
            "99999999999999999999",
        ] {
            check(
                &format!("POST / HTTP/1.1\r\ncontent-length: {length}\r\n\r\n"),
                0,
                REFUSED,
            );
        }
    }

    #[test]
    fn finds_conflicts_behind_bodies_of_every_kind() {
        for (before, count) in [
            ("\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n", 1),
            ("POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\na\nb\nc", 1),
            ("POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n", 1),
            (
                "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n4;x=y\r\n\r\n\r\n\r\n0\r\na: b\r\n\r\nGET / HTTP/1.1\r\n\r\n",
                2,
            ),
        ] {
            check(&format!("{before}{CONFLICT}"), count, REFUSED);
        }
    }

    #[test]
    fn reads_long_lines_in_pieces_as_in_one() {
        let (zeros, blanks) = ("0".repeat(300), " ".repeat(300));
        let head = "POST / HTTP/1.1\r\n";
        for (text, count, end) in [
            (
                format!("{head}content-length: {zeros}5\r\n\r\nhello"),
                1,
                REFUSED,
            ),
            (
                format!("{head}content-length:{blanks}5\r\n\r\nhello"),
                1,
                REFUSED,
            ),
            (
                format!("{head}transfer-encoding: chunked{blanks}x\r\n\r\n"),
                0,
                REFUSED,
            ),
            (
                format!("{head}transfer-encoding: chunked\r\n\r\n{zeros}5\r\nhello\r\n0\r\n\r\n"),
                1,
                REFUSED,
            ),
            (
                format!("{head}transfer-encoding: chunked\r\n\r\n0;{zeros}\r\n\r\n"),
                1,
                REFUSED,
            ),
            (format!("{head}x-long: {zeros}5\r\n\r\n"), 1, REFUSED),
        ] {
            check(&format!("{text}{CONFLICT}"), count, end);
        }
    }

    #[test]
    fn knows_when_bytes_end_with_a_whole_request() {
        for (text, count, end) in [
            ("", 0, End::Whole),
            ("\r\n", 0, End::Whole),
            ("G", 0, End::Part),
            ("GET / HTTP/1.1\r\n", 0, End::Part),
            ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", 1, End::Whole),
            (
                "GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
                2,
                End::Whole,
            ),
            ("GET / HTTP/1.1\r\n\r\nGET", 1, End::Part),
            (
                "POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nh",
                0,
                End::Part,
            ),
            (
                "POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nhi",
                1,
                End::Whole,
            ),
            (
                "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
                0,
                End::Part,
            ),
            (
                "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
                1,
                End::Whole,
            ),
            (
                "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
                0,
                End::Body,
            ),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, End::Http2),
            ("PRI * HTTP/2.0\r\n", 0, End::Part),
            ("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", 0, REFUSED),
            (
                "GET / HTTP/1.1\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                1,
                REFUSED,
            ),
        ] {
            check(text, count, end);
        }
    }

    #[test]
    fn finds_no_conflict_in_bodies_values_and_separate_requests() {
        for (text, count) in [
            (
                "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n13\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
                1,
            ),
            (
                "GET / HTTP/1.1\r\nx: content-length: 5\r\nx-content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
                1,
            ),
            (
                "POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nhiPOST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
                2,
            ),
        ] {
            check(text, count, End::Whole);
        }
    }

    #[test]
    fn refuses_what_is_no_head() {
        for text in [
            "GET / HTTP/1.1\r\nx-folded: a\r\n b\r\n\r\n",
            "GET / HTTP/1.1\r\nx-nul: a\0b\r\n\r\n",
            "GET / HTTP/1.1\r\ncontent-length : 5\r\n\r\n",
            "GET / HTTP/1.1\r\n: empty\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
            "GET / HTTP/1.1\r\n host: localhost\r\n\r\n",
            "GET / HTTP/1.1\r\nx: a\rb\r\n\r\n",
            "GET / y HTTP/1.1\r\n\r\n",
            "G@T / HTTP/1.1\r\n\r\n",
            "GET / HTTP/9.9\r\n\r\n",
            "GET x/y HTTP/1.1\r\n\r\n",
            "GET /\r\n\r\n",
        ] {
            check(text, 0, REFUSED);
        }
        check(&"\r\n".repeat(usize::from(MAX_EMPTY_LINES) + 1), 0, REFUSED);
    }

    #[test]
    fn refuses_heads_that_are_too_long() {
        let too_large = || End::Refused(Refusal::TooLarge);
        let many = format!(
            "GET / HTTP/1.1\r\n{}\r\n",
            "a: b\r\n".repeat(MAX_HEADERS + 1)
        );
        check(&many, 0, too_large());
        let most = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MAX_HEADERS));
        check(&most, 1, End::Whole);
        let path = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(MAX_URI));
        assert_eq!(read_pieces(path.as_bytes().chunks(4096)).end, too_large());
        for endless in [
            "a".repeat(2 * MAX_HEAD),
            format!("GET / HTTP/1.1\r\nx: {}", "a".repeat(2 * MAX_HEAD)),
        ] {
            assert_eq!(
                read_pieces(endless.as_bytes().chunks(4096)).end,
                too_large()
            );
        }
    }

    fn head(bytes: &mut Bytes) -> RequestHead {
        let mut reader = RequestReader::default();
        assert!(
            matches!(reader.read(bytes), Ok(HeadRead::Head)),
            "{bytes:?}"
        );
        reader.take_head().unwrap()
    }

    fn terms(lines: &str) -> ResponseTerms {
        let mut bytes = Bytes::from(format!("{lines}\r\n\r\n"));
        head(&mut bytes).terms
    }

    #[test]
    fn keeps_connections_alive_as_the_standard_says() {
        for (lines, expected) in [
            ("GET / HTTP/1.1", true),
            ("GET / HTTP/1.1\r\nconnection: x, Close", false),
            (
                "GET / HTTP/1.1\r\nconnection: close\r\nconnection: keep-alive",
                false,
            ),
            ("GET / HTTP/1.0", false),
            ("GET / HTTP/1.0\r\nConnection: Keep-Alive", true),
            ("GET / HTTP/1.0\r\nconnection: keep-alive, close", false),
        ] {
            assert_eq!(terms(lines).is_kept_alive, expected, "{lines:?}");
        }
    }

    #[test]
    fn notes_what_the_response_depends_on() {
        assert!(terms("HEAD / HTTP/1.1").is_head);
        assert!(terms("CONNECT a:1 HTTP/1.1").is_connect);
        assert!(terms("GET / HTTP/1.0").is_http10);
        assert!(terms("GET / HTTP/1.1\r\nTE: gzip, Trailers").takes_trailers);
        let plain = ResponseTerms {
            is_kept_alive: true,
            ..ResponseTerms::default()
        };
        assert_eq!(terms("GET / HTTP/1.1\r\nte: gzip"), plain);
    }

    #[test]
    fn a_body_is_asked_for_if_its_client_waits_for_that() {
        for (lines, expected) in [
            (
                "POST / HTTP/1.1\r\ncontent-length: 1\r\nexpect: 100-Continue",
                true,
            ),
            (
                "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\nexpect: 100-continue",
                true,
            ),
            (
                "POST / HTTP/1.1\r\ncontent-length: 0\r\nexpect: 100-continue",
                false,
            ),
            (
                "POST / HTTP/1.0\r\ncontent-length: 1\r\nexpect: 100-continue",
                false,
            ),
            (
                "POST / HTTP/1.1\r\ncontent-length: 1\r\nexpect: other",
                false,
            ),
        ] {
            let mut bytes = Bytes::from(format!("{lines}\r\n\r\n"));
            let head = head(&mut bytes);
            assert_eq!(head.awaits_continue, expected, "{lines:?}");
        }
    }

    /// A valid request, as text.
    fn request() -> impl Strategy<Value = String> {
        let head = ("[A-Z]{1,7}", "/[a-z/?=]{0,30}", "[01]");
        let lines = vec("x-[a-z]{1,9}: ?[a-z0-9:, ]{0,20}\r\n", 0..5);
        let body = prop_oneof![
            Just(None),
            vec("[a-z\r\n]{0,40}", 1..2).prop_map(|pieces| Some((false, pieces))),
            vec("[a-z\r\n]{1,40}", 0..4).prop_map(|pieces| Some((true, pieces))),
        ];
        (head, lines, body, "(\r\n){0,2}").prop_map(|((method, path, version), lines, body, end)| {
            let is_chunked = matches!(body, Some((true, _)));
            let version = if is_chunked { "1" } else { &version };
            let head = format!("{method} {path} HTTP/1.{version}\r\n{}", lines.concat());
            match body {
                None => format!("{head}\r\n{end}"),
                Some((false, pieces)) => {
                    let body = pieces.concat();
                    format!("{head}content-length: {}\r\n\r\n{body}{end}", body.len())
                }
                Some((true, pieces)) => {
                    let chunks: String = pieces
                        .iter()
                        .map(|piece| format!("{:X};a=b\r\n{piece}\r\n", piece.len()))
                        .collect();
                    format!("{head}Transfer-Encoding: Chunked\r\n\r\n{chunks}0\r\nx-t: 1\r\n\r\n{end}")
                }
            }
        })
    }

    /// Splits bytes at these places.
    fn split<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let pieces = places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
        pieces.filter(|piece| !piece.is_empty()).collect()
    }

    const HOSTILE: &[&[u8]] = &[
        b"content-length: 5\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b"0\r\n\r\n",
        b" ",
        b"\0",
        b"PRI * ",
        b"transfer-encoding: chunked\r\n",
        b"POST / HTTP/1.1\r\n",
        b"ffffffffffffffff\r\n",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn any_split_of_pipelined_requests_gives_the_same(
            requests in vec(request(), 1..5),
            cuts in vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let text = requests.concat();
            let whole = read_pieces([text.as_bytes()]);
            prop_assert_eq!(&whole.end, &End::Whole);
            prop_assert_eq!(whole.requests.len(), requests.len());
            prop_assert_eq!(read_pieces(split(text.as_bytes(), &cuts)), whole);
        }

        #[test]
        fn hostile_bytes_are_read_alike_in_any_pieces(
            pieces in vec(prop_oneof![
                vec(any::<u8>(), 0..20),
                request().prop_map(String::into_bytes),
                prop::sample::select(HOSTILE).prop_map(<[u8]>::to_vec),
            ], 0..12),
            cuts in vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let bytes = pieces.concat();
            let whole = read_pieces([&bytes[..]]);
            let split = read_pieces(split(&bytes, &cuts));
            prop_assert_eq!(&split.requests, &whole.requests);
            // What cannot become a head is found at once, or at the end of its line.
            if split.end != End::Part {
                prop_assert_eq!(split.end, whole.end);
            }
        }
    }

    #[test]
    fn an_endless_head_takes_bounded_memory() {
        for unit in ["a", "a: b\r\n", "\r\n", "GET / HTTP/1.1\r\n"] {
            let mut reader = RequestReader::default();
            let piece = Bytes::from(unit.repeat(1024));
            let mut left = 10_000;
            while let Ok(read) = reader.read(&mut piece.clone()) {
                assert!(matches!(read, HeadRead::Partial), "{unit:?}");
                assert!(reader.partial.capacity() <= 4 * MAX_HEAD, "{unit:?}");
                left -= 1;
                assert!(left > 0, "{unit:?} is never refused");
            }
        }
    }
}
