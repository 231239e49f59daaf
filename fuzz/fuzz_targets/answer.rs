//! Any bytes as an answer: status on the first line, headers, an empty line, the body. The same
//! form as the files of the tests' corpus, but nothing is ever refused.

use policy::hint::Response;

pub type Headers<'a> = Vec<(&'a str, &'a [u8])>;

pub fn parse(raw: &[u8]) -> Response<'_, Headers<'_>> {
    let (head, body) = match raw.windows(2).position(|pair| pair == b"\n\n") {
        Some(end) => (&raw[..end], &raw[end + 2..]),
        None => (raw, &raw[raw.len()..]),
    };
    let mut lines = head.split(|&byte| byte == b'\n');
    let status = lines.next().and_then(|line| std::str::from_utf8(line).ok());
    Response {
        status: status.and_then(|text| text.parse().ok()).unwrap_or(429),
        headers: lines.filter_map(header).collect(),
        body,
    }
}

fn header(line: &[u8]) -> Option<(&str, &[u8])> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let name = std::str::from_utf8(&line[..colon]).ok()?;
    Some((name, line[colon + 1..].trim_ascii()))
}
