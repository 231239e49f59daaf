//! Webhooks: every end is reported once, signed, and sent again until it is received.

use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ring::hmac;
use serde_json::Value;
use store::operations::{OperationFilter, StoredOperation};

use super::support::{QUICK, Received, Running, Upstream, post};
use app::state::{AcceptError, OperationRequest};

/// The secret of the example of Standard Webhooks, and what it stands for.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const KEY: [u8; 24] = [
    0x31, 0xf2, 0x90, 0xf6, 0xbf, 0x06, 0x29, 0x8a, 0xab, 0x4f, 0x08, 0xd4, 0x3c, 0x3f, 0x08, 0x2c,
    0xf6, 0x48, 0xa3, 0x62, 0xda, 0x2d, 0xa4, 0xb0,
];

/// A worker whose operations are reported to `receiver`.
fn running(receiver: &Upstream, secret: &str, settings: &str) -> Running {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(secret.as_bytes()).unwrap();
    let (url, secret) = (receiver.url("/hook"), file.path().display());
    Running::new(&format!(
        "{QUICK}[operation.default]\n{settings}webhook = {{ url = \"{url}\", secret = \"file:{secret}\" }}\n"
    ))
}

/// Waits for so many requests.
fn received(receiver: &Upstream, count: usize) -> Vec<Received> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let received = receiver.received();
        if received.len() >= count {
            return received;
        }
        assert!(Instant::now() < deadline, "{count} expected: {received:?}");
        std::thread::yield_now();
    }
}

/// Checks a report as its receiver does, and returns it.
fn verified(request: &Received, key: &[u8]) -> Value {
    let header = |name| request.header(name).unwrap();
    let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert!(now.as_secs().abs_diff(timestamp.parse().unwrap()) < 60);
    let signed = format!("{id}.{timestamp}.{}", request.body);
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let expected = hmac::sign(&key, signed.as_bytes());
    let signature = header("webhook-signature");
    let signature = decode(signature.strip_prefix("v1,").unwrap());
    assert_eq!(signature, expected.as_ref());
    assert_eq!(header("content-type"), "application/json");
    serde_json::from_str(&request.body).unwrap()
}

fn decode(text: &str) -> Vec<u8> {
    let letters = ('A'..='Z')
        .chain('a'..='z')
        .chain('0'..='9')
        .chain(['+', '/']);
    let letters: String = letters.collect();
    let mut bits = String::new();
    for letter in text.trim_end_matches('=').chars() {
        bits += &format!("{:06b}", letters.find(letter).unwrap());
    }
    let bytes = bits.as_bytes().chunks_exact(8);
    let byte = |bits: &[u8]| u8::from_str_radix(std::str::from_utf8(bits).unwrap(), 2).unwrap();
    bytes.map(byte).collect()
}

fn all(running: &Running) -> Vec<StoredOperation> {
    let filter = OperationFilter::default();
    let page = running.state.operations().page(filter, None, 100);
    running.wait(page).unwrap()
}

#[test]
fn reports_every_end_once_and_signed() {
    let receiver = Upstream::statuses(&[200]);
    let upstream = Upstream::new(|_, request| {
        let path = request.head.split(' ').nth(1).unwrap();
        let status = path.trim_start_matches("/canary-").parse().unwrap();
        let headers = match status {
            503 => "retry-after: 600\r\n",
            _ => "",
        };
        (status, headers.to_owned(), "canary-response".to_owned())
    });
    let running = running(&receiver, SECRET, "");
    for (number, (status, state, reason)) in [
        (200, "completed", Value::Null),
        (404, "failed", "rejected".into()),
        (409, "conflict", "conflict".into()),
        (503, "cancelled", "cancelled".into()),
    ]
    .into_iter()
    .enumerate()
    {
        let request = OperationRequest {
            headers: vec![("x-canary".to_owned(), "canary-header".to_owned())],
            body: b"canary-body".to_vec(),
            ..post(&upstream.url(&format!("/canary-{status}")))
        };
        let id = running.accept(request).unwrap().operation.id;
        if state == "cancelled" {
            running.until(&id, "retryable");
            running.cancel(&id);
        }
        let operation = running.until(&id, state);
        let reports = received(&receiver, number + 1);
        let report = verified(&reports[number], &KEY);
        assert_eq!(report["type"], format!("operation.{state}"));
        let data = &report["data"];
        assert_eq!((&data["id"], &data["state"]), (&id.into(), &state.into()));
        assert_eq!(
            (&data["type"], &data["reason"]),
            (&"default".into(), &reason)
        );
        assert_eq!(data["attempts"], 1);
        assert_eq!(data["key"], operation.destination);
        assert_eq!(
            data["accepted_at_ms"],
            operation.accepted_at.as_unix_millis()
        );
        let ended_at = operation.ended_at.unwrap().as_unix_millis();
        assert_eq!(data["ended_at_ms"], ended_at);
        assert_eq!(data["trace_id"], operation.trace_id.unwrap());
        assert!(report["timestamp"].as_str().unwrap().ends_with('Z'));
        assert!(!format!("{reports:?}").contains("canary"));
    }
    // The ends of reports are not reported.
    let reports = || {
        all(&running)
            .into_iter()
            .filter(|one| one.kind == "webhook")
    };
    for report in reports() {
        running.until(&report.id, "completed");
    }
    assert_eq!((reports().count(), receiver.received().len()), (4, 4));
}

#[test]
fn sends_a_report_again_under_the_same_id() {
    let receiver = Upstream::statuses(&[500, 409, 200]);
    let upstream = Upstream::statuses(&[200]);
    let running = running(&receiver, "any other secret", "");
    let id = running.post(&upstream.url("/"));
    let received = received(&receiver, 3);
    for request in &received {
        let report = verified(request, b"any other secret");
        assert_eq!(report["data"]["id"], id);
    }
    let ids = received.iter().map(|one| one.header("webhook-id").unwrap());
    let mut ids: Vec<String> = ids.collect();
    ids.dedup();
    assert_eq!(ids.len(), 1);
    running.until(&ids[0], "completed");
}

#[test]
fn does_not_report_that_a_report_failed() {
    let receiver = Upstream::statuses(&[400]);
    let upstream = Upstream::statuses(&[200]);
    let running = running(&receiver, SECRET, "");
    running.post(&upstream.url("/"));
    let id = received(&receiver, 1)[0].header("webhook-id").unwrap();
    running.until(&id, "failed");
    assert_eq!(all(&running).len(), 2);
    let unreported = running.state.operations().unreported(10);
    assert_eq!(running.wait(unreported).unwrap(), []);
}

#[test]
fn does_not_report_a_conflict_that_a_rule_resolves() {
    let receiver = Upstream::statuses(&[200]);
    let upstream = Upstream::statuses(&[409]);
    let running = running(&receiver, SECRET, "merge = \"theirs\"\n");
    for _ in 0..20 {
        running.post(&upstream.url("/"));
    }
    for report in received(&receiver, 20) {
        assert_eq!(verified(&report, &KEY)["type"], "operation.completed");
    }
}

#[test]
fn accepts_no_operation_of_the_type_of_reports() {
    let running = Running::new(QUICK);
    let request = OperationRequest {
        kind: Some("webhook".to_owned()),
        ..post("https://api.example.com/")
    };
    let refused = running.accept(request).unwrap_err();
    assert!(matches!(refused, AcceptError::Invalid(_)), "{refused:?}");
}
