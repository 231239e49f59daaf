//! Bodies: of responses to clients, and the unread rest of requests.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tidegate::InFlight;

use crate::exchange::{BodyError, UpstreamBody};

/// The body of a response to a client.
#[derive(Debug)]
pub enum ServedBody {
    /// As the upstream sends it; the attempt is in flight until this is dropped.
    Passed(UpstreamBody, Option<InFlight>),
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

/// Reads the rest of a request that got its response before its body was read, up to a bound, and
/// throws it away. A connection that is closed while its client still sends is reset, and the reset
/// may overtake the response.
pub(super) fn discard(body: Incoming) {
    if !body.is_end_stream() {
        tokio::spawn(tokio::time::timeout(MAX_DISCARD_TIME, read_rest(body)));
    }
}

async fn read_rest(mut body: Incoming) {
    let mut left = MAX_DISCARD;
    while left > 0 {
        let next = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let Some(Ok(frame)) = next.await else {
            return;
        };
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        left = left.saturating_sub(length.max(1));
    }
}

/// Longer than most bodies.
const MAX_DISCARD: u64 = 64 << 20;
const MAX_DISCARD_TIME: Duration = Duration::from_secs(10);
