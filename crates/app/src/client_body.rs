//! The body of a client's request, as its connection delivers it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::http1::Http1Body;

/// The body of a request.
#[derive(Debug)]
pub(crate) enum ClientBody {
    /// There is none.
    None,
    /// Over HTTP/1.1: read from the connection when it is asked for.
    Http1(Http1Body),
    /// Over HTTP/2.
    Http2(Incoming),
}

/// Why a body has no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClientBodyError {
    /// It is not framed as its head says.
    #[error("the body of the request is malformed")]
    Malformed,
    /// The client disconnected.
    #[error("the body of the request broke off")]
    Broken,
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = ClientBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        match self.get_mut() {
            Self::None => Poll::Ready(None),
            Self::Http1(body) => body.poll_frame(context),
            Self::Http2(body) => {
                let frame = ready!(Pin::new(body).poll_frame(context));
                // hyper reads frames: what it cannot read ends the connection.
                Poll::Ready(frame.map(|frame| frame.map_err(|_| ClientBodyError::Broken)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::None => true,
            Self::Http1(body) => body.has_ended(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::None => SizeHint::with_exact(0),
            Self::Http1(body) => body
                .length()
                .map_or_else(SizeHint::new, SizeHint::with_exact),
            Self::Http2(body) => body.size_hint(),
        }
    }
}
