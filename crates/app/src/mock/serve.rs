//! Listeners, threads and connections.
//!
//! Every thread has its own runtime and listener, and the kernel distributes connections among them.
//! Threads share nothing but [`MockState`].

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::watch;

use super::handle::{self, Connection};
use super::state::MockState;

/// One listener per thread, all at one port.
pub(super) fn listen(address: SocketAddr, threads: NonZeroUsize) -> io::Result<Vec<StdListener>> {
    if threads == NonZeroUsize::MIN {
        return Ok(vec![listener(address, false)?]);
    }
    // A shared port could be shared with another program, so first bind it exclusively.
    let exclusive = listener(address, false)?;
    let address = exclusive.local_addr()?;
    drop(exclusive);
    (0..threads.get())
        .map(|_| listener(address, true))
        .collect()
}

fn listener(address: SocketAddr, is_shared: bool) -> io::Result<StdListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // Old connections in TIME_WAIT do not block the port.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    #[cfg(unix)]
    socket.set_reuse_port(is_shared)?;
    #[cfg(not(unix))]
    let _ = is_shared;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A thousand clients may connect at once.
const BACKLOG: i32 = 4096;

/// The threads of a mock.
#[derive(Debug)]
pub(super) struct Threads {
    /// Set to stop; the value is how long to wait for requests in flight.
    stop: watch::Sender<Option<Duration>>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    pub(super) fn start(listeners: Vec<StdListener>, state: &Arc<MockState>) -> io::Result<Self> {
        let mut threads = Self {
            stop: watch::Sender::new(None),
            handles: Vec::new(),
        };
        for listener in listeners {
            let handle = thread(listener, Arc::clone(state), threads.stop.subscribe())?;
            threads.handles.push(handle);
        }
        Ok(threads)
    }

    /// Stops all threads and waits for them.
    pub(super) fn stop(&mut self, timeout: Duration) {
        self.stop.send_replace(Some(timeout));
        for handle in self.handles.drain(..) {
            // A panic was reported already.
            _ = handle.join();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

fn thread(
    listener: StdListener,
    state: Arc<MockState>,
    stop: watch::Receiver<Option<Duration>>,
) -> io::Result<JoinHandle<()>> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let listener = {
        let _inside = runtime.enter();
        TcpListener::from_std(listener)?
    };
    thread::Builder::new()
        .name("tidegate-mock".to_owned())
        .spawn(move || runtime.block_on(serve(listener, state, stop)))
}

async fn serve(
    listener: TcpListener,
    state: Arc<MockState>,
    mut stop: watch::Receiver<Option<Duration>>,
) {
    let graceful = GracefulShutdown::new();
    let timeout = tokio::select! {
        timeout = stopped(&mut stop) => timeout,
        never = accept(&listener, &state, &graceful) => match never {},
    };
    drop(listener);
    // Connections that are left end with the runtime.
    _ = tokio::time::timeout(timeout, graceful.shutdown()).await;
}

async fn stopped(stop: &mut watch::Receiver<Option<Duration>>) -> Duration {
    let timeout = stop.wait_for(Option::is_some).await;
    timeout
        .ok()
        .and_then(|timeout| *timeout)
        .unwrap_or_default()
}

async fn accept(
    listener: &TcpListener,
    state: &Arc<MockState>,
    graceful: &GracefulShutdown,
) -> std::convert::Infallible {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let state = Arc::clone(state);
                tokio::spawn(serve_connection(state, stream, address, graceful.watcher()));
            }
            // Probably out of file descriptors: other connections have to end first.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn serve_connection(
    state: Arc<MockState>,
    stream: TcpStream,
    address: SocketAddr,
    watcher: Watcher,
) {
    // Otherwise the second packet of a response waits for the client's acknowledgement.
    _ = stream.set_nodelay(true);
    let is_reset = Arc::new(AtomicBool::new(false));
    let connection = Arc::new(Connection {
        client: state.connect(address.ip()),
        address: address.ip(),
        is_reset: Arc::clone(&is_reset),
        state,
    });
    let stream = Resettable { stream, is_reset };
    let service = service_fn(move |request| handle::handle(Arc::clone(&connection), request));
    let builder = auto::Builder::new(TokioExecutor::new());
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    // Errors are the client's, or intended.
    _ = watcher.watch(serving).await;
}

/// A stream that is reset when dropped, if asked to.
struct Resettable {
    stream: TcpStream,
    is_reset: Arc<AtomicBool>,
}

impl Drop for Resettable {
    fn drop(&mut self) {
        if self.is_reset.load(Ordering::Relaxed) {
            // Closing with a linger time of zero sends a reset.
            _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
    }
}

impl AsyncRead for Resettable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Resettable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
