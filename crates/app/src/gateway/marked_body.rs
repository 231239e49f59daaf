//! The body of a response, as hyper gets it: it keeps its request marked as served, and bounds what a
//! client that does not read costs.
//!
//! Over HTTP/1 hyper gets another piece only when the socket has taken most of the last. Over HTTP/2
//! each stream has a window of its own, and hyper does not ask for a piece while that is closed. A
//! client that never opens it would keep a place in flight and a connection to the upstream for ever,
//! so the connection ends such bodies from outside. hyper keeps the stream with the piece that it has;
//! only the end of the connection frees that.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::body::ServedBody;
use super::connection::Serving;
use crate::exchange::BodyError;

/// A response's body that keeps its request marked as served.
#[derive(Debug)]
pub(super) struct MarkedBody {
    body: Passing,
    serving: Serving,
}

#[derive(Debug)]
enum Passing {
    /// Over HTTP/1, or without more than one piece.
    Direct(ServedBody),
    /// Over HTTP/2.
    Stream(Arc<StreamBody>),
}

/// The body of a response over HTTP/2, which its connection can end.
#[derive(Debug)]
pub(super) struct StreamBody(Mutex<StreamState>);

#[derive(Debug)]
struct StreamState {
    /// `None` once it was ended.
    body: Option<ServedBody>,
    /// Since when hyper has a piece and wants no other.
    taken: Option<Instant>,
}

impl MarkedBody {
    /// The body of a response over this version of HTTP.
    pub(super) fn new(body: ServedBody, serving: Serving, version: Version) -> Self {
        let body = match version < Version::HTTP_2 || body.is_end_stream() {
            true => Passing::Direct(body),
            false => {
                let taken = Some(Instant::now());
                let body = Some(body);
                let stream = Arc::new(StreamBody(Mutex::new(StreamState { body, taken })));
                serving.add_stream(&stream);
                Passing::Stream(stream)
            }
        };
        Self { body, serving }
    }
}

impl StreamBody {
    /// Ends the body if its client has read nothing for so long. Returns whether it has read nothing for
    /// twice as long, so that the stream stays although its body was ended.
    pub(super) fn end_if_stalled(&self, longest: Duration) -> bool {
        let mut state = self.lock();
        let Some(pause) = state.taken.map(|since| since.elapsed()) else {
            return false;
        };
        if pause >= longest {
            state.body = None;
        }
        pause >= 2 * longest
    }

    fn poll_frame(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.lock();
        state.taken = None;
        let Some(body) = &mut state.body else {
            return Poll::Ready(Some(Err(BodyError::Silent)));
        };
        let frame = ready!(Pin::new(body).poll_frame(context));
        state.taken = frame.is_some().then(Instant::now);
        Poll::Ready(frame)
    }

    fn lock(&self) -> MutexGuard<'_, StreamState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body for MarkedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let body = match &mut this.body {
            Passing::Direct(body) => body,
            Passing::Stream(stream) => return stream.poll_frame(context),
        };
        ready!(this.serving.poll_room(context));
        let frame = Pin::new(body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.serving.count(data.len());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Passing::Direct(body) => body.is_end_stream(),
            Passing::Stream(stream) => {
                let state = stream.lock();
                state.body.as_ref().is_some_and(Body::is_end_stream)
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Passing::Direct(body) => body.size_hint(),
            Passing::Stream(stream) => {
                let state = stream.lock();
                state
                    .body
                    .as_ref()
                    .map_or_else(SizeHint::default, Body::size_hint)
            }
        }
    }
}
