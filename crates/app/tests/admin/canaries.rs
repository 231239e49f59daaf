//! Nothing that an operation carries appears in lists, errors, events, metrics, the log or the
//! message of a panic.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use app::log::{Format, Level, Log};
use app::operations::OperationWorker;
use serde_json::{Value, json};
use store::Store;
use tidegate::Clock;

use crate::support::{Running, connect, wait_until};

const OPERATIONS: &str = "/api/v1/operations";

/// Part of every value that must not appear.
const CANARY: &str = "canary";

#[test]
fn shows_nothing_that_an_operation_carries() {
    let upstream = upstream();
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "canary-of-secret").unwrap();
    let reference = format!("file:{}", secret.display());
    let settings = format!(
        "[network]\nallow = [\"127.0.0.0/8\"]\n[gate]\ninitial_rate = 1000.0\n\
         [backoff.standard]\nbase = \"1ms\"\nmax_attempts = 2\n\
         [pool.llm]\nendpoints = [{{ name = \"a\", url = \"http://{upstream}/v1\", headers = {{ authorization = \"{reference}\" }} }}]\n\
         [credential.crm]\nrefresh = {{ kind = \"client_credentials\", token_url = \"http://{upstream}/token\", client_id = \"me\", client_secret = \"{reference}\" }}\n"
    );
    let log_file = folder.path().join("log");
    let sink = Box::new(File::create(&log_file).unwrap());
    let log = Log::new(sink, Format::Json, Level::TRACE, &Clock::system());
    let store = Store::open(folder.path()).unwrap();
    let running = Running::with_log(&settings, folder.path(), store, log.clone());
    let worker = OperationWorker::start(Arc::clone(&running.state)).unwrap();
    let events = follow_events(&running);

    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let mut seen = String::new();
    let mut conflicts = Vec::new();
    for (path, state) in [
        ("200", "completed"),
        ("400", "failed"),
        ("401", "failed"),
        ("500", "failed"),
        ("412", "conflict"),
        ("close", "failed"),
    ] {
        for base in [format!("http://{upstream}"), "/llm".to_owned()] {
            let id = running.accept(&carrying(&base, path, upstream));
            wait_until(&format!("{path} has ended"), || {
                running.state_of(&id) == state
            });
            seen.push_str(&running.text("GET", &format!("{OPERATIONS}/{id}"), None));
            seen.push_str(&runtime.block_on(debug_output(&running, &id)));
            if state == "conflict" {
                conflicts.push(id);
            }
        }
    }
    for id in &conflicts {
        let path = format!("{OPERATIONS}/{id}/conflict");
        assert!(running.text("GET", &path, None).contains(CANARY));
        seen.push_str(&running.text("POST", &format!("{OPERATIONS}/{id}/retry"), None));
        seen.push_str(&running.text("POST", &format!("{OPERATIONS}/{id}/cancel"), None));
    }
    for path in [OPERATIONS, "/metrics", "/api/v1/gates", "/api/v1/pools"] {
        seen.push_str(&running.text("GET", path, None));
    }
    for bad in bad_requests() {
        let answer = running.ask("POST", OPERATIONS, Some(&bad));
        assert!(answer.status >= 400, "{bad}: {}", answer.body);
        seen.push_str(&answer.body);
    }
    runtime.block_on(worker.stop());
    drop(running);
    seen.push_str(&events.join().unwrap());
    log.flush();
    seen.push_str(&fs::read_to_string(&log_file).unwrap());
    for shown in [
        "operation_ended",
        "operation_failed",
        "tidegate_operations",
        "retry_scheduled",
    ] {
        assert!(seen.contains(shown), "{shown} was not seen");
    }
    for line in seen.split(['\n', '{']) {
        assert!(!line.to_lowercase().contains(CANARY), "{line}");
    }
}

/// What the message of a panic would have of an operation.
async fn debug_output(running: &Running, id: &str) -> String {
    let queue = running.state.operations();
    let operation = queue.get(id).await.unwrap().unwrap();
    let request = queue.request(operation.number).await.unwrap();
    let response = queue.response(operation.number).await.unwrap();
    let conflict = queue.conflict(operation.number).await.unwrap();
    format!("{operation:?} {request:?} {response:?} {conflict:?}\n")
}

