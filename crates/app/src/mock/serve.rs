//! Listeners, threads and connections.
//!
//! Every thread has a runtime and a listener of its own, and the system deals connections out to
//! them: no connection ever moves, and no thread waits for another but at the desk.

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

use super::desk::Desk;
use super::handle::{self, Peer};

/// Listens once for every thread, all at one port.
pub(super) fn listen(address: SocketAddr, threads: NonZeroUsize) -> io::Result<Vec<StdListener>> {
    if threads == NonZeroUsize::MIN {
        return Ok(vec![listener(address, false)?]);
    }
    // Sharing a port would also share it with a stranger who shares his: so first alone.
    let alone = listener(address, false)?;
    let address = alone.local_addr()?;
    drop(alone);
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
    // Connections of a mock that is gone do not keep its port.
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

/// A thousand clients may come at the same moment.
const BACKLOG: i32 = 4096;

/// The threads of a mock.
#[derive(Debug)]
pub(super) struct Threads {
    /// Says when to stop, and how long to wait for what is under way.
    stop: watch::Sender<Option<Duration>>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    pub(super) fn start(listeners: Vec<StdListener>, desk: &Arc<Desk>) -> io::Result<Self> {
        let mut threads = Self {
            stop: watch::Sender::new(None),
            handles: Vec::new(),
        };
        for listener in listeners {
            let handle = thread(listener, Arc::clone(desk), threads.stop.subscribe())?;
            threads.handles.push(handle);
        }
        Ok(threads)
    }

    /// Returns when all of them have ended.
    pub(super) fn stop(&mut self, patience: Duration) {
        self.stop.send_replace(Some(patience));
        for handle in self.handles.drain(..) {
            // If it panicked, that was told already.
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
    desk: Arc<Desk>,
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
        .spawn(move || runtime.block_on(serve(listener, desk, stop)))
}

async fn serve(
    listener: TcpListener,
    desk: Arc<Desk>,
    mut stop: watch::Receiver<Option<Duration>>,
) {
    let graceful = GracefulShutdown::new();
    let patience = tokio::select! {
        patience = stopped(&mut stop) => patience,
        never = accept(&listener, &desk, &graceful) => match never {},
    };
    drop(listener);
    // What is not done by then ends with the runtime.
    _ = tokio::time::timeout(patience, graceful.shutdown()).await;
}

async fn stopped(stop: &mut watch::Receiver<Option<Duration>>) -> Duration {
    let told = stop.wait_for(Option::is_some).await;
    told.ok().and_then(|patience| *patience).unwrap_or_default()
}

async fn accept(
    listener: &TcpListener,
    desk: &Arc<Desk>,
    graceful: &GracefulShutdown,
) -> std::convert::Infallible {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let desk = Arc::clone(desk);
                tokio::spawn(connection(desk, stream, address, graceful.watcher()));
            }
            // Out of file descriptors, most likely: others have to end first.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn connection(desk: Arc<Desk>, stream: TcpStream, address: SocketAddr, watcher: Watcher) {
    // An answer in two pieces would wait for the client's acknowledgement in between.
    _ = stream.set_nodelay(true);
    let is_reset = Arc::new(AtomicBool::new(false));
    let peer = Arc::new(Peer {
        client: desk.connected(address.ip()),
        address: address.ip(),
        is_reset: Arc::clone(&is_reset),
        desk,
    });
    let stream = Resettable { stream, is_reset };
    let service = service_fn(move |request| handle::handle(Arc::clone(&peer), request));
    let builder = auto::Builder::new(TokioExecutor::new());
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    // How a connection ends is the client's matter, or was meant so.
    _ = watcher.watch(serving).await;
}

/// A connection that can end with a reset instead of a farewell.
struct Resettable {
    stream: TcpStream,
    is_reset: Arc<AtomicBool>,
}

impl Drop for Resettable {
    fn drop(&mut self) {
        if self.is_reset.load(Ordering::Relaxed) {
            // Closing without lingering is what sends the reset.
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
