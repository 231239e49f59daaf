//! Small servers of the demo: a site to crawl, a shop that takes orders, and a profile that several
//! programs edit.
//!
//! They decide by what they are asked, not by a limit, so they are no mocks. Each has its own address
//! and therefore its own gate.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

/// Answers requests.
pub(super) trait Respond: Send + Sync + 'static {
    /// The response, and how long it takes.
    fn respond(&self, request: &Request<Bytes>) -> (Response<Bytes>, Duration);
}

/// A server that listens at a free port of loopback.
pub(super) struct LocalServer {
    listener: TcpListener,
    address: SocketAddr,
    site: Arc<dyn Respond>,
}

impl LocalServer {
    pub(super) fn bind(site: Arc<dyn Respond>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            site,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until it is dropped.
    pub(super) async fn serve(self) {
        let Ok(listener) = tokio::net::TcpListener::from_std(self.listener) else {
            return;
        };
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let site = Arc::clone(&self.site);
            let service = service_fn(move |request| {
                let site = Arc::clone(&site);
                async move { Ok::<_, Infallible>(answer(&*site, request).await) }
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // How a connection ends concerns its client only.
            tokio::spawn(connection);
        }
    }
}

/// Before accepting again after the system refused.
const PAUSE: Duration = Duration::from_millis(10);

/// The longest body that is read.
const MAX_BODY: usize = 64 << 10;

async fn answer(site: &dyn Respond, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return text(StatusCode::PAYLOAD_TOO_LARGE, "text/plain", "").map(Full::new),
    };
    let (response, delay) = site.respond(&Request::from_parts(head, body));
    tokio::time::sleep(delay).await;
    response.map(Full::new)
}

/// A response with a body of this media type.
pub(super) fn text(
    status: StatusCode,
    media_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let media_type = HeaderValue::from_static(media_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}