/// An operation with a canary wherever one fits.
fn carrying(base: &str, path: &str, upstream: SocketAddr) -> Value {
    let url = format!("{base}/canary-of-path/{path}?token=canary-of-query");
    let mut operation = json!({
        "method": "PUT",
        "url": url,
        "headers": { "x-secret": "canary-of-header", "cookie": ["canary-of-cookie"] },
        "body": { "name": "canary-of-body" },
        "base": "canary-of-base",
        "resource": format!("http://{upstream}/canary-of-resource/200"),
        "idempotency_key": format!("canary-of-key-{base}-{path}"),
    });
    if path == "401" {
        operation["credential"] = json!("crm");
    }
    operation
}

/// Requests that are refused, each with canaries.
fn bad_requests() -> Vec<String> {
    let valid = || json!({ "method": "PUT", "url": "https://a.example.com/canary?canary" });
    let with = |field: &str, value: Value| {
        let mut body = valid();
        body[field] = value;
        body.to_string()
    };
    vec![
        "{\"url\": canary".to_owned(),
        "[\"canary\"]".to_owned(),
        with("headers", json!("authorization: canary")),
        with(
            "headers",
            json!({ "authorization": 1, "x": { "canary-as-key": 1 } }),
        ),
        with("headers", json!({ "host": "canary", "x": "canary\n" })),
        with(
            "headers",
            json!({ "idempotency-key": ["canary-1", "canary-2"] }),
        ),
        with("idempotency_key", json!(["canary"])),
        with("idempotency_key", json!("canary".repeat(100))),
        with("order_key", json!("canary".repeat(100))),
        with("resource", json!("ftp://a.example.com/canary")),
        with("resource", json!("http://10.0.0.1/canary?canary")),
        with("url", json!("ftp://canary:canary@a.example.com/canary")),
        with("url", json!("http://10.0.0.1/canary?canary")),
        with("url", json!("/unknown/canary?canary")),
        with("body", json!("canary".repeat(1 << 20))),
        with("priority", json!({ "canary": 1 })),
    ]
}

impl Running {
    fn state_of(&self, id: &str) -> String {
        let operation = self.get(&format!("{OPERATIONS}/{id}"));
        operation["state"].as_str().unwrap().to_owned()
    }

    fn text(&self, method: &str, path: &str, body: Option<&str>) -> String {
        self.ask(method, path, body).body + "\n"
    }
}

/// Reads the stream of events to its end.
fn follow_events(running: &Running) -> thread::JoinHandle<String> {
    let mut stream = connect(running.address());
    let head = format!(
        "GET /api/v1/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        running.address(),
        running.token.expose()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap() > 2 {
        line.clear();
    }
    thread::spawn(move || {
        let mut text = Vec::new();
        _ = reader.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// An upstream that responds as the last part of the path says, and repeats what it was sent.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            thread::spawn(move || respond(stream));
        }
    });
    address
}

fn respond(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut request, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) <= 2 {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        request.push_str(&line);
    }
    let mut body = vec![0; length];
    _ = reader.read_exact(&mut body);
    let path = request.split(' ').nth(1).unwrap_or_default();
    if path == "/token" {
        let token = r#"{"access_token":"canary-of-token","token_type":"Bearer","expires_in":60}"#;
        _ = write!(
            stream,
            "HTTP/1.1 200 x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{token}",
            token.len()
        );
        return;
    }
    let path = path.split('?').next().unwrap_or_default();
    let status = path.rsplit('/').next().unwrap_or_default();
    if status == "close" {
        return;
    }
    let said = json!({ "error": { "message": request, "canary": String::from_utf8_lossy(&body) } });
    let said = said.to_string();
    let head = format!("HTTP/1.1 {status} canary\r\nX-Canary: canary\r\nETag: \"canary\"\r\n");
    let length = said.len();
    _ = write!(
        stream,
        "{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{said}"
    );
}
