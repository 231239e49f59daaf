//! The body of a request, kept as far as it may have to be sent again.
//!
//! It goes out while it comes in, piece by piece, so that its length does not matter. What has
//! passed is kept up to a bound; an attempt that begins anew sends that first and goes on with what
//! is still to come. Beyond the bound nothing is kept, and the request has one attempt.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};
use policy::outcome::Phase;
use tokio::time::{Instant, Sleep, sleep};

use super::fields;
use super::kept_body::KeptBody;
use super::replay_memory::{ReplayMemory, ReplayShare};
use crate::client_body::{ClientBody, ClientBodyError};
use crate::settings::ByteRate;
use crate::stall::RateWatch;

/// What bounds the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyBounds {
    /// The longest that is passed on; `None`: any.
    pub most: Option<u64>,
    /// So many bytes are kept for sending them again.
    pub kept: u64,
    /// The longest pause between two pieces.
    pub idle: Duration,
    /// The client has to send it at this rate.
    pub min_rate: ByteRate,
}

impl BodyBounds {
    fn longest_pause(&self) -> Duration {
        match self.min_rate {
            ByteRate(0) => self.idle,
            _ => self.idle.min(MAX_PAUSE),
        }
    }
}

/// The longest pause of a client that sends at the lowest rate otherwise. It may hold a permit.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// How long a client has to send at the lowest rate before it may get a permit, or after it was asked
/// to send.
const STRETCH: Duration = Duration::from_secs(1);

/// The body of a request over all its attempts.
#[derive(Clone, Debug)]
pub struct ReplayableBody(Option<Arc<Mutex<SharedBody>>>);

/// How far a request's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is none.
    None,
    /// Some of it is still to come.
    Partial,
    /// It was handed over, at this time.
    Whole(Instant),
}

/// Why a body could not be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestBodyError {
    /// It is longer than is passed on.
    #[error("the body of the request is too long")]
    TooLarge,
    /// Its sender paused for too long, or sends too slowly.
    #[error("the body of the request came too slowly")]
    Slow,
    /// The client disconnected.
    #[error("the body of the request broke off")]
    Broken,
    /// The client sent what is not a body.
    #[error("the body of the request is malformed")]
    Malformed,
    /// Another attempt sends it by now.
    #[error("the body of the request is sent by another attempt")]
    Replaced,
}

struct SharedBody {
    rest: ClientBody,
    bounds: BodyBounds,
    length: SizeHint,
    kept: KeptBody,
    share: ReplayShare,
    trailers: Option<HeaderMap>,
    passed: u64,
    has_overflowed: bool,
    /// Pieces are missing.
    has_lost: bool,
    is_over: bool,
    /// The number of the attempt that sends it, counted from 1; 0 before the first.
    attempt: u32,
    /// Wakes that attempt, which waits for the next piece.
    waker: Option<Waker>,
    whole_since: Option<Instant>,
    error: Option<RequestBodyError>,
    watch: RateWatch,
    arrival: Option<Arrival>,
}

/// A stretch of time before the first attempt, in which the client has to send at the lowest rate.
struct Arrival {
    /// What had come when it began.
    passed: u64,
    end: Pin<Box<Sleep>>,
    /// In how many before this one it sent less.
    slow: u32,
}

impl ReplayableBody {
    /// No body at all.
    pub const NONE: Self = Self(None);

    /// A body that is still to come. What is kept of it takes some of `memory`.
    pub(crate) fn new(rest: ClientBody, bounds: BodyBounds, memory: &Arc<ReplayMemory>) -> Self {
        let watch = RateWatch::new(bounds.min_rate, bounds.longest_pause());
        Self::watched(rest, bounds, memory, watch)
    }

    /// A body that its client sends when it is asked for, which is when there is a permit: one that sends
    /// nothing then, or too little, holds it for a second.
    pub(crate) fn asked_for(
        rest: ClientBody,
        bounds: BodyBounds,
        memory: &Arc<ReplayMemory>,
    ) -> Self {
        let watch = RateWatch::new(bounds.min_rate, bounds.longest_pause());
        let watch = match bounds.min_rate {
            ByteRate(0) => watch,
            _ => watch.with_first_wait(STRETCH),
        };
        Self::watched(rest, bounds, memory, watch)
    }

    fn watched(
        rest: ClientBody,
        bounds: BodyBounds,
        memory: &Arc<ReplayMemory>,
        watch: RateWatch,
    ) -> Self {
        if rest.is_end_stream() {
            return Self::NONE;
        }
        Self(Some(Arc::new(Mutex::new(SharedBody {
            length: rest.size_hint(),
            rest,
            watch,
            bounds,
            kept: KeptBody::default(),
            share: ReplayShare::new(Arc::clone(memory)),
            trailers: None,
            passed: 0,
            has_overflowed: false,
            has_lost: false,
            is_over: false,
            attempt: 0,
            waker: None,
            whole_since: None,
            error: None,
            arrival: None,
        }))))
    }

