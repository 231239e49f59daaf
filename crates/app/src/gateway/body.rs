//! Bodies: of responses to clients, and the unread rest of requests.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tidegate::InFlight;

use super::observed::ObservedBody;
use crate::client_body::ClientBody;
use crate::exchange::cost::UsageScanner;
use crate::exchange::{BodyError, UpstreamBody};

/// The body of a response to a client.
#[derive(Debug)]
pub enum ServedBody {
    /// As the upstream sends it; the attempt is in flight until this is dropped.
    Passed(UpstreamBody, Option<InFlight>),
    /// The same, of a request whose cost was given: the body may say what it really was.
    Counted(Box<CountedBody>),
    /// Made here; `None` once it was handed over.
    Made(Option<Bytes>),
    /// Any of these, of a request that is recorded when it has ended.
    Observed(Box<ObservedBody>),
}

/// An upstream's body whose usage is read as it passes. Corrects the cost when it is dropped.
#[derive(Debug)]
pub struct CountedBody {
    body: UpstreamBody,
    in_flight: InFlight,
    usage: UsageScanner,
}

impl CountedBody {
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.usage.read(data);
        }
        polled
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        if let Some(used) = self.usage.used() {
            self.in_flight.correct_cost(used);
        }
    }
}

impl ServedBody {
    /// The body that an upstream sends. With `counted`, its usage corrects the cost of its request.
    pub(super) fn passed(body: UpstreamBody, in_flight: Option<InFlight>, counted: bool) -> Self {
        match in_flight {
            Some(in_flight) if counted => Self::Counted(Box::new(CountedBody {
                body,
                in_flight,
                usage: UsageScanner::default(),
            })),
            in_flight => Self::Passed(body, in_flight),
        }
    }

    /// The bytes of a body that was made here; none of another.
    pub(super) fn into_made(self) -> Bytes {
        match self {
            Self::Made(body) => body.unwrap_or_default(),
            Self::Passed(..) | Self::Counted(_) | Self::Observed(_) => Bytes::new(),
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
            Self::Counted(counted) => counted.poll_frame(context),
            Self::Made(body) => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            Self::Observed(observed) => observed.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Passed(body, _) => body.is_end_stream(),
            Self::Counted(counted) => counted.body.is_end_stream(),
            Self::Made(body) => body.is_none(),
            Self::Observed(observed) => observed.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Passed(body, _) => body.size_hint(),
            Self::Counted(counted) => counted.body.size_hint(),
            Self::Made(body) => {
                SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64))
            }
            Self::Observed(observed) => observed.body.size_hint(),
        }
    }
}

/// Reads the rest of a request over HTTP/2 that got its response before its body was read, up to a
/// bound, and throws it away. A stream that is reset while its client still sends may lose the response.
/// Over HTTP/1 the connection does that by itself.
pub(super) fn discard(body: ClientBody) {
    if let ClientBody::Http2(body) = body
        && !body.is_end_stream()
    {
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
