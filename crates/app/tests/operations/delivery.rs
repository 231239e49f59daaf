//! What is delivered, how often, and what it is called when it is not.

use std::time::Duration;

use policy::item::TerminalReason;
use policy::operation::OperationState;

use super::support::{QUICK, Running, Upstream, post};
use app::state::{AcceptError, OperationRequest};

#[test]
fn delivers_a_request_with_its_headers_and_body() {
    let upstream = Upstream::statuses(&[201]);
    let running = Running::new(QUICK);
    let accepted = running
        .accept(OperationRequest {
            headers: vec![("x-team".to_owned(), "blue".to_owned())],
            ..post(&upstream.url("/v1/users?source=crm"))
        })
        .unwrap();
    let operation = running.until(&accepted.operation.id, "completed");
    assert_eq!(operation.counters.sent, 1);

    let received = &upstream.received()[0];
    assert!(
        received
            .head
            .starts_with("POST /v1/users?source=crm HTTP/1.1\r\n")
    );
    assert_eq!(received.header("x-team").as_deref(), Some("blue"));
    assert_eq!(received.header("idempotency-key"), Some(operation.id));
    assert_eq!(received.body, "{\"name\":\"ann\"}");
}

#[test]
fn sends_again_under_one_key_after_failures() {
    let upstream = Upstream::statuses(&[500, 503, 200]);
    let running = Running::new(QUICK);
    let id = running.post(&upstream.url("/"));
    let operation = running.until(&id, "completed");
    assert_eq!(
        (operation.counters.sent, operation.counters.attempts),
        (3, 2)
    );
    let received = upstream.received();
    let keys: Vec<_> = received
        .iter()
        .map(|one| one.header("idempotency-key"))
        .collect();
    assert_eq!(keys, vec![Some(id.clone()); 3]);
    let attempts = running.attempts(&id);
    let statuses: Vec<_> = attempts.iter().map(|attempt| attempt.status).collect();
    assert_eq!(statuses, [Some(500), Some(503), Some(200)]);
}

#[test]
fn fails_as_exhausted_after_five_sends() {
    let upstream = Upstream::statuses(&[500]);
    let running = Running::new(QUICK);
    let id = running.post(&upstream.url("/"));
    let operation = running.until(&id, "failed");
    assert_eq!(
        operation.state,
        OperationState::Failed(TerminalReason::Exhausted)
    );
    assert_eq!(upstream.received().len(), 5);
}

#[test]
fn fails_at_once_when_the_request_is_rejected() {
    let upstream = Upstream::statuses(&[404]);
    let running = Running::new(QUICK);
    let id = running.post(&upstream.url("/"));
    let operation = running.until(&id, "failed");
    assert_eq!(
        operation.state,
        OperationState::Failed(TerminalReason::Rejected)
    );
    assert_eq!(upstream.received().len(), 1);
}

#[test]
fn a_directed_wait_is_kept_and_costs_no_attempt() {
    let upstream = Upstream::new(|number, _| match number {
        1 => (429, "retry-after: 1\r\n".to_owned(), String::new()),
        _ => (200, String::new(), String::new()),
    });
    let running = Running::new("[backoff.standard]\nretry_after_jitter = \"0s\"\n");
    let id = running.post(&upstream.url("/"));
    let operation = running.until(&id, "completed");
    assert_eq!(
        (operation.counters.sent, operation.counters.attempts),
        (2, 0)
    );
    let received = upstream.received();
    assert!(received[1].at - received[0].at >= Duration::from_secs(1));
}

#[test]
fn a_ban_is_waited_for_and_no_rejection() {
    let upstream = Upstream::statuses(&[429, 403]);
    let running = Running::new(QUICK);
    let id = running.post(&upstream.url("/"));
    running.wait_for(|| running.attempts(&id).len() == 2);
    let reasons = running.attempts(&id).into_iter().map(|made| made.reason);
    assert_eq!(reasons.collect::<Vec<_>>(), ["throttled", "throttled"]);
    assert_eq!(running.get(&id).state, OperationState::Retryable);
}

