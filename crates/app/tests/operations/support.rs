//! A state with a worker that delivers its operations, and an upstream with scripted responses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use app::core::Core;
use app::gateway::Gateway;
use app::log::Log;
use app::operations::OperationWorker;
use app::settings::{Process, Settings, Sources};
use app::state::{AcceptError, Accepted, OperationError, OperationRequest, State};
use policy::operation::OperationEvent;
use store::Store;
use store::operations::{AttemptRecord, Decision, StoredOperation};
use tidegate::Clock;

use super::wire::Reply;

/// Backoffs short enough for tests.
pub(crate) const QUICK: &str = "[backoff.standard]\nbase = \"20ms\"\nmax = \"40ms\"\n\
     [backoff.webhook]\nbase = \"20ms\"\nmax = \"40ms\"\n";

/// A state that delivers its operations.
pub(crate) struct Running {
    pub(crate) state: Arc<State>,
    worker: Option<OperationWorker>,
    gateway: Gateway,
    runtime: tokio::runtime::Runtime,
    /// Of its database; removed at its end.
    _folder: Option<tempfile::TempDir>,
}

impl Running {
    /// Starts with these settings and a database of its own. Loopback may be dialled, and gates are quick.
    pub(crate) fn new(toml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let mut running = Self::with_store(toml, store);
        running._folder = Some(folder);
        running
    }

    pub(crate) fn with_store(toml: &str, store: Store) -> Self {
        let file =
            format!("[network]\nallow = [\"127.0.0.0/8\"]\n[gate]\ninitial_rate = 1000.0\n{toml}");
        let sources = Sources {
            file: Some(("t.toml".to_owned(), file.into_bytes())),
            flags: Vec::new(),
        };
        let settings = Arc::new(Settings::load(&sources, &Process).unwrap());
        let core = Core::new(&settings, Log::silent(), Clock::system(), 1);
        let (state, _) = State::restore(core, settings, store).unwrap();
        let gateway = Gateway::start(Arc::clone(&state), "127.0.0.1:0".parse().unwrap()).unwrap();
        let worker = OperationWorker::start(Arc::clone(&state)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        Self {
            state,
            worker: Some(worker),
            gateway,
            runtime,
            _folder: None,
        }
    }

    /// Sends a request to the data plane; `head` has lines of headers, each with its end.
    pub(crate) fn send(&self, method: &str, path: &str, head: &str, body: &str) -> Reply {
        let mut stream = TcpStream::connect(self.gateway.address()).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n{head}\r\n{body}"
        )
        .unwrap();
        Reply::read(&mut BufReader::new(stream), method == "HEAD").unwrap()
    }

    /// Accepts an operation.
    pub(crate) fn accept(&self, request: OperationRequest) -> Result<Accepted, AcceptError> {
        self.wait(self.state.accept_operation(request))
    }

    /// Accepts a POST to `url`, and returns its id.
    pub(crate) fn post(&self, url: &str) -> String {
        let accepted = self.accept(post(url)).unwrap();
        accepted.operation.id
    }

    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub(crate) fn get(&self, id: &str) -> StoredOperation {
        self.wait(self.state.operations().get(id)).unwrap().unwrap()
    }

    /// Cancels an operation. One that is being sent is cancelled when it is not any more.
    pub(crate) fn cancel(&self, id: &str) -> StoredOperation {
        loop {
            let decision = Decision {
                id: id.to_owned(),
                now: self.state.clock().wall(),
                event: OperationEvent::Cancel,
                request: None,
            };
            match self.wait(self.state.decide_operation(decision)) {
                Ok(cancelled) => return cancelled,
                Err(OperationError::Decision(_)) => self.pause(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) fn attempts(&self, id: &str) -> Vec<AttemptRecord> {
        let number = self.get(id).number;
        self.wait(self.state.operations().attempts(number)).unwrap()
    }

    /// Waits until an operation is in a state with this word, and returns it.
    pub(crate) fn until(&self, id: &str, state: &str) -> StoredOperation {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            // A store that fails on purpose fails this call, too.
            let operation = self.wait(self.state.operations().get(id));
            if let Ok(Some(operation)) = &operation
                && operation.state.as_str() == state
            {
                return operation.clone();
            }
            assert!(Instant::now() < deadline, "{state} expected: {operation:?}");
            self.pause();
        }
    }

    /// Waits until something is so.
    pub(crate) fn wait_for(&self, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_so() {
            assert!(Instant::now() < deadline, "it did not happen");
            self.pause();
        }
    }

    pub(crate) fn pause(&self) {
        self.wait(async { tokio::time::sleep(Duration::from_millis(5)).await });
    }

    /// Drains the worker, and stops it after `timeout`.
    pub(crate) fn stop(&mut self, timeout: Duration) {
        if let Some(worker) = self.worker.take() {
            worker.drain();
            let deadline = Instant::now() + timeout;
            while !worker.is_done() && Instant::now() < deadline {
                self.pause();
            }
            self.runtime.block_on(worker.stop());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.gateway.drain();
        self.stop(Duration::ZERO);
    }
}

/// A POST of a small document.
pub(crate) fn post(url: &str) -> OperationRequest {
    OperationRequest {
        method: "POST".to_owned(),
        url: url.to_owned(),
        body: b"{\"name\":\"ann\"}".to_vec(),
        ..OperationRequest::default()
    }
}

/// A request that an upstream has received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) at: Instant,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let mut lines = self.head.lines();
        lines.find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known
                .eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    }
}

/// A server that answers each request with what a function makes of it.
pub(crate) struct Upstream {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Upstream {
    /// `answer` gets the number of the request, counted from 1, and the request; it returns the
    /// status, lines of headers and the body.
    pub(crate) fn new(
        answer: impl Fn(usize, &Received) -> (u16, String, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let (answer, all) = (Arc::new(answer), Arc::clone(&received));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, all) = (Arc::clone(&answer), Arc::clone(&all));
                thread::spawn(move || {
                    let stream = stream.unwrap();
                    while serve_one(&stream, &all, &*answer).is_some() {}
                });
            }
        });
        Self { address, received }
    }

    /// Answers the n-th request with the n-th status, and all further ones with the last.
    pub(crate) fn statuses(statuses: &'static [u16]) -> Self {
        Self::new(|number, _| {
            let status = statuses[number.min(statuses.len()) - 1];
            (status, String::new(), String::new())
        })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

fn serve_one(
    stream: &TcpStream,
    received: &Mutex<Vec<Received>>,
    answer: &dyn Fn(usize, &Received) -> (u16, String, String),
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.to_lowercase().lines().find_map(|line| {
        let length = line.strip_prefix("content-length:")?;
        length.trim().parse::<usize>().ok()
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let request = Received {
        at: Instant::now(),
        head,
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    let number = {
        let mut received = received.lock().unwrap();
        received.push(request.clone());
        received.len()
    };
    let (status, headers, text) = answer(number, &request);
    let length = text.len();
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{headers}\r\n{text}"
    )
    .ok()
}
