//! A server with the status of a job: its responses are given, and it notes its requests.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A response: status, headers and body.
pub(crate) type Response = (u16, &'static str, String);

/// It ends with the test process.
pub(crate) struct JobServer {
    pub(crate) url: String,
    requests: Arc<Requests>,
}

#[derive(Default)]
struct Requests {
    noted: Mutex<Vec<(Instant, String)>>,
    arrived: Condvar,
}

impl JobServer {
    /// The n-th request gets the n-th response; after the last, the last one again.
    pub(crate) fn new(responses: Vec<Response>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/jobs/7", listener.local_addr().unwrap());
        let requests: Arc<Requests> = Arc::default();
        let noting = Arc::clone(&requests);
        thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let head = read_head(&connection);
                let mut noted = noting.noted.lock().unwrap();
                let last = responses.len() - 1;
                let response = &responses[noted.len().min(last)];
                noted.push((Instant::now(), head));
                drop(noted);
                noting.arrived.notify_all();
                _ = connection.write_all(&written(response));
            }
        });
        Self { url, requests }
    }

    /// Waits for the first request.
    pub(crate) fn wait_for_request(&self) {
        let noted = self.requests.noted.lock().unwrap();
        let limit = Duration::from_secs(30);
        let arrived = &self.requests.arrived;
        let waited = arrived.wait_timeout_while(noted, limit, |noted| noted.is_empty());
        assert!(!waited.unwrap().1.timed_out(), "no request came");
    }

    /// The heads of all requests.
    pub(crate) fn heads(&self) -> Vec<String> {
        let requests = self.requests.noted.lock().unwrap();
        requests.iter().map(|(_, head)| head.clone()).collect()
    }

    /// The times between requests.
    pub(crate) fn gaps(&self) -> Vec<Duration> {
        let requests = self.requests.noted.lock().unwrap();
        let times: Vec<Instant> = requests.iter().map(|(at, _)| *at).collect();
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

fn read_head(connection: &TcpStream) -> String {
    let mut head = String::new();
    for line in BufReader::new(connection).lines() {
        match line {
            Ok(line) if !line.is_empty() => head.push_str(&format!("{line}\n")),
            _ => break,
        }
    }
    head
}

fn written((status, headers, body): &Response) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\n");
    format!("{head}connection: close\r\n\r\n{body}").into_bytes()
}

/// A job that runs.
pub(crate) fn running(status: &str, progress: u32) -> Response {
    let body = format!("{{\"status\":\"{status}\",\"progress\":{progress}}}");
    (200, "content-type: application/json\r\n", body)
}

/// A job with another status, or an error.
pub(crate) fn response(status: u16, body: &str) -> Response {
    (
        status,
        "content-type: application/json\r\n",
        body.to_owned(),
    )
}

pub(crate) fn done() -> Response {
    response(200, r#"{"status":"done","progress":100,"result":[1,2]}"#)
}
