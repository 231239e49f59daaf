//! HTTP/2 frame by frame, for clients and servers that send what no library would.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GO_AWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// What every client says first.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame as it is sent.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The kind, flags and stream of the next frame; `None` at the end of the connection.
pub(crate) async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> Option<(u8, u8, u32)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let [high, middle, low, kind, flags, id @ ..] = head;
    let length = u32::from_be_bytes([0, high, middle, low]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).await.ok()?;
    Some((kind, flags, u32::from_be_bytes(id)))
}

/// The headers of a request, each written out.
pub(crate) fn head(method: &str, path: &str, others: &[(&str, &str)]) -> Vec<u8> {
    let own = [
        (":method", method),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
    ];
    block(&[&own[..], others].concat())
}

/// A block of headers, each written out and none remembered (RFC 7541, section 6.2.2).
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // Seven bits hold the length; longer ones go on in the next bytes.
            match u8::try_from(text.len()) {
                Ok(length) if length < 127 => block.push(length),
                _ => {
                    block.push(127);
                    let mut rest = text.len() - 127;
                    while rest >= 128 {
                        block.push(u8::try_from(rest % 128).unwrap() | 128);
                        rest /= 128;
                    }
                    block.push(u8::try_from(rest).unwrap());
                }
            }
            block.extend(text.as_bytes());
        }
    }
    block
}

/// A frame that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// A client that speaks HTTP/2 without TLS.
pub(crate) struct FrameClient(TcpStream);

impl FrameClient {
    /// Connects, and says what every client says first.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let mut client = Self::connect_with(address, PREFACE);
        client.send(SETTINGS, 0, 0, &[]);
        client
    }

    /// Connects and says this.
    pub(crate) fn connect_with(address: SocketAddr, bytes: &[u8]) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        // Longer than any test should take.
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut client = Self(stream);
        client.send_bytes(bytes);
        client
    }

    /// Sends as much as the other side takes.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        _ = self.0.write_all(bytes);
    }

    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.send_bytes(&frame(kind, flags, stream, payload));
    }

    /// Sends a request without a body.
    pub(crate) fn get(&mut self, stream: u32, path: &str) {
        let flags = END_HEADERS | END_STREAM;
        self.send(HEADERS, flags, stream, &head("GET", path, &[]));
    }

    /// The next frame; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Received> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).ok()?;
        Some(Received {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        })
    }

    /// The next frame of this kind, with settings and pings answered meanwhile; `None` if the connection
    /// ends before it comes.
    pub(crate) fn until(&mut self, kind: u8) -> Option<Received> {
        loop {
            let received = self.next()?;
            if received.kind == kind && (kind != SETTINGS || received.flags & ACK == 0) {
                return Some(received);
            }
            match received.kind {
                SETTINGS if received.flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[]),
                PING if received.flags & ACK == 0 => self.send(PING, ACK, 0, &received.payload),
                _ => {}
            }
        }
    }

    /// Answers settings and pings until the connection ends.
    pub(crate) fn wait_for_end(&mut self) {
        // No frame has this kind.
        assert_eq!(self.until(u8::MAX), None);
    }
}
