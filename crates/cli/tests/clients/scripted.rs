//! A server that answers as a test says: statuses, files, and connections that fail.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What a request gets.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// This status with a short body.
    Status(u16),
    /// This status with this page.
    Page(u16, &'static str),
    /// A check for bots like Cloudflare's.
    Challenge,
    /// A file of this type.
    File(&'static str, Vec<u8>),
    /// A redirect to the same place.
    Loop,
    /// The beginning of a longer file, then the end of the connection.
    Cut,
    /// Nothing, for as long as the client waits.
    Hang,
    /// The end of the connection.
    Close,
}

/// The server, on a free port, until the test ends.
#[derive(Debug)]
pub(crate) struct ScriptedServer {
    address: SocketAddr,
    /// How often each path was requested.
    counts: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl ScriptedServer {
    /// Starts it; `reply` is given the path and the number of the request for that path, from 1 on.
    pub(crate) fn start(reply: impl Fn(&str, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::<Mutex<BTreeMap<String, usize>>>::default();
        let (reply, counted) = (Arc::new(reply), Arc::clone(&counts));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (reply, counts) = (Arc::clone(&reply), Arc::clone(&counted));
                // A client that goes away while it is answered is no error of the test.
                std::thread::spawn(move || _ = serve(&stream.unwrap(), &*reply, &counts));
            }
        });
        Self { address, counts }
    }

    /// The URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How often a path was requested.
    pub(crate) fn count(&self, path: &str) -> usize {
        let counts = self.counts.lock().unwrap();
        counts.get(path).copied().unwrap_or_default()
    }
}

fn serve(
    stream: &TcpStream,
    reply: &dyn Fn(&str, usize) -> Reply,
    counts: &Mutex<BTreeMap<String, usize>>,
) -> std::io::Result<()> {
    let mut head = BufReader::new(stream);
    let mut request = String::new();
    head.read_line(&mut request)?;
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let path = path.split('?').next().unwrap_or_default();
    let mut line = String::new();
    while head.read_line(&mut line)? > 2 {
        line.clear();
    }
    let number = {
        let mut counts = counts.lock().unwrap();
        let count = counts.entry(path.to_owned()).or_default();
        *count += 1;
        *count
    };
    match reply(path, number) {
        Reply::Status(status) => respond(stream, status, "text/plain", "", b"answer\n"),
        Reply::Page(status, page) => respond(stream, status, "text/html", "", page.as_bytes()),
        Reply::Challenge => {
            let headers = "server: cloudflare\r\ncf-mitigated: challenge\r\n";
            let page = b"<title>Just a moment...</title>";
            respond(stream, 403, "text/html", headers, page)
        }
        Reply::File(kind, bytes) => respond(stream, 200, kind, "", &bytes),
        Reply::Loop => {
            let location = format!("location: {path}\r\n");
            respond(stream, 302, "text/plain", &location, b"")
        }
        Reply::Cut => {
            let mut stream = stream;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nbeginning")
        }
        Reply::Hang => head.read(&mut [0]).map(|_| ()),
        Reply::Close => Ok(()),
    }
}

fn respond(
    mut stream: &TcpStream,
    status: u16,
    kind: &str,
    headers: &str,
    body: &[u8],
) -> std::io::Result<()> {
    let reason = match status {
        200 => "OK",
        403 => "Forbidden",
        404 => "Not Found",
        429 => "Too Many Requests",
        503 => "Service Unavailable",
        _ => "Other",
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\
         {headers}connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}
