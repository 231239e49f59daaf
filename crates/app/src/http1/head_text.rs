//! The text of heads and chunks: fields and numbers.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, header};
use hyper::body::Frame;

/// Appends a line with a field.
pub(crate) fn put_header(text: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    text.extend_from_slice(name.as_str().as_bytes());
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}

/// Appends a line with a number.
pub(crate) fn put_number_header(text: &mut Vec<u8>, name: &HeaderName, number: u64) {
    text.extend_from_slice(name.as_str().as_bytes());
    text.extend_from_slice(b": ");
    put_number(text, number, 10);
    text.extend_from_slice(b"\r\n");
}

/// Appends the length of a body that is not in chunks.
pub(crate) fn put_length(text: &mut Vec<u8>, length: u64) {
    text.extend_from_slice(b"content-length: ");
    put_number(text, length, 10);
    text.extend_from_slice(b"\r\n");
}

/// Appends the line before a chunk.
pub(crate) fn put_chunk_size(text: &mut Vec<u8>, length: usize) {
    put_number(text, length as u64, 16);
    text.extend_from_slice(b"\r\n");
}

fn put_number(text: &mut Vec<u8>, mut number: u64, base: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b"0123456789abcdef"[usize::try_from(number % base).unwrap_or_default()];
        number /= base;
        if number == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[start..]);
}

/// The trailers that a message announces. Others are not sent: who was not told of them may take them
/// for headers.
pub(crate) fn trailer_names(headers: &HeaderMap) -> Vec<HeaderName> {
    let announced = headers.get_all(header::TRAILER).iter();
    let announced = announced.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let names = announced.map(|name| HeaderName::from_bytes(name.trim_ascii()));
    names.flatten().collect()
}

/// Appends the end of a body in chunks, with those of the trailers that were announced.
pub(crate) fn put_last_chunk(text: &mut Vec<u8>, names: &[HeaderName], end: Option<Frame<Bytes>>) {
    text.extend_from_slice(b"0\r\n");
    if let Some(Ok(trailers)) = end.map(Frame::into_trailers) {
        for (name, value) in &trailers {
            if names.contains(name) {
                put_header(text, name, value.as_bytes());
            }
        }
    }
    text.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_numbers_of_every_length() {
        for number in [0, 1, 9, 10, 15, 16, 255, 1 << 20, u64::MAX] {
            let mut text = Vec::new();
            put_number(&mut text, number, 10);
            text.push(b' ');
            put_number(&mut text, number, 16);
            assert_eq!(text, format!("{number} {number:x}").into_bytes());
        }
    }
}
