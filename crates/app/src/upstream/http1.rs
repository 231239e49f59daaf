//! A connection over HTTP/1.1, driven by the task of the request that uses it.
//!
//! hyper wants a connection to have a task of its own, which exchanges requests and responses with
//! their senders over channels. For a short exchange that is two more tasks to schedule in each
//! direction. Here the request polls the connection itself: its task is woken when the server
//! responds, and reads, passes on and writes in one go. The channels are still there, so waking is
//! observed: what happens on them while the connection is being polled need not wake a task.
//!
//! Between two requests no task polls the connection. If the server closes it meanwhile, that is
//! noted, and seen when the connection is wanted again or when idle ones are looked through.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::request_body::RequestBody;
use crate::timer::ReusableTimer;

/// A connection over HTTP/1.1: one request at a time.
#[derive(Debug)]
pub(super) struct Http1Connection {
    // Dropped before the driver, which then ends the connection.
    sender: http1::SendRequest<RequestBody>,
    driver: Driver,
    /// The timer of all its requests, one after the other.
    timer: ReusableTimer,
    /// Set when a byte arrives. Cleared with each request, to learn whether any byte of its response
    /// came.
    has_received: Arc<AtomicBool>,
}

impl Http1Connection {
    /// A connection over `io`.
    pub(super) async fn handshake<T>(io: T) -> hyper::Result<Self>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let has_received = Arc::new(AtomicBool::new(false));
        let io = NotesReads {
            inner: io,
            has_received: Arc::clone(&has_received),
        };
        let (sender, connection) = http1::Builder::new().handshake(TokioIo::new(io)).await?;
        Ok(Self {
            sender,
            driver: Driver::new(connection),
            timer: ReusableTimer::default(),
            has_received,
        })
    }

    /// Sends a request and waits for the response's head, until the time that `ends` says; `None` if
    /// it took longer.
    pub(super) async fn send(
        &mut self,
        request: Request<RequestBody>,
        ends: impl Fn() -> Instant,
    ) -> Option<Result<Response<Incoming>, TrySendError<Request<RequestBody>>>> {
        self.has_received.store(false, Ordering::Relaxed);
        let mut response = pin!(self.sender.try_send_request(request));
        poll_fn(|context| {
            let polled = self
                .driver
                .poll_with(context.waker(), |context| response.as_mut().poll(context));
            match polled {
                Poll::Ready(response) => Poll::Ready(Some(response)),
                Poll::Pending => self.timer.poll_end(&ends, context).map(|()| None),
            }
        })
        .await
    }

    /// Polls `work`, which waits for something of this connection such as a response's body, and
    /// drives the connection for it. While that is pending, `task` is woken when there is something
    /// to do.
    pub(super) fn poll_with<R>(
        &mut self,
        task: &Waker,
        mut work: impl FnMut(&mut Context<'_>) -> Poll<R>,
    ) -> Poll<R> {
        // What has arrived already needs no driving.
        self.driver.signal.state.store(QUIET, Ordering::Release);
        match work(&mut Context::from_waker(&self.driver.waker)) {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending => self.driver.poll_with(task, work),
        }
    }

    /// Has any byte of a response to the last request arrived?
    pub(super) fn has_received(&self) -> bool {
        self.has_received.load(Ordering::Relaxed)
    }

    /// Notes that the last response is over. The server may have closed the connection while the
    /// response was read, and that wake-up looked like one of the reading: so it is polled once more,
    /// which reads from the socket only if something has arrived.
    pub(super) fn rest(&mut self) {
        self.driver.poll_unused();
    }

    /// Sends the rest of a request whose response is over already, in a task of its own, and ends the
    /// connection.
    pub(super) fn finish(self) {
        let Self {
            sender, mut driver, ..
        } = self;
        drop(sender);
        if let Some(connection) = driver.connection.take() {
            tokio::spawn(connection);
        }
    }

    /// Has either side ended the connection?
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Can another request be sent on it? For a connection that rests.
    pub(super) fn is_ready(&mut self) -> bool {
        if self.driver.signal.state.load(Ordering::Acquire) == WOKEN {
            self.driver.poll_unused();
        }
        self.sender.is_ready()
    }
}

/// hyper's side of the connection.
struct Driver {
    /// `None` when it has ended.
    connection: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
    signal: Arc<Signal>,
    /// Wakes `signal`.
    waker: Waker,
}

/// Nothing has happened, and no task waits.
const QUIET: u8 = 0;
/// A task waits, and is to be woken.
const WAITING: u8 = 1;
/// Something has happened.
const WOKEN: u8 = 2;

/// Notes that there is something to do, and wakes the task that waits for it.
#[derive(Debug)]
struct Signal {
    state: AtomicU8,
    task: Mutex<Option<Waker>>,
}

impl Driver {
    fn new(connection: impl Future<Output = hyper::Result<()>> + Send + 'static) -> Self {
        let signal = Arc::new(Signal {
            state: AtomicU8::new(QUIET),
            task: Mutex::new(None),
        });
        Self {
            connection: Some(Box::pin(connection)),
            waker: Waker::from(Arc::clone(&signal)),
            signal,
        }
    }

