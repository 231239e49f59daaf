//! curl: methods, uploads, HTTP versions, streams, connections, problems.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::client::{ClientOutput, program, run, start};
use crate::servers::Servers;

/// A high initial rate, for tests that are not about pacing.
const FAST: &str = "[gate]\ninitial_rate = 1000.0\n";

fn curl(args: &[&str]) -> Command {
    let mut command = program("curl");
    // Without `--fail`: error responses are read too.
    let always = ["--disable", "--silent", "--show-error", "--max-time", "50"];
    command.args(always).args(args).stdin(Stdio::null());
    command
}

fn curl_output(args: &[&str]) -> ClientOutput {
    run(&mut curl(args))
}

/// The request as the mock received it.
fn echo_of(args: &[&str]) -> Value {
    let ClientOutput { stdout, .. } = curl_output(args);
    serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}"))
}

/// Head and body of a response printed with `--include`; the head in lower case, lines end in `\n`.
fn split_head(stdout: &str) -> (String, &str) {
    let (head, body) = stdout.split_once("\r\n\r\n").unwrap();
    let head = head.to_ascii_lowercase().replace("\r\n", "\n");
    (format!("{head}\n"), body)
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    let found = fields.find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no `{name}` in\n{head}")).1
}

#[test]
fn passes_methods_on_and_adds_response_headers() {
    let servers = Servers::start(&[], FAST);
    let echo = format!("{}/echo?q=1%202", servers.base());

    let ClientOutput { stdout, .. } = curl_output(&["--include", &echo]);
    let (head, body) = split_head(&stdout);
    assert!(head.starts_with("http/1.1 200 ok\n"), "{head}");
    assert_eq!(header(&head, "tidegate-attempts"), "1");
    assert_eq!(header(&head, "tidegate-endpoint"), "mock");
    assert_eq!(header(&head, "tidegate-request-id").len(), 24);
    assert!(header(&head, "tidegate-wait-ms").parse::<u64>().is_ok());
    let seen: Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        (&seen["method"], &seen["query"]),
        (&"GET".into(), &"q=1%202".into())
    );
    let user_agent = seen["headers"]["user-agent"].as_str().unwrap();
    assert!(user_agent.starts_with("curl/"), "{user_agent}");

    let seen = echo_of(&["--data", "a=1&b=2", &echo]);
    assert_eq!(
        (&seen["method"], &seen["body_length"]),
        (&"POST".into(), &7.into())
    );
    for method in ["DELETE", "PATCH", "OPTIONS", "PURGE"] {
        let seen = echo_of(&["--request", method, &echo]);
        assert_eq!(seen["method"], method);
    }
    servers.end();
}

#[test]
fn head_returns_the_length_without_a_body() {
    let servers = Servers::start(&[], FAST);
    let bytes = format!("{}/bytes/1000", servers.base());
    // Both on one connection: an unexpected body would be read as the next response.
    let ClientOutput { stdout, .. } = curl_output(&["--head", &bytes, &bytes]);
    let heads: Vec<&str> = stdout.trim_end().split("\r\n\r\n").collect();
    assert_eq!(heads.len(), 2, "{stdout}");
    for head in heads {
        let head = head.to_ascii_lowercase().replace("\r\n", "\n");
        assert!(head.starts_with("http/1.1 200 ok\n"), "{head}");
        assert_eq!(header(&head, "content-length"), "1000");
    }
    servers.end();
}

#[test]
fn upload_waits_for_100_continue() {
    let servers = Servers::start(&[], FAST);
    let file = servers.folder.path().join("upload");
    fs::write(&file, vec![b'x'; 3 << 20]).unwrap();
    let upload = format!("@{}", file.display());
    let expecting = |path: &str| {
        let url = format!("{}{path}", servers.base());
        curl_output(&[
            "--verbose",
            "--expect100-timeout",
            "40",
            "--header",
            "Expect: 100-continue",
            "--data-binary",
            &upload,
            &url,
        ])
    };
    let ClientOutput { stdout, stderr } = expecting("/echo");
    assert!(stderr.contains("< HTTP/1.1 100 Continue"), "{stderr}");
    let seen: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(seen["body_length"], 3 << 20);

    // A refusal comes before the body is sent.
    let ClientOutput { stderr, .. } = expecting("/../nowhere");
    assert!(!stderr.contains("100 Continue"), "{stderr}");
    assert!(stderr.contains("< HTTP/1.1 404 Not Found"), "{stderr}");
    servers.end();
}

#[test]
fn upload_of_unknown_length_is_chunked() {
    let servers = Servers::start(&[], FAST);
    let echo = format!("{}/echo", servers.base());
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let mut command = curl(&[version, "--request", "POST", "--upload-file", "-", &echo]);
        let mut child = start(command.stdin(Stdio::piped()));
        let mut stdin = child.stdin.take().unwrap();
        for _ in 0..50 {
            stdin.write_all(&[b'x'; 10_000]).unwrap();
        }
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{:?}", output.status);
        let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(seen["body_length"], 500_000, "{version}");
        assert_eq!(seen["headers"]["content-length"], Value::Null);
    }
    servers.end();
}

