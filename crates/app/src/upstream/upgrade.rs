//! Requests that ask for another protocol, such as WebSocket, over a connection of their own.
//!
//! HTTP/1.1 turns a connection over to another protocol when the server answers 101. So such a request
//! gets a new connection over HTTP/1.1, also from a server that speaks HTTP/2, and is never sent a
//! second time on another one. If the server answers anything but 101, its response is one like all
//! others.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::{HeaderValue, Request, Response, StatusCode, header};
use policy::outcome::{Failure, Phase};
use tidegate::Attempt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::destination::Destination;
use super::error::SendError;
use super::http1::Http1Connection;
use super::request_body::RequestBody;
use super::response_body::{BodySource, UpstreamBody};
use super::{Timeouts, Upstream};

impl Upstream {
    /// Sends a request that has no body and asks for another protocol, and waits for the response's
    /// head. The body of a 101 is a [`Tunnel`].
    ///
    /// # Errors
    ///
    /// With what went wrong and how far the attempt had got.
    pub(crate) async fn send_upgrade(
        &self,
        _permitted: &Attempt,
        destination: &Destination,
        timeouts: &Timeouts,
        request: Request<RequestBody>,
    ) -> Result<Box<Response<UpstreamBody>>, SendError> {
        let connecting = self.connector.connect_http1(destination, timeouts);
        let mut connection = connecting.await?;
        connection.begin(request);
        let deadline = Instant::now() + timeouts.first_byte;
        let response = match connection.response(|| deadline).await {
            Some(Ok(response)) => response,
            Some(Err(error)) => {
                let was_unwritten = !connection.has_written();
                return Err(SendError::http1(
                    &error,
                    was_unwritten,
                    false,
                    Phase::Waiting,
                ));
            }
            None => return Err(SendError::late()),
        };
        let is_upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let protocol = response.headers().get(header::UPGRADE).cloned();
        let source = match (is_upgraded, protocol) {
            (true, Some(protocol)) => {
                let unread = connection.take_unread();
                BodySource::Tunnel(Box::new(Tunnel {
                    connection,
                    unread,
                    protocol,
                }))
            }
            (true, None) => {
                let message = "it switched to a protocol that it does not name";
                return Err(SendError::failed(Failure::Reset, Phase::Waiting, message));
            }
            (false, _) => BodySource::Http1 {
                connection,
                owner: None,
            },
        };
        let body = UpstreamBody::new(source, timeouts.idle);
        Ok(Box::new(response.map(|()| body)))
    }
}

/// A connection to an upstream that speaks another protocol from now on.
pub(crate) struct Tunnel {
    connection: Box<Http1Connection>,
    /// What came behind the response.
    unread: Bytes,
    protocol: HeaderValue,
}

impl Tunnel {
    /// The protocol, as the server names it.
    pub(crate) fn protocol(&self) -> &HeaderValue {
        &self.protocol
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel")
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return Pin::new(self.connection.io()).poll_read(context, buffer);
        }
        let length = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread[..length]);
        self.unread.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.connection.io()).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.connection.io()).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.connection.io()).poll_shutdown(context)
    }
}
