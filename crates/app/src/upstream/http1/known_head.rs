//! The lines of heads that a server repeats.
//!
//! Most headers of a server are the same in every response. To check their bytes and to copy them took
//! a tenth of the instructions of a short request. A line that is the same byte for byte has the same
//! name and value, so those of the last time are used. What is known was read by `httparse` before, and
//! what is not known is read by it now: there is no second opinion about the syntax.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use httparse::Header;

use super::decode::InvalidResponse;

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
}

/// More headers than most servers send, and longer than most lines are: a connection holds less than
/// 10 KiB of them.
const MAX_LINES: usize = 24;
const MAX_TEXT: usize = 128;

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
    ) -> Result<(HeaderName, HeaderValue), InvalidResponse> {
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
        if known.is_repeated
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
        if is_first || !self.status_line.is_empty() {
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
) -> Result<(HeaderName, HeaderValue), InvalidResponse> {
    let name = HeaderName::from_bytes(field.name.as_bytes());
    let name = name.map_err(|_| InvalidResponse("the name of a header"))?;
    Ok((name, read_value(bytes, field)?))
}

fn read_value(bytes: &Bytes, field: &Header<'_>) -> Result<HeaderValue, InvalidResponse> {
    let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value));
    value.map_err(|_| InvalidResponse("the value of a header"))
}
