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
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::replaceable::{ReplaceableConnection, ReplaceableConnections};

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

const REPLACED: &str = "too many handshakes were under way, and this was the oldest";

/// As much as is encrypted ahead of a client that does not read.
const MAX_ENCRYPTED: usize = 16 << 10;

/// The first byte of TLS: a handshake record.
const HANDSHAKE: u8 = 0x16;

/// The handshakes under way, up to a bound: past it the oldest fails for the next.
#[derive(Debug)]
pub(crate) struct Handshakes {
    most: usize,
    under_way: Arc<ReplaceableConnections>,
}

impl Handshakes {
    /// Up to so many.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            under_way: Arc::default(),
        }
    }

    fn begin(&self) -> ReplaceableConnection {
        if self.under_way.len() >= self.most {
            self.under_way.close_oldest();
        }
        ReplaceableConnections::add(&self.under_way)
    }
}

/// Begins TLS on a new connection. It is one of `handshakes` from its first byte on. `wrap` is put
/// between the socket and TLS.
pub(crate) async fn accept<T>(
    config: Arc<ServerConfig>,
    handshakes: &Handshakes,
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
        let handshake = handshakes.begin();
        let acceptor = TlsAcceptor::from(config);
        let accepting = acceptor.accept_with(wrap(stream), |session| {
            session.set_buffer_limit(Some(MAX_ENCRYPTED));
        });
        tokio::select! {
            biased;
            accepted = accepting => accepted.map_err(NoTls::Failed),
            () = handshake.closed() => Err(NoTls::Failed(io::Error::other(REPLACED))),
        }
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

    /// What becomes of clients that send these bytes and wait, the first of them first, if so many
    /// handshakes may be under way. Virtual time: when nothing else can happen, the timeout does.
    fn accepted(clients: &[&[u8]], most: usize) -> NoTls {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let handshakes = Arc::new(Handshakes::new(most));
            let mut accepting = Vec::new();
            for bytes in clients {
                let address = listener.local_addr().unwrap();
                let client = std::net::TcpStream::connect(address).unwrap();
                io::Write::write_all(&mut &client, bytes).unwrap();
                let (stream, _) = listener.accept().await.unwrap();
                let config = Arc::clone(listener_tls().config());
                let handshakes = Arc::clone(&handshakes);
                accepting.push(tokio::spawn(async move {
                    let _client = client;
                    accept(config, &handshakes, stream, |stream| stream).await
                }));
            }
            let first = accepting.swap_remove(0).await.unwrap();
            first.expect_err("nothing here is a handshake")
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
            assert_eq!(kind(&accepted(&[bytes], 1)), None, "{bytes:?}");
        }
        let broken = accepted(&[b"\x16\x03\x01\x00\x05hello"], 1);
        assert_eq!(kind(&broken), Some(io::ErrorKind::InvalidData));
    }

    #[test]
    fn does_not_wait_for_ever_for_a_client() {
        for bytes in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00"] {
            let no_tls = accepted(&[bytes], 1);
            assert_eq!(kind(&no_tls), Some(io::ErrorKind::TimedOut), "{bytes:?}");
        }
    }

    #[test]
    fn ends_the_oldest_handshake_when_too_many_are_under_way() {
        for (clients, first) in [
            (&[&b"\x16"[..], b"\x16"][..], io::ErrorKind::TimedOut),
            (&[b"\x16", b"\x16", b"\x16"], io::ErrorKind::Other),
            // Those that have sent nothing are none.
            (&[b"\x16", b"", b"\x16"], io::ErrorKind::TimedOut),
        ] {
            assert_eq!(kind(&accepted(clients, 2)), Some(first), "{clients:?}");
        }
    }
}
