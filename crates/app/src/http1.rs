//! HTTP/1.1, spoken by ourselves: to clients ([`server`]), and with `upstream::http1` to upstreams.
//!
//! hyper serves HTTP/2 only. What both sides of HTTP/1.1 share is here too: bodies by their framing, and
//! how bytes are read and written. The syntax of heads is left to `httparse`.

mod body;
mod connection;
mod date;
mod head_text;
mod read_buffer;
mod request_head;
mod response_writer;
pub(crate) mod server;
mod write_buffer;

pub(crate) use body::{BodyDecoder, Decoded, read_length};
pub(crate) use connection::{ClientConnection, ClientStream, Http1Body, UpgradeTicket};
pub(crate) use head_text::{
    put_chunk_size, put_header, put_last_chunk, put_length, put_number_header, trailer_names,
};
pub(crate) use read_buffer::ReadBuffer;
pub(crate) use request_head::Refusal;
pub(crate) use response_writer::{HeadLines, MarkedResponse, response_bytes};
pub(crate) use write_buffer::WriteBuffer;

/// Bytes that are not HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid HTTP: {0}")]
pub(crate) struct InvalidHttp(pub(crate) &'static str);

/// As many headers as are read of a message: more than servers take.
pub(crate) const MAX_HEADERS: usize = 100;

/// The longest head that is read. The gateway's guard is stricter about the headers of requests.
pub(crate) const MAX_HEAD: usize = 256 << 10;