#[test]
fn serves_http_2_with_prior_knowledge() {
    let servers = Servers::start(&[], FAST);
    let bytes = format!("{}/bytes/300000", servers.base());
    let told = "%{http_version} %{response_code} %{size_download}\n";
    let sink = ["--output", "/dev/null"];
    for (version, expected) in [
        ("--http2-prior-knowledge", "2 200 300000\n"),
        // The gateway may decline to upgrade.
        ("--http2", "1.1 200 300000\n"),
        ("--http1.1", "1.1 200 300000\n"),
        ("--http1.0", "1.1 200 300000\n"),
    ] {
        let asked = [version, "--write-out", told, sink[0], sink[1], &bytes];
        let ClientOutput { stdout, .. } = curl_output(&asked);
        assert!(
            stdout == expected || (version == "--http1.0" && stdout == "1 200 300000\n"),
            "{version}: {stdout}"
        );
    }
    let seen = echo_of(&[
        "--http2-prior-knowledge",
        "--json",
        "{}",
        &format!("{}/echo", servers.base()),
    ]);
    assert_eq!(
        (&seen["method"], &seen["body_length"]),
        (&"POST".into(), &2.into())
    );
    servers.end();
}

#[test]
fn streams_server_sent_events_as_they_arrive() {
    let servers = Servers::start(&[], FAST);
    // The whole stream takes a day, so what is read below did not wait for its end.
    let url = format!("{}/sse?n=1000000&every=100ms", servers.base());
    for version in ["--http1.1", "--http1.0", "--http2-prior-knowledge"] {
        let mut child = start(&mut curl(&["--no-buffer", version, &url]));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let data = lines.map(Result::unwrap);
        let data: Vec<String> = data
            .filter(|line| line.starts_with("data:"))
            .take(3)
            .collect();
        assert_eq!(
            data,
            ["data: {\"n\":0}", "data: {\"n\":1}", "data: {\"n\":2}"]
        );
        assert_eq!(servers.stats()["in_flight"], 1, "{version}");
        child.kill().unwrap();
        child.wait().unwrap();
        // A client that disconnects ends the request at the upstream.
        servers.await_stats("ended", |stats| stats["in_flight"] == 0);
    }
    let url = format!("{}/sse?n=3&every=20ms", servers.base());
    let ClientOutput { stdout, .. } = curl_output(&["--no-buffer", &url]);
    assert_eq!(stdout.matches("data:").count(), 3, "{stdout}");
    servers.end();
}

#[test]
fn reuses_connections_on_both_sides() {
    let servers = Servers::start(&[], FAST);
    let before = servers.stats()["connections"].as_u64().unwrap();
    let url = format!("{}/bytes/10", servers.base());
    let told = "%{num_connects}\n";
    let ClientOutput { stdout, .. } = curl_output(&[
        "--write-out",
        told,
        "--output",
        "/dev/null",
        "--output",
        "/dev/null",
        "--output",
        "/dev/null",
        &url,
        &url,
        &url,
    ]);
    assert_eq!(stdout, "1\n0\n0\n");
    let stats = servers.stats();
    assert_eq!(stats["received"], 3);
    // One of them belongs to the request for these counts.
    assert_eq!(stats["connections"], before + 2);
    servers.end();
}

#[test]
fn problems_name_the_reason_and_retry_after() {
    let servers = Servers::start(&["--script", "429:60,200"], "");
    let base = servers.base();
    let shown = |args: &[&str]| {
        let mut all = vec!["--include"];
        all.extend(args);
        let ClientOutput { stdout, .. } = curl_output(&all);
        let (head, body) = split_head(&stdout);
        let problem = serde_json::from_str(body).unwrap_or_else(|_| panic!("{stdout}"));
        (head, problem)
    };
    let check = |(head, problem): (String, Value), status: u16, reason: &str| {
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{head}");
        assert_eq!(header(&head, "content-type"), "application/problem+json");
        assert_eq!(header(&head, "tidegate-reason"), reason);
        assert_eq!(problem["status"], status);
        head
    };

    let nowhere = base.replace("/api", "/nowhere");
    check(shown(&[&nowhere]), 404, "no_route");
    check(
        shown(&["--header", "Host: evil.example.com", &base]),
        421,
        "wrong_host",
    );

    // Without time to wait, the upstream's own refusal is passed on unchanged.
    let impatient = ["--header", "Tidegate-Max-Wait: 0s", &base];
    let ClientOutput { stdout, .. } =
        curl_output(&["--include", impatient[0], impatient[1], &base]);
    let (head, _) = split_head(&stdout);
    assert!(head.starts_with("http/1.1 429 "), "{head}");
    assert_eq!(header(&head, "retry-after"), "60");

    // From then on the gate is held, and nothing is sent.
    let head = check(shown(&impatient), 429, "wait_too_long");
    let wait: u64 = header(&head, "retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(header(&head, "tidegate-attempts"), "0");
    assert_eq!(servers.stats()["received"], 1);
    servers.end();
}
