//! A small HTTP client of the demo, with one connection.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Sends one request after the other to a server. Connects again after a failure.
#[derive(Debug)]
pub(super) struct Client {
    server: SocketAddr,
    /// Sent with every request.
    header: (&'static str, String),
    connection: Option<SendRequest<Empty<Bytes>>>,
}

/// The connection broke, or could not be made.
#[derive(Debug)]
pub(super) struct Disconnected;

impl Client {
    pub(super) fn new(server: SocketAddr, header: (&'static str, String)) -> Self {
        Self {
            server,
            header,
            connection: None,
        }
    }

    pub(super) async fn get(&mut self, path: &str) -> Result<(StatusCode, Bytes), Disconnected> {
        let mut sender = match self.connection.take() {
            Some(sender) => sender,
            None => connect(self.server).await?,
        };
        let (name, value) = &self.header;
        let request = Request::get(path)
            .header(header::HOST, self.server.to_string())
            .header(*name, value)
            .body(Empty::new())
            .map_err(|_| Disconnected)?;
        let response = sender.send_request(request).await;
        let response = response.map_err(|_| Disconnected)?;
        let status = response.status();
        let body = response.into_body().collect().await;
        let body = body.map_err(|_| Disconnected)?.to_bytes();
        self.connection = Some(sender);
        Ok((status, body))
    }
}

async fn connect(server: SocketAddr) -> Result<SendRequest<Empty<Bytes>>, Disconnected> {
    let stream = TcpStream::connect(server).await.map_err(|_| Disconnected)?;
    _ = stream.set_nodelay(true);
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|_| Disconnected)?;
    tokio::spawn(connection);
    Ok(sender)
}
