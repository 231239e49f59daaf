//! Operations with a token: refreshed once for all of them, then sent again once.

use policy::item::TerminalReason;
use policy::operation::OperationState;

use super::support::{QUICK, Running, Upstream, post};
use app::state::OperationRequest;

/// A worker whose operations carry the tokens `t1`, `t2` and so on of `tokens`.
fn running(tokens: &Upstream) -> Running {
    let url = tokens.url("/token");
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "secret").unwrap();
    let file = secret.path().display();
    Running::new(&format!(
        r#"{QUICK}
        [operation.default]
        credential = "crm"
        [credential.crm]
        refresh = {{ kind = "client_credentials", token_url = "{url}", client_id = "app", client_secret = "file:{file}" }}
        "#
    ))
}

fn tokens() -> Upstream {
    Upstream::new(|number, _| {
        (
            200,
            String::new(),
            format!(r#"{{"access_token":"t{number}"}}"#),
        )
    })
}

#[test]
fn refreshes_once_for_all_operations_and_sends_each_again() {
    let tokens = tokens();
    let upstream = Upstream::new(|_, request| {
        let token = request.header("authorization");
        let status = if token.as_deref() == Some("Bearer t2") {
            200
        } else {
            401
        };
        (status, String::new(), String::new())
    });
    let running = running(&tokens);
    let ids: Vec<String> = (0..20).map(|_| running.post(&upstream.url("/"))).collect();
    for id in &ids {
        let operation = running.until(id, "completed");
        assert!(operation.counters.sent <= 2);
        assert_eq!(operation.counters.attempts, 0);
    }
    assert_eq!(tokens.received().len(), 2);
}

#[test]
fn fails_as_auth_failed_at_the_second_401() {
    let tokens = tokens();
    let upstream = Upstream::statuses(&[401]);
    let running = running(&tokens);
    let id = running.post(&upstream.url("/"));
    let operation = running.until(&id, "failed");
    assert_eq!(
        operation.state,
        OperationState::Failed(TerminalReason::AuthFailed)
    );
    assert_eq!(upstream.received().len(), 2);
    assert_eq!(tokens.received().len(), 2);
}

#[test]
fn fetches_the_resource_of_a_conflict_with_the_token() {
    let tokens = tokens();
    let upstream = Upstream::new(|_, request| {
        let has_token = request.header("authorization").as_deref() == Some("Bearer t1");
        let is_get = request.head.starts_with("GET ");
        let status = match (has_token, is_get) {
            (false, _) => 403,
            (true, true) => 200,
            (true, false) => 409,
        };
        (status, String::new(), "theirs".to_owned())
    });
    let running = running(&tokens);
    let request = OperationRequest {
        resource: Some(upstream.url("/doc")),
        ..post(&upstream.url("/doc"))
    };
    let id = running.accept(request).unwrap().operation.id;
    let number = running.until(&id, "conflict").number;
    let conflict = running.wait(running.state.operations().conflict(number));
    let theirs = conflict.unwrap().unwrap().theirs;
    assert_eq!(theirs.as_deref(), Some(&b"theirs"[..]));
}

#[test]
fn moves_to_another_endpoint_when_one_rejects_its_key() {
    let upstream = Upstream::new(|_, request| {
        let is_bad = request.head.starts_with("POST /bad/");
        let status = if is_bad { 401 } else { 200 };
        (status, String::new(), String::new())
    });
    let (bad, good) = (upstream.url("/bad"), upstream.url("/good"));
    let running = Running::new(&format!(
        "{QUICK}[pool.llm]\nbalance = \"first\"\n\
         endpoints = [{{ name = \"a\", url = \"{bad}\" }}, {{ name = \"b\", url = \"{good}\" }}]\n"
    ));
    for _ in 0..3 {
        let id = running.post("/llm/x");
        let operation = running.until(&id, "completed");
        assert_eq!(operation.counters.attempts, 0);
    }
    assert_eq!(upstream.received().len(), 4, "the first endpoint is paused");
}
