//! Writes requests: heads, and bodies as they come, by length or in chunks.

use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, Method, Request, header};
use hyper::body::{Body, Frame};
use tokio::io::AsyncWrite;

use super::super::proxy::AbsoluteForm;
use super::super::request_body::RequestBody;
use super::Http1Error;

/// Writes one request after the other.
#[derive(Debug, Default)]
pub(super) struct RequestWriter {
    /// What is to be written first: a head, or the size of a chunk. Its memory is used for each.
    before: Vec<u8>,
    /// How much of it is written.
    written: usize,
    /// What is to be written next: a piece of the body.
    piece: Bytes,
    /// What follows that: the end of a chunk.
    after: &'static [u8],
    body: Option<RequestBody>,
    framing: Framing,
    has_written: bool,
}

#[derive(Debug)]
enum Framing {
    /// So many bytes are to come.
    Length(u64),
    /// In chunks, and then these trailers.
    Chunked(Vec<HeaderName>),
}

impl Default for Framing {
    fn default() -> Self {
        Self::Length(0)
    }
}

/// Memory for heads that a connection holds between requests. Most are shorter.
const MAX_KEPT: usize = 1024;

impl RequestWriter {
    /// Begins with a request, in `form` if the other side is a proxy. Returns its headers, for their
    /// memory.
    pub(super) fn begin(
        &mut self,
        request: Request<RequestBody>,
        form: Option<&AbsoluteForm>,
    ) -> HeaderMap {
        let (mut head, body) = request.into_parts();
        self.abandon();
        self.before.shrink_to(MAX_KEPT);
        self.has_written = false;
        self.framing = match body.is_end_stream() {
            true => Framing::Length(0),
            false => match body.size_hint().exact() {
                Some(length) => Framing::Length(length),
                None => Framing::Chunked(trailer_names(&head.headers)),
            },
        };
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let root = match path.starts_with(['/', '*']) {
            true => "",
            false => "/",
        };
        let (origin, path) = match form {
            None => ("", path),
            // In this form the server itself, and none of its paths, is the bare address.
            Some(form) => (&*form.origin, if path == "*" { "" } else { path }),
        };
        put(
            &mut self.before,
            &[
                head.method.as_str(),
                " ",
                origin,
                root,
                path,
                " HTTP/1.1\r\n",
            ],
        );
        if let Some(authorization) = form.and_then(|form| form.authorization.as_ref()) {
            let name = header::PROXY_AUTHORIZATION;
            put_header(&mut self.before, &name, authorization.as_bytes());
        }
        let mut has_length = expects_body(&head.method);
        for (name, value) in &head.headers {
            // The framing is ours: two servers must not read a request differently.
            let is_length = name == header::CONTENT_LENGTH;
            has_length |= is_length;
            if !is_length && name != header::TRANSFER_ENCODING {
                put_header(&mut self.before, name, value.as_bytes());
            }
        }
        // Writing into memory cannot fail.
        _ = match &self.framing {
            Framing::Length(0) if !has_length => write!(self.before, "\r\n"),
            Framing::Length(length) => write!(self.before, "content-length: {length}\r\n\r\n"),
            Framing::Chunked(_) => write!(self.before, "transfer-encoding: chunked\r\n\r\n"),
        };
        self.body = (!body.is_end_stream()).then_some(body);
        head.headers.clear();
        head.headers
    }

    /// Was all of the request written?
    pub(super) fn is_done(&self) -> bool {
        self.body.is_none() && !self.has_output()
    }

    /// Was any byte of the request written?
    pub(super) fn has_written(&self) -> bool {
        self.has_written
    }

    /// Gives up: nothing more of the request is written.
    pub(super) fn abandon(&mut self) {
        self.body = None;
        self.before.clear();
        (self.written, self.piece, self.after) = (0, Bytes::new(), b"");
    }

