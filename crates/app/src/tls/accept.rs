//! Begins TLS on a connection that a listener accepted.
//!
//! Before anything is decrypted, the first byte says what the client speaks: a client of plain HTTP
//! gets a response that it can read, instead of an alert that it reports as garbage.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Why there is no TLS on a connection.
#[derive(Debug)]
pub(crate) enum NoTls {
    /// The client speaks something else, most likely plain HTTP.
    PlainText(TcpStream),
    /// The handshake failed, or was not finished in time.
    Failed(io::Error),
}

/// For a handshake from the first byte to the last: two round trips of the slowest network, and time
/// for a server that has many at once.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// As much as is encrypted ahead of a client that does not read.
const MAX_ENCRYPTED: usize = 16 << 10;

/// The first byte of TLS: a handshake record.
const HANDSHAKE: u8 = 0x16;

/// Begins TLS on a new connection. `slots` bounds how many handshakes are under way: a client takes one
/// when it begins to send. `wrap` is put between the socket and TLS.
pub(crate) async fn accept<T>(
    config: Arc<ServerConfig>,
    slots: &Semaphore,
    stream: TcpStream,
    wrap: impl FnOnce(TcpStream) -> T,
) -> Result<TlsStream<T>, NoTls>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let accepting = async {
        let mut first = [0];
        if stream.peek(&mut first).await.map_err(NoTls::Failed)? == 0 {
            return Err(NoTls::Failed(io::ErrorKind::UnexpectedEof.into()));
        }
        if first[0] != HANDSHAKE {
            return Err(NoTls::PlainText(stream));
        }
        // Never closed.
        let _slot = slots.acquire().await;
        let acceptor = TlsAcceptor::from(config);
        let accepting = acceptor.accept_with(wrap(stream), |session| {
            session.set_buffer_limit(Some(MAX_ENCRYPTED));
        });
        accepting.await.map_err(NoTls::Failed)
    };
    match timeout(HANDSHAKE_TIMEOUT, accepting).await {
        Ok(accepted) => accepted,
        Err(_) => Err(NoTls::Failed(io::ErrorKind::TimedOut.into())),
    }
}

/// Answers a client that speaks plain text with these bytes, and closes the connection.
pub(crate) async fn answer_in_plain_text(mut stream: TcpStream, answer: &[u8]) {
    let answering = async {
        stream.write_all(answer).await?;
        stream.shutdown().await?;
        // Closing a socket with unread bytes resets the connection, and the reset may overtake the
        // answer.
        let mut unread = stream.take(MAX_UNREAD);
        tokio::io::copy(&mut unread, &mut tokio::io::sink()).await
    };
    // How it ends concerns only the client.
    _ = timeout(ANSWER_TIMEOUT, answering).await;
}

/// As much as is read of what such a client sends: more than a head.
const MAX_UNREAD: u64 = 1 << 20;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The answer to a client that speaks plain HTTP, in a sentence.
pub(crate) const NOT_TLS: &str = "this port speaks TLS: use an address that begins with `https://`";

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::tls::{Certificates, Identity, ListenerTls};

    fn listener_tls() -> ListenerTls {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let chain = Certificates::from_pem(made.cert.pem().as_bytes()).unwrap();
        let key = made.signing_key.serialize_pem();
        let identity = Identity::new(chain, key.as_bytes(), "cert").unwrap();
        ListenerTls::new(identity, None, &[])
    }

    /// What becomes of a client that sends these bytes and waits. Virtual time: when nothing else can
    /// happen, the timeout does.
    fn accepted(bytes: &[u8], slots: usize) -> NoTls {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            io::Write::write_all(&mut &client, bytes).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let slots = Semaphore::new(slots);
            let config = Arc::clone(listener_tls().config());
            let accepted = accept(config, &slots, stream, |stream| stream).await;
            accepted.expect_err("nothing here is a handshake")
        })
    }

    fn kind(no_tls: &NoTls) -> Option<io::ErrorKind> {
        match no_tls {
            NoTls::PlainText(_) => None,
            NoTls::Failed(error) => Some(error.kind()),
        }
    }

    #[test]
    fn tells_plain_text_from_handshakes() {
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"P", b"\x80\x2e\x01"] {
            assert_eq!(kind(&accepted(bytes, 1)), None, "{bytes:?}");
        }
        let broken = accepted(b"\x16\x03\x01\x00\x05hello", 1);
        assert_eq!(kind(&broken), Some(io::ErrorKind::InvalidData));
    }

    #[test]
    fn does_not_wait_for_ever_for_a_client_or_a_slot() {
        for (bytes, slots) in [
            (&b""[..], 1),
            (b"\x16", 1),
            (b"\x16\x03\x01\x02\x00", 1),
            (b"\x16", 0),
        ] {
            let no_tls = accepted(bytes, slots);
            assert_eq!(kind(&no_tls), Some(io::ErrorKind::TimedOut), "{bytes:?}");
        }
    }
}
