//! Answers as they come over the wire, read by hand: a client of the tests must not mend what is
//! wrong with them.

use std::fmt;
use std::io::{self, BufRead};

use serde_json::Value;

/// An answer. Names of headers are in lower case.
#[derive(Clone, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

impl Reply {
    /// Reads an answer to its end.
    pub(crate) fn read(from: &mut impl BufRead, is_head: bool) -> io::Result<Self> {
        let mut reply = Self::read_head(from)?;
        if is_head || matches!(reply.status, 100..200 | 204 | 304) {
            return Ok(reply);
        }
        if reply.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = chunk(from)? {
                reply.body.extend(chunk);
            }
            reply.trailers = header_lines(from)?;
        } else if let Some(length) = reply.header("content-length") {
            reply.body.resize(length.parse().unwrap(), 0);
            from.read_exact(&mut reply.body)?;
        } else {
            from.read_to_end(&mut reply.body)?;
        }
        Ok(reply)
    }

    /// Reads an answer up to its body.
    pub(crate) fn read_head(from: &mut impl BufRead) -> io::Result<Self> {
        let line = line(from)?;
        let status = line.split(' ').nth(1);
        let status = status.and_then(|status| status.parse().ok());
        Ok(Self {
            status: status.ok_or(io::ErrorKind::UnexpectedEof)?,
            headers: header_lines(from)?,
            ..Self::default()
        })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = String::from_utf8_lossy(&self.body);
        write!(
            f,
            "{} {:?} {body:?} {:?}",
            self.status, self.headers, self.trailers
        )
    }
}

/// The next piece of a body in pieces; `None` after the last.
pub(crate) fn chunk(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let length = usize::from_str_radix(&line(from)?, 16);
    let length = length.map_err(|_| io::ErrorKind::UnexpectedEof)?;
    if length == 0 {
        return Ok(None);
    }
    let mut chunk = vec![0; length + 2];
    from.read_exact(&mut chunk)?;
    chunk.truncate(length);
    Ok(Some(chunk))
}

fn header_lines(from: &mut impl BufRead) -> io::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    loop {
        let line = line(from)?;
        let Some((name, value)) = line.split_once(':') else {
            return Ok(headers);
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}
