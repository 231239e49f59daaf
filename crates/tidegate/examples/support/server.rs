//! A minimal server: one response per connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A response: status, additional header lines, body.
pub(crate) struct Answer(pub(crate) u16, pub(crate) &'static str, pub(crate) String);

/// Listens on a free local port and answers the n-th request, counted from 1, with `answer(n,
/// path)`. It ends with the runtime.
pub(crate) async fn serve(
    answer: impl Fn(u32, &str) -> Answer + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        let mut number = 0;
        while let Ok((stream, _)) = listener.accept().await {
            number += 1;
            let answer = Arc::clone(&answer);
            tokio::spawn(async move { reply(stream, |path| answer(number, path)).await });
        }
    });
    Ok(address)
}

async fn reply(mut stream: TcpStream, answer: impl Fn(&str) -> Answer) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or("/");
    let Answer(status, fields, body) = answer(path);
    let length = body.len();
    let reply = format!(
        "HTTP/1.1 {status} -\r\n{fields}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(reply.as_bytes()).await
}
