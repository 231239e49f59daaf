//! The lines of heads that a server repeats.
//!
//! Most headers of a server are the same in every response. To check their bytes and to copy them took
//! a tenth of the instructions of a short request. A line that is the same byte for byte has the same
//! name and value, so those of the last time are used. What is known was read by `httparse` before, and
//! what is not known is read by it now: there is no second opinion about the syntax.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use httparse::Header;

use crate::http1::InvalidHttp;

/// What the heads of one connection have in common.
#[derive(Debug, Default)]
pub(super) struct KnownHead {
    /// With the end of the line; empty until something is known.
    status_line: Box<[u8]>,
    status: StatusCode,
    lines: Vec<KnownLine>,
    /// There was a head before: connections for one request have nothing to learn.
    is_used: bool,
}

#[derive(Debug)]
struct KnownLine {
    /// As the server wrote it, with its end.
    text: Box<[u8]>,
    name: HeaderName,
    value: HeaderValue,
    /// It came again since it is known. A line that never does is not learned anew each time.
    is_repeated: bool,
    /// How often another came instead, which may have been chance.
    misses: u8,
}

/// More headers than most servers send, and longer than most lines are: a connection holds less than
/// 10 KiB of them.
const MAX_LINES: usize = 24;
const MAX_TEXT: usize = 128;

/// A line that has not come again is learned anew once in so many heads: a date may have changed just
/// then.
const RELEARN: u8 = 16;

impl KnownHead {
    /// The status of a head that begins with the known status line, and how long that is.
    pub(super) fn status(&self, bytes: &[u8]) -> Option<(StatusCode, usize)> {
        let is_known = !self.status_line.is_empty() && bytes.starts_with(&self.status_line);
        is_known.then_some((self.status, self.status_line.len()))
    }

    /// Takes known lines off the beginning of `lines`, and passes their headers to `add`. Returns how
    /// many there were and how long they are.
    pub(super) fn read_repeated<E>(
        &mut self,
        lines: &[u8],
        mut add: impl FnMut(HeaderName, HeaderValue) -> Result<(), E>,
    ) -> Result<(usize, usize), E> {
        let mut length = 0;
        for (number, known) in self.lines.iter_mut().enumerate() {
            if !lines[length..].starts_with(&known.text) {
                return Ok((number, length));
            }
            length += known.text.len();
            known.is_repeated = true;
            add(known.name.clone(), known.value.clone())?;
        }
        Ok((self.lines.len(), length))
    }

    /// The name and value of a header that was read from `bytes`. `next` is the number of the known line
    /// that it may be, and becomes that of the line behind it.
    pub(super) fn field(
        &mut self,
        next: &mut usize,
        bytes: &Bytes,
        field: &Header<'_>,
    ) -> Result<(HeaderName, HeaderValue), InvalidHttp> {
        let rest = self.lines.get_mut(*next..).unwrap_or_default();
        let found = rest.iter().position(|known| known.is_named(field.name));
        let Some(found) = found else {
            return read_field(bytes, field);
        };
        *next += found + 1;
        let known = &mut rest[found];
        if known.value.as_bytes() == field.value {
            known.is_repeated = true;
            return Ok((known.name.clone(), known.value.clone()));
        }
        known.misses = known.misses.wrapping_add(1);
        if (known.is_repeated || known.misses.is_multiple_of(RELEARN))
            && let Some(line) = KnownLine::new(bytes, field, &known.name)
        {
            *known = line;
            return Ok((known.name.clone(), known.value.clone()));
        }
        Ok((known.name.clone(), read_value(bytes, field)?))
    }

    /// Learns from a head, which was read from `bytes`, unless something is known or it is the first.
    pub(super) fn learn(&mut self, bytes: &Bytes, status: StatusCode, fields: &[Header<'_>]) {
        let is_first = !std::mem::replace(&mut self.is_used, true);
        // An empty line before the head, which parsers skip, is no status line.
        let begins = bytes.starts_with(b"HTTP/");
        if is_first || !begins || !self.status_line.is_empty() {
            return;
        }
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            return;
        };
        (self.status_line, self.status) = (bytes[..=end].into(), status);
        for field in fields.iter().take(MAX_LINES) {
            let name = HeaderName::from_bytes(field.name.as_bytes()).ok();
            self.lines
                .extend(name.and_then(|name| KnownLine::new(bytes, field, &name)));
        }
    }
}

