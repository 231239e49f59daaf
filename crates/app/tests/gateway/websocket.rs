//! WebSocket as a published library speaks it, through the gateway, with and without TLS on either side.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;

use futures_util::{SinkExt, StreamExt};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{accept_hdr_async, client_async};

use crate::certificates::Authority;
use crate::listener_tls;
use crate::support::{Fixture, OPEN, free, until};
use crate::transports;

/// A server that sends back what it gets, until the client closes.
fn serve(acceptor: Option<TlsAcceptor>) -> SocketAddr {
    let (sender, address) = mpsc::channel();
    thread::spawn(move || {
        runtime().block_on(async {
            let listener = TcpListener::bind(free()).await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                match acceptor.clone() {
                    None => drop(tokio::spawn(echo(stream))),
                    Some(acceptor) => drop(tokio::spawn(async move {
                        echo(acceptor.accept(stream).await.unwrap()).await;
                    })),
                }
            }
        });
    });
    address.recv().unwrap()
}

async fn echo(stream: impl AsyncRead + AsyncWrite + Unpin) {
    #[expect(
        clippy::result_large_err,
        reason = "it is the type that the library asks for"
    )]
    let check = |request: &Request, mut response: Response| {
        assert_eq!(request.uri().path(), "/chat");
        let protocol = request.headers()["sec-websocket-protocol"].clone();
        response
            .headers_mut()
            .insert("sec-websocket-protocol", protocol);
        Ok(response)
    };
    let mut socket = accept_hdr_async(stream, check).await.unwrap();
    while let Some(Ok(message)) = socket.next().await {
        if message.is_text() || message.is_binary() {
            socket.send(message).await.unwrap();
        }
    }
    // Over TLS an end that is not announced is a broken connection, for the client too.
    socket.into_inner().shutdown().await.unwrap();
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread();
    { runtime }.enable_all().build().unwrap()
}

/// Talks to the server behind the gateway, by messages of every kind.
async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin, scheme: &str) {
    let mut request = http::Request::get(format!("{scheme}://localhost/api/chat"));
    for (name, value) in [
        ("host", "localhost"),
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "chat.v1"),
    ] {
        request = request.header(name, value);
    }
    let (mut socket, response) = client_async(request.body(()).unwrap(), stream)
        .await
        .unwrap();
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["sec-websocket-protocol"], "chat.v1");
    assert_eq!(response.headers()["tidegate-endpoint"], "a");
    let long = vec![7; 300_000];
    for message in [
        Message::text("hello"),
        Message::text(""),
        Message::binary(long),
    ] {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), message);
    }
    let ping = Bytes::from_static(b"are you there?");
    socket.send(Message::Ping(ping.clone())).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::Pong(ping));
    let close = CloseFrame {
        code: CloseCode::Normal,
        reason: "done".into(),
    };
    socket.close(Some(close.clone())).await.unwrap();
    let last = socket.next().await.unwrap().unwrap();
    assert_eq!(last, Message::Close(Some(close)));
    assert!(socket.next().await.is_none());
}

fn in_flight(gateway: &Fixture) -> u64 {
    let limiter = gateway.state.limiter();
    limiter
        .snapshot(tidegate::Sort::default(), 0)
        .totals
        .in_flight
}

fn check(is_client_tls: bool, is_upstream_tls: bool) {
    let authority = listener_tls::authority();
    let acceptor = is_upstream_tls.then(|| transports::acceptor(&authority));
    let port = serve(acceptor).port();
    let endpoint = match is_upstream_tls {
        true => format!(
            "url = \"https://localhost:{port}\", ca = \"{}\"",
            authority.file("ca.pem")
        ),
        false => format!("url = \"http://localhost:{port}\""),
    };
    let listener = match is_client_tls {
        true => listener_tls::listener(&authority, ""),
        false => String::new(),
    };
    let gateway = Fixture::new(&format!(
        "{listener}{OPEN}[pool.api]\nendpoints = [{{ name = \"a\", {endpoint} }}]\n"
    ));
    runtime().block_on(async {
        let stream = TcpStream::connect(gateway.address()).await.unwrap();
        match is_client_tls {
            true => talk(over_tls(&authority, stream).await, "wss").await,
            false => talk(stream, "ws").await,
        }
    });
    until("it is not in flight any more", || in_flight(&gateway) == 0);
}

async fn over_tls(authority: &Authority, stream: TcpStream) -> impl AsyncRead + AsyncWrite + Unpin {
    let config = listener_tls::client_config(authority, &["http/1.1"], None);
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::clone(&config));
    connector.connect(name, stream).await.unwrap()
}

#[test]
fn passes_in_plain_text() {
    check(false, false);
}

#[test]
fn passes_from_a_client_over_tls() {
    check(true, false);
}

#[test]
fn passes_to_an_upstream_over_tls_that_would_rather_speak_http2() {
    check(false, true);
}

#[test]
fn passes_over_tls_on_both_sides() {
    check(true, true);
}
