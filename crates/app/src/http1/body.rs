//! Bodies by their framing. It sees bytes as they arrive and does no IO.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use httparse::Status;
use hyper::body::Frame;

use super::{InvalidHttp, MAX_HEADERS};

/// Digits alone: other servers may read a sign differently.
pub(crate) fn read_length(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number
        .then(|| std::str::from_utf8(text).ok()?.parse().ok())
        .flatten()
}

/// Reads a body by its framing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyDecoder {
    /// So many bytes are to come.
    Length(u64),
    Chunked(Box<ChunkDecoder>),
    /// It lasts until the server closes the connection.
    UntilClose,
}

/// What the next bytes of a body are.
#[derive(Debug)]
pub(crate) enum Decoded {
    Frame(Frame<Bytes>),
    /// Nothing yet: more bytes are needed.
    More,
    End,
}

impl BodyDecoder {
    /// Takes the next frame off the bytes.
    pub(crate) fn decode(&mut self, bytes: &mut Bytes) -> Result<Decoded, InvalidHttp> {
        match self {
            Self::Length(0) => Ok(Decoded::End),
            Self::Chunked(chunked) => chunked.decode(bytes),
            _ if bytes.is_empty() => Ok(Decoded::More),
            Self::Length(left) => Ok(take_data(bytes, left)),
            Self::UntilClose => Ok(Decoded::Frame(Frame::data(std::mem::take(bytes)))),
        }
    }

    /// Is it over?
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunked) => chunked.part == ChunkPart::End,
            Self::UntilClose => false,
        }
    }

    /// How many bytes are to come, if that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(*left),
            Self::Chunked(_) | Self::UntilClose => None,
        }
    }

    /// How many bytes of data follow each other from here on, as far as that is known.
    pub(crate) fn run(&self) -> u64 {
        match self {
            Self::Length(left) => *left,
            Self::Chunked(chunked) => match chunked.part {
                ChunkPart::Data(left) => left,
                _ => 0,
            },
            Self::UntilClose => 0,
        }
    }
}

/// Data of a piece with so many bytes left.
fn take_data(bytes: &mut Bytes, left: &mut u64) -> Decoded {
    let length = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
    *left -= length as u64;
    let data = match length == bytes.len() {
        true => std::mem::take(bytes),
        false => bytes.split_to(length),
    };
    Decoded::Frame(Frame::data(data))
}

/// Reads a body in chunks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkDecoder {
    part: ChunkPart,
    /// The beginning of a line whose end has not come yet, or the trailers so far.
    kept: BytesMut,
    /// How long the extensions of all chunks were.
    extensions: usize,
}

/// Where in a chunked body the next byte is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkPart {
    #[default]
    Size,
    /// In a chunk, with so many bytes to come.
    Data(u64),
    /// At the end of a chunk.
    DataEnd,
    Trailers,
    End,
}

/// The longest line with a chunk's size, the longest extensions of all chunks, and the longest
/// trailers.
const MAX_KEPT: usize = 16 << 10;