    /// The body for one attempt, from its first byte. The attempt before gets no more of it: its
    /// server may have responded without reading to the end.
    pub fn body(&self) -> RequestBody {
        RequestBody {
            attempt: self.0.as_ref().map_or(0, begin),
            state: self.0.clone(),
            whole: None,
            next: 0,
            passed: 0,
            has_ended: false,
        }
    }

    /// Waits until the client has shown that it sends: all of the body has come, or as much as is kept, or
    /// the lowest rate was held for a second, or nothing more can be kept. A permit that is taken before would be held by a client
    /// that sends nothing.
    pub fn poll_arrival(&self, context: &mut Context<'_>) -> Poll<Result<(), RequestBodyError>> {
        match &self.0 {
            Some(state) => lock(state).poll_arrival(context),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Reads what comes before the first attempt, so that a client that disconnects is noticed while
    /// it waits in line: the end of a connection shows only after everything before it is read.
    /// Ready only if the body will never be whole.
    pub fn poll_ahead(&self, context: &mut Context<'_>) -> Poll<RequestBodyError> {
        let Some(state) = &self.0 else {
            return Poll::Pending;
        };
        let mut state = lock(state);
        while state.attempt == 0
            && !state.is_over
            && state.passed < MAX_READ_AHEAD
            && !state.share.is_full()
        {
            if let Some(Err(error)) = ready!(state.poll_rest(context)) {
                return Poll::Ready(error);
            }
        }
        Poll::Pending
    }

    /// Is all of it there still, so that it can be sent from its first byte?
    pub(super) fn is_intact(&self) -> bool {
        self.look(|state| !state.has_lost && state.error.is_none())
            .unwrap_or(true)
    }

    /// May it be sent again?
    pub fn is_resendable(&self) -> bool {
        self.look(|state| !state.has_overflowed && state.error.is_none())
            .unwrap_or(true)
    }

    /// The unread rest, if no attempt holds it.
    pub(crate) fn into_unread(self) -> Option<ClientBody> {
        let state = Arc::into_inner(self.0?)?;
        let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        (!state.is_over).then_some(state.rest)
    }

    /// Why it could not be passed on.
    pub fn error(&self) -> Option<RequestBodyError> {
        self.look(|state| state.error).flatten()
    }

    /// Has all of it come?
    pub fn has_arrived(&self) -> bool {
        self.look(SharedBody::is_whole).unwrap_or(true)
    }

    /// Was all of it handed over?
    pub(super) fn is_sent(&self) -> bool {
        self.progress() != Progress::Partial
    }

    /// How far an attempt has got that is being sent.
    pub(super) fn phase(&self) -> Phase {
        match self.progress() {
            Progress::Partial => Phase::Sending,
            Progress::None | Progress::Whole(_) => Phase::Waiting,
        }
    }

    pub(super) fn progress(&self) -> Progress {
        match self.look(|state| state.whole_since) {
            None => Progress::None,
            Some(None) => Progress::Partial,
            Some(Some(since)) => Progress::Whole(since),
        }
    }

    fn look<T>(&self, look: impl FnOnce(&SharedBody) -> T) -> Option<T> {
        self.0.as_ref().map(|state| look(&lock(state)))
    }
}

/// Enough for most requests, and little for one that waits.
const MAX_READ_AHEAD: u64 = 64 << 10;

/// The number of a new attempt. The one before is woken, and stops.
fn begin(state: &Arc<Mutex<SharedBody>>) -> u32 {
    let (attempt, waker) = {
        let mut state = lock(state);
        state.attempt += 1;
        state.kept.end_block();
        // Up to here nothing was read from the client.
        state.watch.pause();
        state.whole_since = None;
        (state.attempt, state.waker.take())
    };
    if let Some(waker) = waker {
        waker.wake();
    }
    attempt
}

/// The body of one attempt.
#[derive(Debug)]
pub struct RequestBody {
    /// Its number.
    attempt: u32,
    state: Option<Arc<Mutex<SharedBody>>>,
    /// All of it, if it was there from the start.
    whole: Option<Bytes>,
    /// The block to send next of what was kept.
    next: usize,
    /// Bytes sent so far.
    passed: u64,
    has_ended: bool,
}

impl RequestBody {
    /// No body at all.
    pub const EMPTY: Self = Self {
        attempt: 0,
        state: None,
        whole: None,
        next: 0,
        passed: 0,
        has_ended: true,
    };

    /// A body that is there already.
    pub fn whole(bytes: Bytes) -> Self {
        Self {
            whole: Some(bytes),
            ..Self::EMPTY
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let this = &mut *self;
        let Some(state) = &this.state else {
            return Poll::Ready(this.whole.take().map(|whole| Ok(Frame::data(whole))));
        };
        if this.has_ended {
            return Poll::Ready(None);
        }
        let mut state = lock(state);
        if state.attempt != this.attempt {
            this.has_ended = true;
            return Poll::Ready(Some(Err(RequestBodyError::Replaced)));
        }
        let frame = match state.kept.block(this.next) {
            Some(block) => {
                this.next += 1;
                Some(Ok(Frame::data(block.clone())))
            }
            None => {
                let frame = ready!(state.poll_for_attempt(context));
                this.next = state.kept.blocks();
                frame
            }
        };
        let piece = match &frame {
            Some(Ok(frame)) => frame.data_ref(),
            Some(Err(_)) | None => None,
        };
        this.passed += piece.map_or(0, |piece| piece.len() as u64);
        this.has_ended = piece.is_none();
        // A body of known length is not polled behind its end.
        if this.has_ended || state.length.exact() == Some(this.passed) {
            state.whole_since.get_or_insert_with(Instant::now);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            None => self.whole.is_none(),
            Some(_) => self.has_ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.state {
            None => SizeHint::with_exact(self.whole.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Some(state) => lock(state).length,
        }
    }
}

impl SharedBody {
    fn poll_for_attempt(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let frame = self.poll_rest(context);
        self.waker = frame.is_pending().then(|| context.waker().clone());
        frame
    }

    fn poll_rest(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        if let Some(error) = self.error {
            return Poll::Ready(Some(Err(error)));
        }
        if self.is_over {
            return Poll::Ready(
                self.trailers
                    .clone()
                    .map(|trailers| Ok(Frame::trailers(trailers))),
            );
        }
        match Pin::new(&mut self.rest).poll_frame(context) {
            Poll::Pending => {
                ready!(self.watch.poll_expired(context));
                Poll::Ready(Some(Err(self.fail(RequestBodyError::Slow))))
            }
            Poll::Ready(frame) => Poll::Ready(self.take(frame)),
        }
    }

    fn poll_arrival(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RequestBodyError>> {
        while !self.is_whole() && self.passed < self.bounds.kept && !self.share.is_full() {
            match Pin::new(&mut self.rest).poll_frame(context) {
                Poll::Ready(frame) => {
                    if let Some(Err(error)) = self.take(frame) {
                        return Poll::Ready(Err(error));
                    }
                }
                Poll::Pending if self.bounds.min_rate == ByteRate(0) => break,
                Poll::Pending => return self.poll_stretches(context),
            }
        }
        self.arrival = None;
        Poll::Ready(Ok(()))
    }

    /// Ready when the client has sent at the lowest rate for a stretch, or was too slow for too many.
    fn poll_stretches(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RequestBodyError>> {
        let arrival = self.arrival.get_or_insert_with(|| Arrival {
            passed: 0,
            end: Box::pin(sleep(STRETCH)),
            slow: 0,
        });
        loop {
            ready!(arrival.end.as_mut().poll(context));
            if self.passed - arrival.passed >= self.bounds.min_rate.0 {
                self.arrival = None;
                return Poll::Ready(Ok(()));
            }
            arrival.slow += 1;
            if STRETCH * arrival.slow >= self.bounds.longest_pause() {
                return Poll::Ready(Err(self.fail(RequestBodyError::Slow)));
            }
            arrival.passed = self.passed;
            arrival.end.as_mut().reset(Instant::now() + STRETCH);
        }
    }

    /// Has all of it come?
    fn is_whole(&self) -> bool {
        self.is_over || self.length.exact() == Some(self.passed)
    }

    fn take(
        &mut self,
        frame: Option<Result<Frame<Bytes>, ClientBodyError>>,
    ) -> Option<Result<Frame<Bytes>, RequestBodyError>> {
        match frame.map(|frame| frame.map(Frame::into_data)) {
            None => {
                self.is_over = true;
                None
            }
            Some(Err(error)) => Some(Err(self.fail(match error {
                ClientBodyError::Malformed => RequestBodyError::Malformed,
                ClientBodyError::Broken => RequestBodyError::Broken,
            }))),
            Some(Ok(Err(frame))) => {
                self.is_over = true;
                self.trailers = frame
                    .into_trailers()
                    .ok()
                    .map(fields::clean_request_trailers);
                self.trailers
                    .clone()
                    .map(|trailers| Ok(Frame::trailers(trailers)))
            }
            Some(Ok(Ok(piece))) => Some(self.pass(piece)),
        }
    }

    fn pass(&mut self, piece: Bytes) -> Result<Frame<Bytes>, RequestBodyError> {
        self.watch.moved(piece.len());
        self.passed = self.passed.saturating_add(piece.len() as u64);
        if self.bounds.most.is_some_and(|most| self.passed > most) {
            return Err(self.fail(RequestBodyError::TooLarge));
        }
        self.has_overflowed |= self.passed > self.bounds.kept || self.share.is_full();
        // What is read ahead was not sent yet and has to be kept in any case.
        if self.has_overflowed && self.attempt > 0 {
            self.has_lost = true;
            self.kept = KeptBody::default();
            self.share.give_back();
        } else {
            self.share.take(piece.len());
            self.kept.push(&piece);
        }
        Ok(Frame::data(piece))
    }

    fn fail(&mut self, error: RequestBodyError) -> RequestBodyError {
        self.error = Some(error);
        error
    }
}

impl fmt::Debug for SharedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never what is in it.
        f.debug_struct("SharedBody")
            .field("passed", &self.passed)
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

/// A panic of a reader would leave nothing half done here.
fn lock(state: &Mutex<SharedBody>) -> MutexGuard<'_, SharedBody> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
