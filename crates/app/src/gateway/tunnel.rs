//! `CONNECT`: a tunnel through the gateway, of which only the bytes are seen.
//!
//! A tunnel is one permit of its host's gate: it waits for its turn, and is in flight to its end. The
//! breaker learns from connections that cannot be made, and from those that can. What is spoken inside is
//! not known, so that nothing else is learned and nothing is sent again once the tunnel is open.
//!
//! A tunnel ends with its connections. If one side says that it sends no more, the other may go on. If no
//! byte passes in either direction for `http.idle_timeout`, both are closed; they would otherwise last
//! for as long as two peers that died silently.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tidegate::InFlight;
use tidegate::call::TrailStep;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};

use super::body::ServedBody;
use super::connection::Serving;
use super::error::GatewayError;
use super::forward::{ForwardHost, TunnelRequest};
use super::response::Responder;
use super::routes::Routes;
use super::worker::{OpenConnection, Worker};
use crate::exchange::{SendError, Tunnel};

/// What an attempt to open a tunnel came to.
#[derive(Debug)]
pub(super) struct TunnelResponse {
    pub(super) host: Arc<ForwardHost>,
    pub(super) result: Result<Tunnel, SendError>,
}

/// Serves a `CONNECT`.
pub(super) async fn serve(
    worker: &Worker,
    routes: &Routes,
    serving: &Serving,
    request: TunnelRequest,
    mut responder: Responder<'_>,
) -> Response<ServedBody> {
    let Some(route) = routes.forward() else {
        return responder.refuse(&GatewayError::HostNotAllowed);
    };
    let host = match ForwardHost::new(worker, routes, &request.target) {
        Ok(host) => host,
        Err(error) => return responder.refuse(&error),
    };
    responder.route = Some(route.tunnels(&host.key));
    let exchange = routes.exchange();
    let watch = |step: &TrailStep| responder.watch(step);
    let call = route.call(worker, &host, request.kind, &watch);
    let run = call.run(async |attempt| {
        let opening = exchange.open_tunnel(&attempt, &host.destination, &host.metrics);
        let opened = opening.await;
        let is_permanent = matches!(&opened.value, Err(error) if error.is_permanent);
        let opened = opened.map(|result| TunnelResponse {
            host: Arc::clone(&host),
            result,
        });
        match is_permanent {
            true => opened.last(),
            false => opened,
        }
    });
    let ended = run.await;
    let (response, opened) = responder.respond_to_connect(ended);
    if let Some((tunnel, in_flight)) = opened {
        let passing = Passing {
            upgrade: request.upgrade,
            tunnel,
            idle: exchange.timeouts().idle,
            _in_flight: in_flight,
            _serving: serving.begin_tunnel(),
            _open: worker.hold_connection(),
        };
        tokio::spawn(passing.run());
    }
    response
}

/// A tunnel that is open, with what counts it.
struct Passing {
    upgrade: OnUpgrade,
    tunnel: Tunnel,
    idle: Duration,
    _in_flight: Option<InFlight>,
    _serving: Serving,
    _open: OpenConnection,
}

impl Passing {
    /// Passes bytes on until either side ends it, or both are silent for too long.
    async fn run(self) {
        // Otherwise the client has disconnected before it had the response.
        let Ok(client) = self.upgrade.await else {
            return;
        };
        let moved = Arc::new(AtomicU64::new(0));
        let mut client = TokioIo::new(client);
        let mut server = Counted {
            inner: self.tunnel.into_io(),
            moved: Arc::clone(&moved),
        };
        tokio::select! {
            // An error ends the tunnel, and both sides see that.
            _ = copy_bidirectional(&mut client, &mut server) => {}
            () = silence(&moved, self.idle) => {}
        }
    }
}

/// Waits until no byte has moved for `idle`, and at most twice as long.
async fn silence(moved: &AtomicU64, idle: Duration) {
    loop {
        let before = moved.load(Ordering::Relaxed);
        tokio::time::sleep(idle).await;
        if moved.load(Ordering::Relaxed) == before {
            return;
        }
    }
}

/// A connection whose bytes are counted, in both directions together.
struct Counted<T> {
    inner: T,
    moved: Arc<AtomicU64>,
}

impl<T> Counted<T> {
    fn count(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        self.count(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
        self.count(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
