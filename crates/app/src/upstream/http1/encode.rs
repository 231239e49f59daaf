//! Writes requests: heads, and bodies as they come, by length or in chunks.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{HeaderMap, HeaderName, Method, Request, header};
use hyper::body::Body;
use tokio::io::AsyncWrite;

use super::super::proxy::AbsoluteForm;
use super::super::request_body::RequestBody;
use super::Http1Error;
use crate::http1::{
    WriteBuffer, put_chunk_size, put_header, put_last_chunk, put_length, trailer_names,
};

/// Writes one request after the other.
#[derive(Debug, Default)]
pub(super) struct RequestWriter {
    buffer: WriteBuffer,
    body: Option<RequestBody>,
    framing: Framing,
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

impl RequestWriter {
    /// Begins with a request, in `form` if the other side is a proxy. Returns its headers, for their
    /// memory.
    pub(super) fn begin(
        &mut self,
        request: Request<RequestBody>,
        form: Option<&AbsoluteForm>,
    ) -> HeaderMap {
        let (mut head, body) = request.into_parts();
        self.buffer.begin();
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
        let text = self.buffer.text();
        for part in [
            head.method.as_str(),
            " ",
            origin,
            root,
            path,
            " HTTP/1.1\r\n",
        ] {
            text.extend_from_slice(part.as_bytes());
        }
        if let Some(authorization) = form.and_then(|form| form.authorization.as_ref()) {
            let name = header::PROXY_AUTHORIZATION;
            put_header(text, &name, authorization.as_bytes());
        }
        let mut has_length = expects_body(&head.method);
        for (name, value) in &head.headers {
            // The framing is ours: two servers must not read a request differently.
            let is_length = name == header::CONTENT_LENGTH;
            has_length |= is_length;
            if !is_length && name != header::TRANSFER_ENCODING {
                put_header(text, name, value.as_bytes());
            }
        }
        match &self.framing {
            Framing::Length(0) if !has_length => {}
            Framing::Length(length) => put_length(text, *length),
            Framing::Chunked(_) => text.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        }
        text.extend_from_slice(b"\r\n");
        self.body = (!body.is_end_stream()).then_some(body);
        head.headers.clear();
        head.headers
    }

    /// Was all of the request written?
    pub(super) fn is_done(&self) -> bool {
        self.body.is_none() && self.buffer.is_empty()
    }

    /// Was any byte of the request written?
    pub(super) fn has_written(&self) -> bool {
        self.buffer.has_written()
    }

    /// Gives up: nothing more of the request is written.
    pub(super) fn abandon(&mut self) {
        self.body = None;
        self.buffer.clear();
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
            ready!(self.buffer.poll_write(io, context)).map_err(Http1Error::Io)?;
            if !ready!(staged) {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Takes the next piece of the body, if there is no other to be written. `false` if there are no
    /// more.
    fn poll_stage(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, Http1Error>> {
        if self.buffer.is_full() {
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
                self.buffer.push(piece, b"");
                // A body of known length is not polled behind its end.
                if rest == 0 {
                    self.body = None;
                }
            }
            // An empty chunk is the last.
            (Ok(piece), Framing::Chunked(_)) if piece.is_empty() => {}
            (Ok(piece), Framing::Chunked(_)) => {
                put_chunk_size(self.buffer.text(), piece.len());
                self.buffer.push(piece, b"\r\n");
            }
            (Err(_), Framing::Length(0)) => self.body = None,
            (Err(_), Framing::Length(_)) => return Poll::Ready(Err(Http1Error::RequestBody)),
            (Err(trailers), Framing::Chunked(names)) => {
                put_last_chunk(self.buffer.text(), names, trailers);
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