    /// Drives a connection that no request uses.
    fn poll_unused(&mut self) {
        _ = self.poll_with(Waker::noop(), |_| Poll::<()>::Pending);
    }

    /// Drives the connection, then polls `work`, which waits for something of it.
    fn poll_with<R>(
        &mut self,
        task: &Waker,
        mut work: impl FnMut(&mut Context<'_>) -> Poll<R>,
    ) -> Poll<R> {
        let mut observed = Context::from_waker(&self.waker);
        for _ in 0..MAX_ROUNDS {
            self.signal.state.store(QUIET, Ordering::Release);
            if let Some(connection) = &mut self.connection
                && connection.as_mut().poll(&mut observed).is_ready()
            {
                // The request gets the error, if there is one.
                self.connection = None;
            }
            if let Poll::Ready(result) = work(&mut observed) {
                return Poll::Ready(result);
            }
            if self.signal.wait(task) {
                return Poll::Pending;
            }
        }
        // Other tasks have to go on as well.
        task.wake_by_ref();
        Poll::Pending
    }
}

/// A connection that is woken while it is polled is polled once more; tokio also wakes what has used
/// up its time.
const MAX_ROUNDS: usize = 2;

impl Drop for Driver {
    /// The sender is dropped, so hyper shuts the connection down; over TLS the server is notified.
    fn drop(&mut self) {
        if let Some(connection) = &mut self.connection {
            let mut context = Context::from_waker(Waker::noop());
            _ = connection.as_mut().poll(&mut context);
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("has_ended", &self.connection.is_none())
            .field("signal", &self.signal)
            .finish_non_exhaustive()
    }
}

impl Signal {
    /// Has `task` woken when there is something to do; `false` if there is already.
    fn wait(&self, task: &Waker) -> bool {
        let mut waiting = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *waiting {
            Some(waiting) => waiting.clone_from(task),
            None => *waiting = Some(task.clone()),
        }
        drop(waiting);
        let waits =
            self.state
                .compare_exchange(QUIET, WAITING, Ordering::AcqRel, Ordering::Relaxed);
        waits.is_ok()
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == WAITING {
            let task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(task) = &*task {
                task.wake_by_ref();
            }
        }
    }
}

/// Notes whether anything was read. hyper reports a connection that closed in the middle of a
/// response's head like one that closed before it, and only the latter may be resent.
struct NotesReads<T> {
    inner: T,
    has_received: Arc<AtomicBool>,
}

impl<T: AsyncRead + Unpin> AsyncRead for NotesReads<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.has_received.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for NotesReads<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use hyper::body::Body;
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    #[derive(Default)]
    struct CountedWakes(AtomicUsize);

    impl Wake for CountedWakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl CountedWakes {
        fn count(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// A connection that got a response to one request, and how often the task of that was woken. The
    /// server may close it while the body has arrived and is not read yet.
    async fn exchange(closes: bool) -> (Http1Connection, Option<DuplexStream>, Arc<CountedWakes>) {
        let (near, mut far) = duplex(4096);
        let mut connection = Http1Connection::handshake(near).await.unwrap();
        let wakes = Arc::new(CountedWakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        let (mut response, far) = {
            let end = Instant::now() + Duration::from_secs(1);
            let mut sending = pin!(connection.send(Request::new(RequestBody::EMPTY), || end));
            assert!(sending.as_mut().poll(&mut context).is_pending());
            assert_eq!(wakes.count(), 0);
            let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            far.write_all(bytes).await.unwrap();
            match sending.as_mut().poll(&mut context) {
                Poll::Ready(Some(Ok(response))) => (response, (!closes).then_some(far)),
                other => panic!("{other:?}"),
            }
        };
        let body = response.body_mut();
        let read = connection.poll_with(&waker, |context| Pin::new(&mut *body).poll_frame(context));
        assert!(matches!(read, Poll::Ready(Some(Ok(_)))), "{read:?}");
        connection.rest();
        (connection, far, wakes)
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(test);
    }

    #[test]
    fn wakes_the_task_of_a_request_once_for_its_response() {
        run(async {
            let (mut connection, _far, wakes) = exchange(false).await;
            assert_eq!(wakes.count(), 1);
            assert!(connection.is_ready());
        });
    }

    #[test]
    fn is_not_ready_when_the_server_closed_it_before_the_body_was_read() {
        run(async {
            let (mut connection, far, _) = exchange(true).await;
            assert!(far.is_none());
            assert!(!connection.is_ready());
        });
    }

    #[test]
    fn is_not_ready_once_the_server_closed_it_at_rest() {
        run(async {
            let (mut connection, far, wakes) = exchange(false).await;
            assert!(connection.is_ready());
            drop(far);
            assert!(!connection.is_ready());
            assert!(connection.is_closed());
            assert_eq!(wakes.count(), 1);
        });
    }
}
