//! The body of a response, which returns its connection when it is over.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::destination::WorkerConnections;
use super::fields;
use super::http1::Http1Connection;
use super::http2::StreamPlace;
use super::upgrade::Tunnel;

/// The body of a response.
///
/// When it was read to its end, the connection is returned for the next request; if it is dropped
/// before, the connection is closed, and the server stops sending.
#[derive(Debug)]
pub struct UpstreamBody {
    /// What was read ahead, see [`UpstreamBody::read_beginning`].
    beginning: Option<Bytes>,
    /// How it ended, if it did while the beginning was read. Boxed, for it is rare and large.
    end: Option<Box<Result<HeaderMap, BodyError>>>,
    /// `None` when it is over.
    rest: Option<BodySource>,
    idle: Duration,
    silence: Option<Pin<Box<Sleep>>>,
}

/// The beginning of a response comes with its head, or soon after.
const MAX_READ_AHEAD: Duration = Duration::from_secs(5);

/// Where a body comes from.
#[derive(Debug)]
pub(super) enum BodySource {
    /// A connection in use.
    Http1 {
        connection: Box<Http1Connection>,
        /// Where it is returned to; `None` if it is not used again.
        owner: Option<Arc<WorkerConnections>>,
    },
    /// One of many streams on a connection.
    Http2 { body: Incoming, _place: StreamPlace },
    /// The response has none, and its connection is for another protocol.
    Tunnel(Box<Tunnel>),
}

const RESET: &str = "the server reset the stream before the response was complete";

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The connection broke.
    #[error("the response broke off")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
    /// Nothing came for too long.
    #[error("the response paused for too long")]
    Silent,
}

impl BodySource {
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self {
            Self::Http1 { connection, .. } => {
                let frame = ready!(connection.poll_frame(context));
                Poll::Ready(
                    frame.map(|frame| frame.map_err(|error| BodyError::Broken(error.into()))),
                )
            }
            Self::Http2 { body, .. } => {
                let frame = ready!(Pin::new(&mut *body).poll_frame(context));
                Poll::Ready(match frame {
                    Some(frame) => Some(frame.map_err(|error| BodyError::Broken(error.into()))),
                    // hyper takes a reset without an error, and one that cancels, for an end.
                    None if !body.is_end_stream() => Some(Err(BodyError::Broken(RESET.into()))),
                    None => None,
                })
            }
            Self::Tunnel(_) => Poll::Ready(None),
        }
    }

    /// A tunnel lasts until it is taken.
    fn has_ended(&self) -> bool {
        match self {
            Self::Http1 { connection, .. } => connection.has_ended(),
            Self::Http2 { body, .. } => body.is_end_stream(),
            Self::Tunnel(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1 { connection, .. } => match connection.body_length() {
                Some(length) => SizeHint::with_exact(length),
                None => SizeHint::default(),
            },
            Self::Http2 { body, .. } => body.size_hint(),
            Self::Tunnel(_) => SizeHint::with_exact(0),
        }
    }
}

impl UpstreamBody {
    pub(super) fn new(rest: BodySource, idle: Duration) -> Self {
        let mut body = Self {
            beginning: None,
            end: None,
            rest: Some(rest),
            idle,
            silence: None,
        };
        body.note_end();
        body
    }

    /// The connection of a response that switches to another protocol; how long it may be silent.
    pub(crate) fn into_tunnel(self) -> Option<(Box<Tunnel>, Duration)> {
        match self.rest {
            Some(BodySource::Tunnel(tunnel)) => Some((tunnel, self.idle)),
            _ => None,
        }
    }

    /// Reads up to `most` bytes, or to the end, and keeps them: the body still begins with them, and
    /// ends as it ended. What does not come within 5 s is not waited for.
    pub async fn read_beginning(&mut self, most: usize) -> &[u8] {
        let mut read = self
            .beginning
            .take()
            .map_or_else(BytesMut::new, BytesMut::from);
        let mut late = None;
        while read.len() < most {
            let frame = poll_fn(|context| self.poll_until(&mut late, context)).await;
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => read.extend_from_slice(&data),
                Some(Ok(Err(frame))) => {
                    self.end = frame.into_trailers().ok().map(|end| Box::new(Ok(end)))
                }
                Some(Err(error)) => {
                    self.end = Some(Box::new(Err(error)));
                    break;
                }
                None => break,
            }
        }
        self.beginning = (!read.is_empty()).then(|| read.freeze());
        self.beginning()
    }

    /// What was read of it ahead.
    pub fn beginning(&self) -> &[u8] {
        self.beginning.as_deref().unwrap_or_default()
    }

    /// The next piece; `None` at the end, or when it is `late`.
    fn poll_until(
        &mut self,
        late: &mut Option<Pin<Box<Sleep>>>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.poll_rest(context) {
            Poll::Ready(frame) => Poll::Ready(frame),
            Poll::Pending => {
                let late = late.get_or_insert_with(|| Box::pin(sleep(MAX_READ_AHEAD)));
                late.as_mut().poll(context).map(|()| None)
            }
        }
    }

    fn poll_rest(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(rest) = &mut self.rest else {
            return Poll::Ready(None);
        };
        match rest.poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let frame = match frame.is_trailers() {
                    true => clean(frame),
                    false => frame,
                };
                // Made for the first pause; short responses have none.
                if let Some(silence) = &mut self.silence {
                    silence.as_mut().reset(Instant::now() + self.idle);
                }
                self.note_end();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                self.rest = None;
                Poll::Ready(Some(Err(error)))
            }
            Poll::Ready(None) => {
                self.return_connection();
                Poll::Ready(None)
            }
            Poll::Pending => {
                let idle = self.idle;
                let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(idle)));
                ready!(silence.as_mut().poll(context));
                self.rest = None;
                Poll::Ready(Some(Err(BodyError::Silent)))
            }
        }
    }

    /// A body whose length is known is over with its last piece, without another poll.
    fn note_end(&mut self) {
        if self.rest.as_ref().is_some_and(BodySource::has_ended) {
            self.return_connection();
        }
    }

    fn return_connection(&mut self) {
        self.silence = None;
        match self.rest.take() {
            Some(BodySource::Http1 {
                connection,
                owner: Some(owner),
            }) => owner.put(connection, self.idle),
            Some(BodySource::Http1 {
                connection,
                owner: None,
            }) => connection.finish(),
            Some(BodySource::Http2 { .. } | BodySource::Tunnel(_)) | None => {}
        }
    }
}

/// Takes away what is not for the client.
fn clean(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(trailers) => Frame::trailers(fields::clean_response_trailers(trailers)),
        Err(data) => data,
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(beginning) = self.beginning.take() {
            return Poll::Ready(Some(Ok(Frame::data(beginning))));
        }
        if let Some(end) = self.end.take() {
            return Poll::Ready(Some(end.map(Frame::trailers)));
        }
        self.poll_rest(context)
    }

    fn is_end_stream(&self) -> bool {
        let is_read = self.beginning.is_none() && self.end.is_none();
        is_read && self.rest.as_ref().is_none_or(BodySource::has_ended)
    }

    fn size_hint(&self) -> SizeHint {
        let beginning = self
            .beginning
            .as_ref()
            .map_or(0, |bytes| bytes.len() as u64);
        let rest = self
            .rest
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), BodySource::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(beginning));
        // Trailers need chunked encoding, and a body that broke off has no known length.
        if let (Some(upper), None) = (rest.upper(), &self.end) {
            hint.set_upper(upper.saturating_add(beginning));
        }
        hint
    }
}
