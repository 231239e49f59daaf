//! The access log: a line for every request, when its response has ended.

use std::fs;

use app::settings::Server;
use serde_json::Value;

use crate::support::{Captured, Fixture, Raw, closed_port, pool, request, until};

/// Lines of the gateway from now on.
fn log_of(gateway: &Fixture, format: &str) -> Captured {
    let (lines, observers) = (Captured::default(), gateway.state.core().observers());
    observers.set_stdout(Box::new(lines.clone()));
    observers.reload(&server(format)).unwrap();
    lines
}

fn server(format: &str) -> Server {
    Server {
        access_log: format.to_owned(),
        ..Server::default()
    }
}

/// The lines, once there are so many: a line comes after its response.
fn lines(gateway: &Fixture, log: &Captured, count: usize) -> Vec<Value> {
    until("all lines are written", || {
        gateway.state.core().observers().flush();
        log.text().lines().count() == count
    });
    let text = log.text();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn every_request_has_a_line_with_what_became_of_it() {
    let upstream = Raw::start(|number, mut client| {
        if client.request().is_some() {
            let status = if number == 0 { 503 } else { 200 };
            client.send(&format!(
                "HTTP/1.1 {status} X\r\ncontent-length: 5\r\n\r\nhello"
            ));
        }
    });
    let gateway = Fixture::with(
        &upstream.url(),
        "[client.one]\ntoken = \"env:token-of-client-one\"\n",
    );
    let log = log_of(&gateway, "json");
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let token = "tidegate-token: value-of-token-of-client-one";
    let mut client = gateway.connect();
    let trace_header = format!("traceparent: {trace}");
    let reply = client.get_with("/api/x?key=secret&b=2", &[token, &trace_header]);
    assert_eq!((reply.status, reply.attempts()), (200, 2));
    let unknown = gateway.connect().get_with("/nope/x", &[token]);
    let nameless = gateway.connect().get("/api/x");
    let lines = lines(&gateway, &log, 3);
    let line = &lines[0];
    assert_eq!(line["client"], "one");
    assert_eq!(line["method"], "GET");
    assert_eq!(line["route"], "api");
    assert_eq!(line["endpoint"], "a");
    assert_eq!(line["path"], "/api/x?key=…&b=…");
    assert_eq!(line["status"], 200);
    assert_eq!(line["bytes"], 5);
    assert_eq!(line["attempts"], 2);
    assert_eq!(line["refused"], 1);
    assert!(line["wait_ms"].as_u64() >= Some(20), "{line}");
    assert!(line["duration_ms"].as_u64() >= line["wait_ms"].as_u64());
    assert_eq!(line["reason"], Value::Null);
    assert_eq!(
        line["request_id"].as_str(),
        reply.header("tidegate-request-id")
    );
    assert_eq!(line["trace_id"], "0af7651916cd43dd8448eb211c80319c");
    assert!(
        line["time"]
            .as_str()
            .is_some_and(|time| time.ends_with('Z'))
    );
    let line = &lines[1];
    assert_eq!(
        (&line["status"], &line["reason"]),
        (&404.into(), &"no_route".into())
    );
    assert_eq!(
        (&line["route"], &line["endpoint"]),
        (&"_none".into(), &Value::Null)
    );
    assert_eq!(line["bytes"], unknown.body.len());
    let line = &lines[2];
    assert_eq!(
        (&line["client"], &line["reason"]),
        (&Value::Null, &"no_token".into())
    );
    assert_eq!(line["status"], nameless.status);
}

#[test]
fn requests_that_fail_or_cannot_be_read_have_lines_too() {
    let dead = format!("http://{}", closed_port());
    let gateway = Fixture::with(&dead, "");
    let log = log_of(&gateway, "json");
    gateway.get("/api/x").is_own(502, "unreachable");
    let mut client = gateway.connect();
    client.send("no request at all\r\n\r\n");
    assert_eq!(client.reply(false).unwrap().status, 400);
    let lines = lines(&gateway, &log, 2);
    assert_eq!(
        (&lines[0]["status"], &lines[0]["endpoint"]),
        (&502.into(), &"a".into())
    );
    assert_eq!(lines[0]["reason"], "unreachable");
    assert_eq!(
        (&lines[1]["status"], &lines[1]["method"]),
        (&400.into(), &Value::Null)
    );
}

#[test]
fn a_client_that_leaves_has_a_line_with_status_499() {
    let upstream = Raw::start(|_, mut client| {
        client.request();
        client.rest();
    });
    let gateway = Fixture::before(&upstream.url());
    let log = log_of(&gateway, "json");
    let mut client = gateway.connect();
    client.send(&request("GET", "/api/x", &[], ""));
    until("the upstream has the request", || {
        upstream.connections() == 1
    });
    drop(client);
    let lines = lines(&gateway, &log, 1);
    assert_eq!(
        (&lines[0]["status"], &lines[0]["reason"]),
        (&499.into(), &"cancelled".into())
    );
}

#[test]
fn bytes_and_duration_are_those_of_the_whole_body() {
    let upstream = Raw::start(|_, mut client| {
        if client.request().is_some() {
            client.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello");
            crate::support::pause(50);
            client.send("world");
        }
    });
    let gateway = Fixture::before(&upstream.url());
    let log = log_of(&gateway, "json");
    assert_eq!(gateway.get("/api/x").text(), "helloworld");
    let lines = lines(&gateway, &log, 1);
    assert_eq!(lines[0]["bytes"], 10);
    assert!(lines[0]["duration_ms"].as_u64() >= Some(50), "{}", lines[0]);
}

#[test]
fn a_reload_opens_the_file_again_and_can_switch_it_off() {
    let folder = tempfile::tempdir().unwrap();
    let (file, rotated) = (folder.path().join("a.log"), folder.path().join("a.log.1"));
    let gateway = Fixture::new(&pool(&[("a", "http://127.0.0.1:1")]));
    let observers = gateway.state.core().observers();
    let settings = Server {
        access_log: "combined".to_owned(),
        access_log_file: Some(file.clone()),
        ..Server::default()
    };
    let count = |path| {
        observers.flush();
        fs::read_to_string(path).unwrap_or_default().lines().count()
    };
    observers.reload(&settings).unwrap();
    gateway.get("/nope/1");
    until("the first line is written", || count(&file) == 1);
    fs::rename(&file, &rotated).unwrap();
    observers.reload(&settings).unwrap();
    gateway.get("/nope/2");
    until("the second line is in the new file", || count(&file) == 1);
    assert!(
        fs::read_to_string(&rotated)
            .unwrap()
            .contains("\"GET /nope/1 HTTP/1.1\" 404 ")
    );
    observers.reload(&server("none")).unwrap();
    gateway.get("/nope/3");
    gateway.get("/nope/4");
    assert_eq!((count(&file), count(&rotated)), (1, 1));
    let missing = Server {
        access_log_file: Some(folder.path().join("no/such/folder")),
        ..settings
    };
    let error = observers.reload(&missing).unwrap_err().to_string();
    assert!(
        error.contains("no/such/folder") && error.contains("hint: "),
        "{error}"
    );
}

#[test]
fn bodies_that_break_off_are_no_success() {
    let upstream = Raw::saying(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello");
    let gateway = Fixture::before(&upstream.url());
    let log = log_of(&gateway, "json");
    let mut client = gateway.connect();
    client.send(&request("GET", "/api/x", &[], ""));
    assert!(client.reply(false).is_err());
    let line = &lines(&gateway, &log, 1)[0];
    assert_eq!((&line["status"], &line["bytes"]), (&200.into(), &5.into()));
    assert_eq!(line["reason"], "truncated");
}