impl ChunkDecoder {
    fn decode(&mut self, bytes: &mut Bytes) -> Result<Decoded, InvalidHttp> {
        loop {
            if self.part == ChunkPart::End {
                return Ok(Decoded::End);
            }
            if bytes.is_empty() {
                return Ok(Decoded::More);
            }
            if let ChunkPart::Data(left) = &mut self.part {
                let data = take_data(bytes, left);
                if *left == 0 {
                    self.part = ChunkPart::DataEnd;
                }
                return Ok(data);
            }
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                self.keep(bytes)?;
                bytes.clear();
                return Ok(Decoded::More);
            };
            let line = bytes.split_to(end + 1);
            // It may have come in pieces.
            self.keep(&line)?;
            match self.part {
                ChunkPart::Trailers => {
                    if self.kept[..] == *b"\r\n" || self.kept.ends_with(b"\n\r\n") {
                        self.part = ChunkPart::End;
                        return self.trailers();
                    }
                }
                ChunkPart::DataEnd => {
                    if self.kept[..] != *b"\r\n" {
                        return Err(InvalidHttp("a chunk longer than its size"));
                    }
                    self.kept.clear();
                    self.part = ChunkPart::Size;
                }
                _ => {
                    let size = chunk_size(&self.kept);
                    let (size, extension) = size.ok_or(InvalidHttp("the size of a chunk"))?;
                    self.extensions += extension;
                    if self.extensions > MAX_KEPT {
                        return Err(InvalidHttp("too long extensions of chunks"));
                    }
                    self.part = match size {
                        0 => ChunkPart::Trailers,
                        size => ChunkPart::Data(size),
                    };
                    self.kept.clear();
                }
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), InvalidHttp> {
        if self.kept.len() + bytes.len() > MAX_KEPT {
            return Err(InvalidHttp("a line that is too long"));
        }
        self.kept.extend_from_slice(bytes);
        Ok(())
    }

    fn trailers(&mut self) -> Result<Decoded, InvalidHttp> {
        let text = std::mem::take(&mut self.kept);
        if text[..] == *b"\r\n" {
            return Ok(Decoded::End);
        }
        let mut fields = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let fields = match httparse::parse_headers(&text, &mut fields) {
            Ok(Status::Complete((length, fields))) if length == text.len() => fields,
            _ => return Err(InvalidHttp("its trailers")),
        };
        let mut trailers = HeaderMap::with_capacity(fields.len());
        for field in fields {
            let name = HeaderName::from_bytes(field.name.as_bytes());
            let value = HeaderValue::from_bytes(field.value);
            let (Ok(name), Ok(value)) = (name, value) else {
                return Err(InvalidHttp("its trailers"));
            };
            trailers.append(name, value);
        }
        Ok(Decoded::Frame(Frame::trailers(trailers)))
    }
}

/// The size of a chunk, from its line: hexadecimal digits, and perhaps an extension, which says
/// nothing that anyone uses. With the length of that.
fn chunk_size(line: &[u8]) -> Option<(u64, usize)> {
    let line = line.strip_suffix(b"\r\n")?;
    let end = line.iter().position(|byte| !byte.is_ascii_hexdigit());
    let (digits, rest) = line.split_at(end.unwrap_or(line.len()));
    let rest = rest.trim_ascii_start();
    let is_extension = rest.is_empty() || (rest.starts_with(b";") && !rest.contains(&b'\r'));
    let digits = std::str::from_utf8(digits).ok()?;
    let size = u64::from_str_radix(digits, 16).ok()?;
    is_extension.then_some((size, rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a chunked body comes to: its data, trailers as text, and what is left behind it.
    fn chunks(text: &str, size: usize) -> Result<(String, String, String), InvalidHttp> {
        let mut decoder = BodyDecoder::Chunked(Box::default());
        let (mut data, mut trailers) = (String::new(), String::new());
        let mut pieces = text.as_bytes().chunks(size);
        let mut bytes = Bytes::new();
        loop {
            match decoder.decode(&mut bytes)? {
                Decoded::Frame(frame) => match frame.into_data() {
                    Ok(piece) => data.push_str(std::str::from_utf8(&piece).unwrap()),
                    Err(frame) => trailers = format!("{:?}", frame.into_trailers().unwrap()),
                },
                Decoded::End => break,
                Decoded::More => {
                    assert!(bytes.is_empty());
                    bytes = Bytes::copy_from_slice(pieces.next().unwrap_or(b""));
                    if bytes.is_empty() {
                        return Err(InvalidHttp("the end"));
                    }
                }
            }
        }
        assert!(decoder.has_ended());
        let mut rest = String::from_utf8_lossy(&bytes).into_owned();
        for piece in pieces {
            rest.push_str(std::str::from_utf8(piece).unwrap());
        }
        Ok((data, trailers, rest))
    }

    fn check_chunks(text: &str, expected: Option<(&str, &str, &str)>) {
        for size in [1, 2, 3, 7, text.len()] {
            let found = chunks(text, size).ok();
            let found = found
                .as_ref()
                .map(|(data, trailers, rest)| (&**data, &**trailers, &**rest));
            assert_eq!(found, expected, "{text:?} in pieces of {size}");
        }
    }

    #[test]
    fn reads_chunks_with_extensions_and_trailers() {
        check_chunks("0\r\n\r\n", Some(("", "", "")));
        check_chunks(
            "3\r\nabc\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n\r\nnext",
            Some(("abc0123456789", "", "next")),
        );
        check_chunks(
            "1 \t;a\r\nx\r\n000\r\na: 1\r\nb: 2\r\n\r\n",
            Some(("x", r#"{"a": "1", "b": "2"}"#, "")),
        );
    }

    #[test]
    fn refuses_malformed_chunks() {
        for text in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\na\r\n0\r\n\r\n",
            "0x1\r\na\r\n0\r\n\r\n",
            "1\na\r\n0\r\n\r\n",
            "1 2\r\na\r\n0\r\n\r\n",
            "1;\r \r\na\r\n0\r\n\r\n",
            "1\r\nab\r\n0\r\n\r\n",
            "1\r\na\n0\r\n\r\n",
            "11111111111111111\r\na",
            "0\r\nno colon\r\n\r\n",
            "0\r\na: 1\r\n",
            "0\r\na: 1\n\nb: 2\r\n\r\n",
            "1\r\na\r\n",
        ] {
            check_chunks(text, None);
        }
        let long = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(MAX_KEPT));
        check_chunks(&long, None);
        let long = format!("0\r\na: {}\r\n\r\n", "x".repeat(MAX_KEPT));
        check_chunks(&long, None);
        let many = format!("1;{}\r\na\r\n", "x".repeat(100)).repeat(MAX_KEPT / 100);
        check_chunks(&format!("{many}0\r\n\r\n"), None);
    }
}
