//! Response bodies. Long ones are produced piece by piece and never held in memory.

use std::io;
use std::iter::Peekable;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tidegate::Clock;
use tidegate::clock::Sleep;

use super::state::RequestGuard;

/// The body of a response. Its request is in flight until the body is sent or dropped.
pub(super) struct MockBody {
    content: Content,
    guard: Option<RequestGuard>,
}

enum Content {
    Whole(Option<Bytes>),
    /// This many more filler bytes.
    Filler(u64),
    /// The first half of a body, then an error; `content-length` is that of the whole.
    Cut {
        half: Option<Bytes>,
        length: u64,
        is_flushed: bool,
    },
    /// Pieces with time between them.
    Pieces(Box<Pieces>),
}

struct Pieces {
    pieces: Peekable<Box<dyn Iterator<Item = Bytes> + Send>>,
    every: Duration,
    clock: Clock,
    /// Until the next piece may be sent.
    pause: Option<Sleep>,
    trailers: Option<HeaderMap>,
}

impl MockBody {
    pub(super) fn empty() -> Self {
        Self::of(Content::Whole(None))
    }

    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::of(Content::Whole((!bytes.is_empty()).then_some(bytes)))
    }

    /// This many filler bytes.
    pub(super) fn filler(length: u64) -> Self {
        Self::of(Content::Filler(length))
    }

    /// Pieces, the first at once, each further one `every` later.
    pub(super) fn pieces(
        clock: &Clock,
        every: Duration,
        pieces: impl Iterator<Item = Bytes> + Send + 'static,
    ) -> Self {
        let boxed: Box<dyn Iterator<Item = Bytes> + Send> = Box::new(pieces);
        Self::of(Content::Pieces(Box::new(Pieces {
            pieces: boxed.peekable(),
            every,
            clock: clock.clone(),
            pause: None,
            trailers: None,
        })))
    }

    /// Adds trailers, if the body is in pieces.
    pub(super) fn with_trailers(mut self, trailers: HeaderMap) -> Self {
        if let Content::Pieces(pieces) = &mut self.content {
            pieces.trailers = Some(trailers);
        }
        self
    }

    /// Cuts the body off in the middle; a body in pieces is cut off at once.
    pub(super) fn cut(self) -> Self {
        let (half, length) = match self.content {
            Content::Whole(bytes) => {
                let bytes = bytes.unwrap_or_else(|| Bytes::from_static(b"  "));
                (bytes.slice(..bytes.len() / 2), bytes.len() as u64)
            }
            Content::Filler(length) => (filler_piece(length / 2), length),
            Content::Cut { .. } | Content::Pieces(_) => (Bytes::new(), u64::MAX),
        };
        Self {
            content: Content::Cut {
                half: (!half.is_empty()).then_some(half),
                length,
                is_flushed: false,
            },
            guard: self.guard,
        }
    }

    /// Keeps the request in flight until the body is sent or dropped.
    pub(super) fn with_guard(self, guard: RequestGuard) -> Self {
        Self {
            guard: Some(guard),
            ..self
        }
    }

    fn of(content: Content) -> Self {
        Self {
            content,
            guard: None,
        }
    }
}

/// One frame of filler.
static FILLER: [u8; 64 << 10] = [b'x'; 64 << 10];

/// The next frame of filler, with `left` bytes to go.
fn filler_piece(left: u64) -> Bytes {
    let length = usize::try_from(left).map_or(FILLER.len(), |left| left.min(FILLER.len()));
    Bytes::from_static(&FILLER[..length])
}

impl Body for MockBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut self.content {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Filler(0) => Poll::Ready(None),
            Content::Filler(left) => {
                let piece = filler_piece(*left);
                *left -= piece.len() as u64;
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Content::Cut {
                half, is_flushed, ..
            } => {
                if let Some(half) = half.take() {
                    return Poll::Ready(Some(Ok(Frame::data(half))));
                }
                if !std::mem::replace(is_flushed, true) {
                    // hyper flushes the first half when the body is pending.
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let error = io::Error::other("cut off by the script");
                Poll::Ready(Some(Err(error)))
            }
            Content::Pieces(pieces) => pieces.poll_next(context).map(|frame| frame.map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Whole(None) | Content::Filler(0))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Content::Filler(left) => SizeHint::with_exact(*left),
            Content::Cut { length, .. } if *length < u64::MAX => SizeHint::with_exact(*length),
            Content::Cut { .. } | Content::Pieces(_) => SizeHint::default(),
        }
    }
}

impl Pieces {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if let Some(pause) = &mut self.pause {
            ready!(Pin::new(pause).poll(context));
            self.pause = None;
        }
        let Some(piece) = self.pieces.next() else {
            return Poll::Ready(self.trailers.take().map(Frame::trailers));
        };
        if !self.every.is_zero() && self.pieces.peek().is_some() {
            let next = self.clock.now() + self.every;
            self.pause = Some(self.clock.sleep_until(next));
        }
        Poll::Ready(Some(Frame::data(piece)))
    }
}

impl std::fmt::Debug for MockBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MockBody").finish_non_exhaustive()
    }
}