#[test]
fn a_held_destination_delays_no_other() {
    let held = Upstream::new(|_, _| (429, "retry-after: 60\r\n".to_owned(), String::new()));
    let free = Upstream::statuses(&[200]);
    let running = Running::new(QUICK);
    let waiting: Vec<String> = (0..20).map(|_| running.post(&held.url("/"))).collect();
    let passing: Vec<String> = (0..20).map(|_| running.post(&free.url("/"))).collect();
    for id in &passing {
        running.until(id, "completed");
    }
    // What did not get to the server has used nothing up.
    let unsent = waiting.iter().map(|id| running.get(id).counters.sent);
    assert!(unsent.filter(|sent| *sent == 0).count() > 0);
}

#[test]
fn waits_for_a_decision_on_a_conflict() {
    let upstream = Upstream::new(|_, _| (409, "etag: \"7\"\r\n".to_owned(), String::new()));
    let running = Running::new(QUICK);
    let id = running.post(&upstream.url("/"));
    let operation = running.until(&id, "conflict");
    assert_eq!(operation.next_at, None);
    let conflict = running.wait(running.state.operations().conflict(operation.number));
    assert_eq!(conflict.unwrap().unwrap().etag.as_deref(), Some("\"7\""));
    assert_eq!(upstream.received().len(), 1);
}

#[test]
fn sends_operations_with_one_order_key_one_at_a_time() {
    let upstream = Upstream::new(|number, _| match number {
        1 | 2 => (503, String::new(), String::new()),
        _ => (200, String::new(), String::new()),
    });
    let running = Running::new(QUICK);
    let ids: Vec<String> = (0..3)
        .map(|number| {
            let request = OperationRequest {
                order_key: Some("user-7".to_owned()),
                body: number.to_string().into_bytes(),
                ..post(&upstream.url("/"))
            };
            running.accept(request).unwrap().operation.id
        })
        .collect();
    for id in &ids {
        running.until(id, "completed");
    }
    let bodies: Vec<String> = upstream
        .received()
        .into_iter()
        .map(|one| one.body)
        .collect();
    assert_eq!(bodies, ["0", "0", "0", "1", "2"]);
}

#[test]
fn sends_the_next_operation_of_an_order_key_to_another_destination() {
    // The second waits until the first has failed twice, so its lane has found nothing to claim.
    let first = Upstream::statuses(&[503, 503, 200]);
    let second = Upstream::statuses(&[200]);
    let running = Running::new(QUICK);
    let ids = [&first, &second].map(|upstream| {
        let request = OperationRequest {
            order_key: Some("user-7".to_owned()),
            ..post(&upstream.url("/"))
        };
        running.accept(request).unwrap().operation.id
    });
    for id in &ids {
        running.until(id, "completed");
    }
    let last_of_first = first.received().last().unwrap().at;
    assert!(second.received()[0].at > last_of_first);
}

#[test]
fn expires_when_it_was_not_delivered_in_time() {
    let upstream = Upstream::new(|_, _| (429, "retry-after: 60\r\n".to_owned(), String::new()));
    let running = Running::new(QUICK);
    let first = running.post(&upstream.url("/"));
    running.until(&first, "retryable");
    let request = OperationRequest {
        expires_after: Some(Duration::from_millis(300)),
        ..post(&upstream.url("/"))
    };
    let second = running.accept(request).unwrap().operation.id;
    let operation = running.until(&second, "failed");
    assert_eq!(
        operation.state,
        OperationState::Failed(TerminalReason::Expired)
    );
    assert_eq!(operation.counters.sent, 0);
}