    /// Writes what there is. Ready when all of the request is written.
    pub(super) fn poll_write<T: AsyncWrite + Unpin + ?Sized>(
        &mut self,
        io: &mut T,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Http1Error>> {
        loop {
            // Before the head is written: a short body goes out with it.
            let staged = self.poll_stage(context)?;
            while self.has_output() {
                let slices = [
                    IoSlice::new(&self.before[self.written..]),
                    IoSlice::new(&self.piece),
                    IoSlice::new(self.after),
                ];
                let used = if self.piece.is_empty() { 1 } else { 3 };
                let writing = Pin::new(&mut *io).poll_write_vectored(context, &slices[..used]);
                let length = ready!(writing).map_err(Http1Error::Io)?;
                if length == 0 {
                    return Poll::Ready(Err(Http1Error::Io(io::ErrorKind::WriteZero.into())));
                }
                self.advance(length);
            }
            match staged {
                Poll::Ready(true) => {}
                Poll::Ready(false) => {
                    return Pin::new(io).poll_flush(context).map_err(Http1Error::Io);
                }
                Poll::Pending => {
                    ready!(Pin::new(io).poll_flush(context)).map_err(Http1Error::Io)?;
                    return Poll::Pending;
                }
            }
        }
    }

    fn has_output(&self) -> bool {
        self.written < self.before.len() || !self.piece.is_empty() || !self.after.is_empty()
    }

    fn advance(&mut self, length: usize) {
        self.has_written = true;
        let of_before = length.min(self.before.len() - self.written);
        self.written += of_before;
        let of_piece = (length - of_before).min(self.piece.len());
        self.piece.advance(of_piece);
        self.after = &self.after[length - of_before - of_piece..];
        if self.written == self.before.len() {
            self.before.clear();
            self.written = 0;
        }
    }

    /// Takes the next piece of the body, if there is no other to be written. `false` if there are no
    /// more.
    fn poll_stage(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, Http1Error>> {
        if !self.piece.is_empty() || !self.after.is_empty() {
            return Poll::Ready(Ok(true));
        }
        let Some(body) = &mut self.body else {
            return Poll::Ready(Ok(false));
        };
        let frame = match ready!(Pin::new(body).poll_frame(context)) {
            Some(frame) => Some(frame.map_err(|_| Http1Error::RequestBody)?),
            None => None,
        };
        let piece = frame.map_or_else(|| Err(None), |frame| frame.into_data().map_err(Some));
        match (piece, &mut self.framing) {
            (Ok(piece), Framing::Length(left)) => {
                // As much as was announced: the rest would be taken for another request.
                let Some(rest) = left.checked_sub(piece.len() as u64) else {
                    return Poll::Ready(Err(Http1Error::RequestBody));
                };
                *left = rest;
                self.piece = piece;
                // A body of known length is not polled behind its end.
                if rest == 0 {
                    self.body = None;
                }
            }
            // An empty chunk is the last.
            (Ok(piece), Framing::Chunked(_)) if piece.is_empty() => {}
            (Ok(piece), Framing::Chunked(_)) => {
                _ = write!(self.before, "{:x}\r\n", piece.len());
                self.piece = piece;
                self.after = b"\r\n";
            }
            (Err(_), Framing::Length(0)) => self.body = None,
            (Err(_), Framing::Length(_)) => return Poll::Ready(Err(Http1Error::RequestBody)),
            (Err(trailers), Framing::Chunked(names)) => {
                self.before.extend_from_slice(b"0\r\n");
                put_trailers(&mut self.before, names, trailers);
                self.before.extend_from_slice(b"\r\n");
                self.body = None;
            }
        }
        Poll::Ready(Ok(true))
    }
}

/// Do servers expect a body with it, so that some refuse a request that does not say it has none?
fn expects_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

/// The trailers that a request announces. Others are not sent: a server that was not told of them
/// may take them for headers.
fn trailer_names(headers: &HeaderMap) -> Vec<HeaderName> {
    let announced = headers.get_all(header::TRAILER).iter();
    let announced = announced.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let names = announced.map(|name| HeaderName::from_bytes(name.trim_ascii()));
    names.flatten().collect()
}

fn put_trailers(buffer: &mut Vec<u8>, names: &[HeaderName], frame: Option<Frame<Bytes>>) {
    let Some(Ok(trailers)) = frame.map(Frame::into_trailers) else {
        return;
    };
    for (name, value) in &trailers {
        if names.contains(name) {
            put_header(buffer, name, value.as_bytes());
        }
    }
}

fn put_header(buffer: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    put(buffer, &[name.as_str(), ": "]);
    buffer.extend_from_slice(value);
    buffer.extend_from_slice(b"\r\n");
}

fn put(buffer: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        buffer.extend_from_slice(part.as_bytes());
    }
}
