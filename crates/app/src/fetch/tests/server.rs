//! A scripted HTTP server on loopback.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A server that replies by a script. It runs until the process ends.
pub(super) struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

/// What was requested.
#[derive(Debug, Default)]
struct Seen {
    counts: HashMap<String, u32>,
    /// The head of every request, by path.
    heads: Vec<(String, String)>,
}

/// A response.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// What is sent over and over instead of the rest.
    endless: Option<Endless>,
}

#[derive(Clone, Copy, Debug)]
enum Endless {
    Head,
    Body,
}

impl Reply {
    pub(super) fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            endless: None,
        }
    }

    pub(super) fn text(text: &str) -> Self {
        Self::status(200).with_body("text/plain", text.as_bytes())
    }

    pub(super) fn html(text: &str) -> Self {
        Self::status(200).with_body("text/html", text.as_bytes())
    }

    pub(super) fn redirect(location: &str) -> Self {
        Self::status(302).with_header("location", location)
    }

    /// A head without an end.
    pub(super) fn endless_head() -> Self {
        Self {
            endless: Some(Endless::Head),
            ..Self::status(200)
        }
    }

    /// A body without an end.
    pub(super) fn endless_body(content_type: &str) -> Self {
        Self {
            endless: Some(Endless::Body),
            ..Self::status(200).with_header("content-type", content_type)
        }
    }

    pub(super) fn with_body(mut self, content_type: &str, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self.with_header("content-type", content_type)
    }

    pub(super) fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends it; fails if the client has gone.
    fn send(&self, connection: &mut impl Write) -> io::Result<()> {
        connection.write_all(&self.bytes())?;
        let repeated = match self.endless {
            None => return Ok(()),
            Some(Endless::Head) => format!("x: {}\r\n", "x".repeat(1000)),
            Some(Endless::Body) => format!("3e8\r\n{}\r\n", "x".repeat(1000)),
        };
        loop {
            connection.write_all(repeated.as_bytes())?;
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("HTTP/1.1 {} X\r\n", self.status);
        match self.endless {
            None => bytes += &format!("content-length: {}\r\n", self.body.len()),
            Some(Endless::Head) => return bytes.into_bytes(),
            Some(Endless::Body) => bytes += "transfer-encoding: chunked\r\n",
        }
        for (name, value) in &self.headers {
            bytes += &format!("{name}: {value}\r\n");
        }
        bytes += "\r\n";
        let mut bytes = bytes.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

impl Server {
    /// Replies by path.
    pub(super) fn start(script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_counting(move |path, _| script(path))
    }

    /// Replies by path and the number of the request for it, counted from 1.
    pub(super) fn start_counting(
        script: impl Fn(&str, u32) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Seen>>::default();
        let (shared, script) = (Arc::clone(&seen), Arc::new(script));
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let (seen, script) = (Arc::clone(&shared), Arc::clone(&script));
                thread::spawn(move || serve(&connection, &seen, &*script));
            }
        });
        Self { address, seen }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How many requests for a path there were.
    pub(super) fn requests(&self, path: &str) -> u32 {
        self.seen
            .lock()
            .unwrap()
            .counts
            .get(path)
            .copied()
            .unwrap_or_default()
    }

    /// The heads of all requests for a path.
    pub(super) fn heads(&self, path: &str) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let heads = seen.heads.iter().filter(|(known, _)| known == path);
        heads.map(|(_, head)| head.clone()).collect()
    }
}

fn serve(connection: &TcpStream, seen: &Mutex<Seen>, script: &dyn Fn(&str, u32) -> Reply) {
    let mut reader = BufReader::new(connection);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or_default() == 0 {
                return;
            }
        }
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.heads.push((path.clone(), head));
            let count = seen.counts.entry(path.clone()).or_default();
            *count += 1;
            *count
        };
        if script(&path, number).send(&mut &*connection).is_err() {
            return;
        }
    }
}