impl KnownLine {
    /// `None` for a line that is too long, and for secrets of one client.
    fn new(bytes: &Bytes, field: &Header<'_>, name: &HeaderName) -> Option<Self> {
        let start = field.name.as_ptr().addr() - bytes.as_ptr().addr();
        let line = bytes.get(start..)?;
        let line = &line[..=memchr::memchr(b'\n', line)?];
        if line.len() > MAX_TEXT || *name == header::SET_COOKIE {
            return None;
        }
        Some(Self {
            text: line.into(),
            name: name.clone(),
            // A copy: the rest of what was read is not to stay in memory.
            value: HeaderValue::from_bytes(field.value).ok()?,
            is_repeated: false,
            misses: 0,
        })
    }

    fn is_named(&self, name: &str) -> bool {
        let rest = self.text.strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b":"))
    }
}

/// The name and value of a header that was read from `bytes`.
pub(super) fn read_field(
    bytes: &Bytes,
    field: &Header<'_>,
) -> Result<(HeaderName, HeaderValue), InvalidHttp> {
    let name = HeaderName::from_bytes(field.name.as_bytes());
    let name = name.map_err(|_| InvalidHttp("the name of a header"))?;
    Ok((name, read_value(bytes, field)?))
}

fn read_value(bytes: &Bytes, field: &Header<'_>) -> Result<HeaderValue, InvalidHttp> {
    let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value));
    value.map_err(|_| InvalidHttp("the value of a header"))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::super::decode::{Parsed, parse_head};
    use super::*;

    /// A head, and whether the request's method was HEAD.
    type SentHead = (Vec<u8>, bool);

    const STATUS_LINES: [&str; 8] = [
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\n",
        "HTTP/1.1 200 OKAY\r\n",
        "HTTP/1.1 204 No Content\r\n",
        "HTTP/1.1 304 Not Modified\r\n",
        "HTTP/1.0 200 OK\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n",
        "\r\nHTTP/1.1 200 OK\r\n",
    ];

    const LINES: [&str; 26] = [
        "Server: a\r\n",
        "server: a\r\n",
        "SERVER:a\r\n",
        "Server:  a \r\n",
        "Server: a\n",
        "Server : a\r\n",
        "Server: a\r\r\n",
        " a\r\n",
        "\tb\r\n",
        "\r",
        ": a\r\n",
        "Content-Length: 3\r\n",
        "Content-Length: 4\r\n",
        "content-length: 3, 3\r\n",
        "Content-Length: +3\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "transfer-encoding: Chunked\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "connection: Keep-Alive, CLOSE\r\n",
        "Set-Cookie: a=b\r\n",
        "X-Empty:\r\n",
        "X-Empty: \r\n",
        "X-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
        "X-Raw: \x7f\r\n",
    ];

    /// Heads of one connection: most lines are those of the head before.
    fn heads() -> impl Strategy<Value = Vec<SentHead>> {
        let base = (select(&STATUS_LINES[..]), vec(select(&LINES[..]), 0..6));
        let end = prop_oneof![8 => Just("\r\n"), 1 => Just("\n"), 1 => Just(""), 1 => Just("\r")];
        let edit = (any::<Index>(), select(&LINES[..]), 0..4_u8);
        let head = (
            prop::option::weighted(0.2, select(&STATUS_LINES[..])),
            prop::option::weighted(0.5, edit),
            end,
            prop::option::weighted(0.1, (any::<Index>(), any::<u8>())),
            prop::bool::weighted(0.2),
        );
        (base, vec(head, 1..12)).prop_map(|((status, lines), heads)| {
            let heads = heads.into_iter();
            heads
                .map(|(other_status, edit, end, byte, is_head)| {
                    let mut lines = lines.clone();
                    if let Some((index, line, kind)) = edit {
                        edit_lines(&mut lines, &index, line, kind);
                    }
                    let status = other_status.unwrap_or(status);
                    let mut bytes = format!("{status}{}{end}rest", lines.concat()).into_bytes();
                    if let Some((index, byte)) = byte {
                        *index.get_mut(&mut bytes) = byte;
                    }
                    (bytes, is_head)
                })
                .collect()
        })
    }

    fn edit_lines(lines: &mut Vec<&'static str>, index: &Index, line: &'static str, kind: u8) {
        let place = index.index(lines.len() + 1);
        match (kind, place < lines.len()) {
            (0, true) => lines[place] = line,
            (1, true) => _ = lines.remove(place),
            (2, true) => lines.insert(place, lines[place]),
            _ => lines.insert(place, line),
        }
    }

    /// Everything that is read of these bytes, as text: informational heads, one other, and what is left.
    fn read((bytes, is_head): &SentHead, known: &mut KnownHead) -> String {
        let mut bytes = Bytes::copy_from_slice(bytes);
        let mut text = String::new();
        loop {
            let mut headers = HeaderMap::new();
            let parsed = parse_head(&mut bytes, *is_head, &mut headers, known);
            text.push_str(&format!("{parsed:?}, then {bytes:?}\n"));
            if !matches!(parsed, Ok(Parsed::Informational)) {
                return text;
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn what_is_known_never_changes_what_is_read(heads in heads()) {
            let mut known = KnownHead::default();
            for head in &heads {
                // The first piece of it, too, as the network may deliver it.
                let half = (head.0[..head.0.len() / 2].to_vec(), head.1);
                for head in [head, &half] {
                    let alone = read(head, &mut KnownHead::default());
                    prop_assert_eq!(read(head, &mut known), &*alone, "{:?}", head);
                    // It ends its connection, and nothing is read behind it.
                    if alone.contains("Err(") {
                        known = KnownHead::default();
                    }
                }
            }
        }
    }

    fn known_after(heads: &[&str]) -> KnownHead {
        let mut known = KnownHead::default();
        for head in heads {
            read(&(head.as_bytes().to_vec(), false), &mut known);
        }
        known
    }

    #[test]
    fn holds_little_of_endless_and_ever_different_heads() {
        let mut known = KnownHead::default();
        for number in 0..1000 {
            let lines: String = (0..90)
                .map(|line| format!("x-{line}: {:0>100}\r\n", number / 3))
                .collect();
            let head = format!("HTTP/1.1 200 OK\r\n{lines}content-length: 0\r\n\r\n");
            read(&(head.into_bytes(), false), &mut known);
        }
        let texts: usize = known.lines.iter().map(|line| line.text.len()).sum();
        assert_eq!(known.lines.len(), MAX_LINES);
        assert!(texts <= MAX_LINES * MAX_TEXT, "{texts}");
        let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "a".repeat(200 << 10));
        let known = known_after(&[&long, &long, &long]);
        assert!(known.lines.is_empty());
    }

    #[test]
    fn learns_a_line_that_changed_just_after_it_was_learned() {
        let head = |date| format!("HTTP/1.1 200 OK\r\ndate: {date}\r\n\r\n");
        let mut dates = vec!["1", "2"];
        dates.extend(["3"; 3 * RELEARN as usize]);
        let heads: Vec<String> = dates.into_iter().map(head).collect();
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        assert_eq!(known_after(&heads).lines[0].value, "3");
    }

    #[test]
    fn learns_nothing_of_one_response_and_of_errors() {
        let once = known_after(&["HTTP/1.1 200 OK\r\na: b\r\n\r\n"]);
        assert!(once.status_line.is_empty() && once.lines.is_empty());
        let error = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 9\r\n\r\n";
        let errors = known_after(&[error, error, error]);
        assert!(errors.status_line.is_empty() && errors.lines.is_empty());
    }
}
