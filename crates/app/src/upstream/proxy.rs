//! The proxy that Tidegate itself uses (`network.proxy`).
//!
//! Servers with TLS, and the connections of forward mode, are reached through a tunnel that the proxy
//! makes (`CONNECT`). Requests to servers without TLS go to the proxy in absolute form: most proxies
//! refuse tunnels to port 80, and some look at such requests.
//!
//! The proxy resolves names, so the addresses that names lead to cannot be checked here: the proxy has
//! to refuse the ones that must not be reached. Addresses that are written out are checked as always.
//! This machine itself (`localhost` and loopback addresses) is never reached through the proxy, for
//! which those mean another machine.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use http::HeaderValue;
use policy::outcome::{Failure, Phase};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::lookup_host;

use super::destination::{Destination, DialledHost};
use super::error::SendError;
use super::http1::Io;
use crate::descriptors;
use crate::host_check::is_localhost;
use crate::settings::ProxySettings;

/// The proxy that Tidegate itself uses.
#[derive(Debug)]
pub(super) struct Proxy {
    host: String,
    port: u16,
    authorization: Option<HeaderValue>,
    /// By which this process recognises a tunnel that leads back to it.
    via: HeaderValue,
}

/// How requests are written to a proxy: with the whole address, and with credentials for the proxy.
#[derive(Debug)]
pub(super) struct AbsoluteForm {
    /// Scheme and authority of the server.
    pub(super) origin: Box<str>,
    /// The value of `Proxy-Authorization`.
    pub(super) authorization: Option<HeaderValue>,
}

/// The head of the proxy's response to `CONNECT`. Real ones have some hundred bytes.
const MAX_HEAD: u64 = 16 << 10;

/// Room for what is read with that head. Longer reads of the tunnel pass the buffer by.
const BUFFER: usize = 1 << 10;

impl Proxy {
    pub(super) fn new(settings: &ProxySettings, via: HeaderValue) -> Self {
        let authorization = settings.authorization.as_ref().and_then(|value| {
            let mut value = HeaderValue::from_str(value.expose()).ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        Self {
            host: settings.host.clone(),
            port: settings.port,
            authorization,
            via,
        }
    }

    /// Is this destination reached through the proxy?
    pub(super) fn is_for(&self, destination: &Destination) -> bool {
        match destination.host() {
            DialledHost::Address(address) => !address.is_loopback(),
            DialledHost::Name(name) => !is_localhost(name),
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The proxy's addresses. The operator wrote it, so every address will do.
    pub(super) async fn resolve(&self) -> Result<Vec<IpAddr>, SendError> {
        let found = lookup_host((self.host.as_str(), self.port)).await;
        let found = found.map_err(|error| match descriptors::are_used_up(&error) {
            true => SendError::no_descriptors(),
            false => failed(Failure::Dns, "its name did not resolve").at_proxy(),
        })?;
        Ok(found.map(|address| address.ip()).collect())
    }

    /// How requests to `destination` are written to the proxy.
    pub(super) fn absolute_form(&self, destination: &Destination) -> AbsoluteForm {
        let authority = destination.authority().to_str().unwrap_or_default();
        AbsoluteForm {
            origin: format!("http://{authority}").into(),
            authorization: self.authorization.clone(),
        }
    }

    /// Asks the proxy, which `stream` leads to, for a tunnel to `destination`.
    pub(super) async fn tunnel<T: Io>(
        &self,
        mut stream: T,
        destination: &Destination,
    ) -> Result<BufReader<T>, SendError> {
        let broken = |_| failed(Failure::Reset, "the connection broke").at_proxy();
        let request = self.connect_request(&destination.host_and_port());
        stream.write_all(&request).await.map_err(broken)?;
        stream.flush().await.map_err(broken)?;
        let mut stream = BufReader::with_capacity(BUFFER, stream);
        let status = read_status(&mut stream).await?;
        match status {
            200..300 => Ok(stream),
            407 => Err(SendError::proxy_credentials()),
            status => Err(SendError::refused_by_proxy(status)),
        }
    }

    fn connect_request(&self, authority: &str) -> Vec<u8> {
        let mut request =
            format!("CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n").into_bytes();
        let fields = [
            ("via", Some(&self.via)),
            ("proxy-authorization", self.authorization.as_ref()),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                for part in [name.as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                    request.extend_from_slice(part);
                }
            }
        }
        request.extend_from_slice(b"\r\n");
        request
    }
}

/// Reads the head of a response, and returns its status.
async fn read_status<T: Io>(stream: &mut BufReader<T>) -> Result<u16, SendError> {
    let invalid = || failed(Failure::Reset, "the proxy's response was not HTTP");
    let mut head = stream.take(MAX_HEAD);
    let mut status = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = head.read_until(b'\n', &mut line).await;
        if read.is_err() || !line.ends_with(b"\n") {
            return Err(invalid());
        }
        match (status, line.trim_ascii_end()) {
            (None, first) => status = Some(status_in(first).ok_or_else(invalid)?),
            // An informational response comes before another.
            (Some(100..200), b"") => status = None,
            (Some(status), b"") => return Ok(status),
            (Some(_), _) => {}
        }
    }
}

/// The status of a line such as `HTTP/1.1 200 OK`.
fn status_in(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let digits = std::str::from_utf8(rest.get(2..5)?).ok()?;
    let is_status = rest.get(1) == Some(&b' ') && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_status)
}

fn failed(failure: Failure, message: impl Into<String>) -> SendError {
    SendError::failed(failure, Phase::Connecting, message)
}

/// What this process writes into `Via`, to recognise requests that come back to it.
pub(super) fn new_via() -> HeaderValue {
    // The hasher of the standard library is seeded by the system.
    let id = RandomState::new().hash_one(0) >> 32;
    let via = HeaderValue::try_from(format!("1.1 tidegate-{id:08x}"));
    via.expect("made of letters and digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static str) -> Option<(u16, String)> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (near, mut far) = tokio::io::duplex(64);
            tokio::spawn(async move {
                _ = far.write_all(text.as_bytes()).await;
            });
            let mut stream = BufReader::with_capacity(BUFFER, near);
            let status = read_status(&mut stream).await.ok()?;
            let mut rest = String::new();
            stream.read_to_string(&mut rest).await.ok()?;
            Some((status, rest))
        })
    }

    #[test]
    fn reads_the_head_and_leaves_what_follows() {
        let check = |text, status, rest: &str| {
            assert_eq!(read(text), Some((status, rest.to_owned())), "{text}");
        };
        check(
            "HTTP/1.1 200 Connection established\r\n\r\nSSH-2.0",
            200,
            "SSH-2.0",
        );
        check("HTTP/1.0 403 no\r\nserver: x\r\n\r\n", 403, "");
        check("HTTP/1.1 200\n\nx", 200, "x");
        check("HTTP/1.1 100 c\r\n\r\nHTTP/1.1 200 ok\r\n\r\nx", 200, "x");
    }

    #[test]
    fn refuses_what_is_no_response() {
        for text in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 2x0 OK\r\n\r\n",
            "SSH-2.0\r\n\r\n",
            "HTTP/2 200\r\n\r\n",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
