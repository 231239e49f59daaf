//! The body of an answer to a caller: the upstream's, or ours.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tidegate::InFlight;

use crate::upstream::{AnswerBody, BodyError};

/// The body of an answer to a caller.
#[derive(Debug)]
pub enum ServedBody {
    /// As the upstream sends it; the attempt is in flight until this is dropped.
    Passed(AnswerBody, Option<InFlight>),
    /// Made here; `None` once it was handed over.
    Made(Option<Bytes>),
}

impl ServedBody {
    /// The bytes of a body that was made here; none of another.
    pub(super) fn into_made(self) -> Bytes {
        match self {
            Self::Made(body) => body.unwrap_or_default(),
            Self::Passed(..) => Bytes::new(),
        }
    }
}

impl Body for ServedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Passed(body, _) => Pin::new(body).poll_frame(context),
            Self::Made(body) => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Passed(body, _) => body.is_end_stream(),
            Self::Made(body) => body.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Passed(body, _) => body.size_hint(),
            Self::Made(body) => {
                SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64))
            }
        }
    }
}
