//! Bodies of answers. None is longer in memory than a piece of it.

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

use super::desk::Ticket;

/// The body of an answer. The request is under way until this is sent to the end.
pub(super) struct MockBody {
    content: Content,
    ticket: Option<Ticket>,
}

enum Content {
    Whole(Option<Bytes>),
    /// So many bytes of the same.
    Filler(u64),
    /// Half of it is there, all of it was promised.
    Cut {
        half: Option<Bytes>,
        promised: u64,
        is_sent: bool,
    },
    /// Pieces that follow each other in time.
    Pieces(Box<Pieces>),
}

struct Pieces {
    pieces: Peekable<Box<dyn Iterator<Item = Bytes> + Send>>,
    every: Duration,
    clock: Clock,
    /// Until the next may leave.
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

    /// So many bytes.
    pub(super) fn filler(length: u64) -> Self {
        Self::of(Content::Filler(length))
    }

    /// Pieces, so long from one to the next; the first at once.
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

    /// The same with headers behind it, if it is in pieces.
    pub(super) fn with_trailers(mut self, trailers: HeaderMap) -> Self {
        if let Content::Pieces(pieces) = &mut self.content {
            pieces.trailers = Some(trailers);
        }
        self
    }

    /// The same, breaking off in its middle; something that is in pieces breaks off at once.
    pub(super) fn cut(self) -> Self {
        let (half, promised) = match self.content {
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
                promised,
                is_sent: false,
            },
            ticket: self.ticket,
        }
    }

    /// The same; the request is under way until it is sent.
    pub(super) fn with_ticket(self, ticket: Ticket) -> Self {
        Self {
            ticket: Some(ticket),
            ..self
        }
    }

    fn of(content: Content) -> Self {
        Self {
            content,
            ticket: None,
        }
    }
}

/// As much as goes into a pipe at once.
static FILLER: [u8; 64 << 10] = [b'x'; 64 << 10];

/// The next piece, if so much is left.
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
            Content::Cut { half, is_sent, .. } => {
                if let Some(half) = half.take() {
                    return Poll::Ready(Some(Ok(Frame::data(half))));
                }
                if !std::mem::replace(is_sent, true) {
                    // Whoever sends it writes out what there is when there is a pause.
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let error = io::Error::other("it breaks off here, as it was told to");
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
            Content::Cut { promised, .. } if *promised < u64::MAX => {
                SizeHint::with_exact(*promised)
            }
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
