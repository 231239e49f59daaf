//! What both sides of HTTP/1.1 share: bodies by their framing, and how bytes are read and written.

mod body;
mod head_text;
mod read_buffer;
mod write_buffer;

pub(crate) use body::{BodyDecoder, Decoded, read_length};
pub(crate) use head_text::{put_chunk_size, put_header, put_last_chunk, put_length, trailer_names};
pub(crate) use read_buffer::ReadBuffer;
pub(crate) use write_buffer::WriteBuffer;

/// Bytes that are not HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid HTTP: {0}")]
pub(crate) struct InvalidHttp(pub(crate) &'static str);

/// As many headers as are read of a message: more than servers take.
pub(crate) const MAX_HEADERS: usize = 100;

/// The longest head that is read.
pub(crate) const MAX_HEAD: usize = 256 << 10;