#[test]
fn the_same_key_is_the_same_operation_and_another_request_is_refused() {
    let upstream = Upstream::statuses(&[200]);
    let running = Running::new(QUICK);
    let request = |body: &str| OperationRequest {
        idempotency_key: Some("order-1".to_owned()),
        body: body.as_bytes().to_vec(),
        ..post(&upstream.url("/"))
    };
    let first = running.accept(request("a")).unwrap();
    let same = running.accept(request("a")).unwrap();
    assert_eq!((first.is_known, same.is_known), (false, true));
    assert_eq!(first.operation.id, same.operation.id);
    let other = running.accept(request("b")).unwrap_err();
    assert!(matches!(other, AcceptError::KeyReused));
    running.until(&first.operation.id, "completed");
    assert_eq!(upstream.received().len(), 1);
    assert_eq!(
        upstream.received()[0].header("idempotency-key").as_deref(),
        Some("order-1")
    );
}

#[test]
fn refuses_what_cannot_be_sent_and_stores_nothing() {
    let running = Running::new(QUICK);
    let check = |request: OperationRequest, expected: &str| {
        let error = running.accept(request).unwrap_err();
        let shown = match error {
            AcceptError::Invalid(invalid) => {
                let fields = invalid.into_iter().map(|one| one.field);
                fields.collect::<Vec<_>>().join(" ")
            }
            error => error.to_string(),
        };
        assert!(shown.contains(expected), "{shown} has no {expected}");
    };
    let fine = || post("https://api.example.com/");
    check(
        OperationRequest {
            kind: Some("no-such-type".to_owned()),
            ..fine()
        },
        "type",
    );
    check(
        OperationRequest {
            credential: Some("crm".to_owned()),
            ..fine()
        },
        "credential",
    );
    check(
        OperationRequest {
            url: "ftp://x".to_owned(),
            ..fine()
        },
        "url",
    );
    check(
        OperationRequest {
            url: "/no-such-pool/x".to_owned(),
            ..fine()
        },
        "url",
    );
    check(
        OperationRequest {
            url: "http://10.0.0.1/".to_owned(),
            ..fine()
        },
        "10.0.0.1",
    );
    check(
        OperationRequest {
            body: vec![b'x'; (1 << 20) + 1],
            ..fine()
        },
        "max_body",
    );
    for name in ["Host", "Connection", "Content-Length", "Tidegate-Token"] {
        let headers = vec![(name.to_owned(), "x".to_owned())];
        check(
            OperationRequest { headers, ..fine() },
            &format!("headers.{name}"),
        );
    }
    let key = ("Idempotency-Key".to_owned(), "a".to_owned());
    let other = ("Idempotency-Key".to_owned(), "b".to_owned());
    check(
        OperationRequest {
            headers: vec![key, other],
            ..fine()
        },
        "idempotency-key",
    );
    assert_eq!(running.state.operations().counts(), Default::default());
}

#[test]
fn sends_a_credential_only_to_its_hosts() {
    let settings = "[credential.crm]\nhosts = [\"*.example.com\"]\n\
                    refresh = { kind = \"command\", command = [\"true\"] }\n";
    let running = Running::new(settings);
    let with_credential = |url: &str| OperationRequest {
        credential: Some("crm".to_owned()),
        expires_after: Some(Duration::from_millis(10)),
        ..post(url)
    };
    running
        .accept(with_credential("https://api.example.com/"))
        .unwrap();
    let other = OperationRequest {
        resource: Some("https://other.example.net/".to_owned()),
        ..with_credential("https://api.example.com/")
    };
    for request in [with_credential("https://example.net/"), other] {
        let error = running.accept(request).unwrap_err();
        assert!(
            matches!(&error, AcceptError::Invalid(invalid) if invalid[0].field == "credential")
        );
    }
}

#[test]
fn releases_what_it_sends_when_it_stops() {
    let upstream = Upstream::new(|_, _| {
        // Nothing is ever sent to it: the server does not answer.
        let (_sender, receiver) = std::sync::mpsc::channel::<()>();
        _ = receiver.recv_timeout(Duration::from_secs(20));
        (200, String::new(), String::new())
    });
    let mut running = Running::new(QUICK);
    let id = running.post(&upstream.url("/"));
    running.until(&id, "running");
    running.stop(Duration::from_millis(50));
    assert_eq!(running.get(&id).state, OperationState::Available);
}
