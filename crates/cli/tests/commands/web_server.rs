//! A web server whose responses are functions of the path; it notes its requests.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// A response: status, headers and body.
pub(crate) type Page = (u16, String, String);

/// It ends with the test process.
pub(crate) struct WebServer {
    pub(crate) url: String,
    requests: Arc<Requests>,
}

#[derive(Default)]
struct Requests {
    /// Their heads, in order of arrival.
    noted: Mutex<Vec<String>>,
    arrived: Condvar,
}

impl WebServer {
    /// Every request gets what `respond` makes of its path and its head; `None` never gets a response.
    pub(crate) fn new(
        respond: impl Fn(&str, &str) -> Option<Page> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Requests> = Arc::default();
        let noting = Arc::clone(&requests);
        let respond = Arc::new(respond);
        thread::spawn(move || {
            for connection in listener.incoming() {
                let (noting, respond) = (Arc::clone(&noting), Arc::clone(&respond));
                // A client that is killed closes it.
                thread::spawn(move || serve(&connection.unwrap(), &noting, &*respond));
            }
        });
        Self { url, requests }
    }

    /// Waits until so many requests have come.
    pub(crate) fn wait_for(&self, count: usize) {
        let noted = self.requests.noted.lock().unwrap();
        let limit = Duration::from_secs(60);
        let arrived = &self.requests.arrived;
        let waited = arrived.wait_timeout_while(noted, limit, |noted| noted.len() < count);
        assert!(!waited.unwrap().1.timed_out(), "too few requests came");
    }

    /// The heads of all requests.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.requests.noted.lock().unwrap().clone()
    }
}

fn serve(
    connection: &TcpStream,
    requests: &Requests,
    respond: &dyn Fn(&str, &str) -> Option<Page>,
) -> Option<()> {
    let mut lines = BufReader::new(connection).lines();
    loop {
        let mut head = String::new();
        loop {
            let line = lines.next()?.ok()?;
            if line.is_empty() {
                break;
            }
            head.push_str(&line);
            head.push('\n');
        }
        let path = head.split(' ').nth(1)?.to_owned();
        requests.noted.lock().unwrap().push(head.clone());
        requests.arrived.notify_all();
        let Some((status, headers, body)) = respond(&path, &head) else {
            // Until the client closes the connection.
            return lines.next()?.ok().map(drop);
        };
        let length = body.len();
        let head = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\n\r\n");
        let mut connection = connection;
        connection.write_all((head + &body).as_bytes()).ok()?;
    }
}

/// A page.
pub(crate) fn page(body: &str) -> Option<Page> {
    let headers = "content-type: text/html\r\n".to_owned();
    Some((200, headers, body.to_owned()))
}

/// A response without a body.
pub(crate) fn status(status: u16, headers: &str) -> Option<Page> {
    Some((status, headers.to_owned(), String::new()))
}
