//! What a person changes, and that it stays changed.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

use policy::breaker::BreakerState;
use policy::ladder::{Disabled, LadderRecord};
use serde_json::{Value, json};
use store::faulty::Faults;
use store::{Change, Store};

use crate::support::{Running, TWO, connect, settings, wait_until};

const PROTECTION: &str = "/api/v1/pools/llm/protection";

fn endpoints(running: &Running) -> Vec<(String, bool)> {
    let pool = running.get("/api/v1/pools/llm");
    let endpoints = pool["endpoints"].as_array().unwrap().iter();
    let shown = |endpoint: &Value| {
        let name = endpoint["name"].as_str().unwrap().to_owned();
        (name, endpoint["enabled"].as_bool().unwrap())
    };
    endpoints.map(shown).collect()
}

fn names(running: &Running) -> Vec<String> {
    let endpoints = endpoints(running).into_iter();
    endpoints.map(|(name, _)| name).collect()
}

#[test]
fn shows_a_whole_pool() {
    let (running, _folder) = Running::new(TWO);
    let pool = running.get("/api/v1/pools/llm");
    let protection = json!({
        "enabled": true,
        "pauses": ["30s", "60s", "120s", "300s", "600s"],
        "disable_after": 5,
        "unreachable": false,
        "show_test_tool": false,
        "probing_after": 20,
        "statuses": [429, 500, 502, 503, 504, 529],
        "texts": ["rate limit", "too many requests", "quota exceeded", "service unavailable"],
    });
    let endpoint = |name: &str, url: &str| {
        json!({
            "name": name, "key": format!("llm/{name}"), "url": url, "enabled": true,
            "paused_until_ms": null, "pause_started_ms": null, "recovering": false,
            "consecutive_errors": 0, "last_error": null, "disabled_reason": null,
            "disabled_kind": null, "disabled_at_ms": null, "in_flight": 0,
        })
    };
    assert_eq!(
        pool,
        json!({
            "name": "llm",
            "balance": "least_loaded",
            "protection": protection,
            "configured": protection,
            "changed": false,
            "endpoints": [
                endpoint("a", "http://127.0.0.1:9/v1"),
                endpoint("b", "https://b.example.com/v1"),
            ],
        })
    );
    assert_eq!(running.get("/api/v1/pools"), json!({ "pools": [pool] }));
}

#[test]
fn partial_protection_keeps_the_rest_and_survives_a_restart() {
    let (running, folder) = Running::new(TWO);
    let answer = running.ask("PUT", PROTECTION, Some(r#"{"pauses":["5s","7s"]}"#));
    assert_eq!(answer.status, 200);
    let answer = running.ask("PUT", PROTECTION, Some(r#"{"disable_after":2}"#));
    let after = answer.json();
    assert_eq!(
        (&after["pauses"], &after["disable_after"]),
        (&json!(["5s", "7s"]), &json!(2))
    );
    drop(running);
    let running = Running::in_folder(TWO, folder.path());
    assert_eq!(running.get("/api/v1/pools/llm")["protection"], after);
    let reset = running.ask("POST", &format!("{PROTECTION}/reset"), None);
    assert_eq!(reset.json()["disable_after"], 5);
    drop(running);
    let running = Running::in_folder(TWO, folder.path());
    assert_eq!(running.get("/api/v1/pools/llm")["protection"], reset.json());
}

#[test]
fn shows_what_a_reset_restores_and_whether_it_differs() {
    let toml = &format!("{TWO}[pool.llm.protection]\npauses = [\"10s\", \"1m30s\"]\n");
    let (running, _folder) = Running::new(toml);
    let shown = || {
        let pool = running.get("/api/v1/pools/llm");
        let pauses = |part: &str| pool[part]["pauses"].clone();
        (
            pauses("protection"),
            pauses("configured"),
            pool["changed"].clone(),
        )
    };
    let (own, other) = (json!(["10s", "90s"]), json!(["5s"]));
    assert_eq!(shown(), (own.clone(), own.clone(), json!(false)));
    running.ask("PUT", PROTECTION, Some(r#"{"pauses":["5s"]}"#));
    assert_eq!(shown(), (other, own.clone(), json!(true)));
    // A person who sets it back has changed nothing.
    running.ask("PUT", PROTECTION, Some(r#"{"pauses":["10s","1m30s"]}"#));
    assert_eq!(shown(), (own.clone(), own.clone(), json!(false)));
    running.ask("PUT", PROTECTION, Some(r#"{"show_test_tool":true}"#));
    assert_eq!(shown().2, true);
    running.ask("POST", &format!("{PROTECTION}/reset"), None);
    assert_eq!(shown(), (own.clone(), own, json!(false)));
}

#[test]
fn names_every_invalid_part_of_a_list() {
    let (running, _folder) = Running::new(TWO);
    let problems = |body: &str| {
        let answer = running.ask("PUT", PROTECTION, Some(body));
        assert_eq!(answer.problem(), (422, "invalid".to_owned()));
        answer.json()["problems"].clone()
    };
    let problem = |field: &str, value: &str, expected: &str| json!({ "field": field, "value": value, "expected": expected });
    let pause = "a duration of at least 1s";
    assert_eq!(
        problems(r#"{"pauses":["30s","0s",7,"soon"]}"#),
        json!([problem("pauses[2]", "7", pause)])
    );
    assert_eq!(
        problems(r#"{"pauses":["30s","0s","7"]}"#),
        json!([
            problem("pauses[1]", "0s", pause),
            problem(
                "pauses[2]",
                "7",
                "a number with a unit such as `500ms`, `30s` or `5m`"
            ),
        ])
    );
    assert_eq!(
        problems(r#"{"pauses":["0s"]}"#),
        json!([problem("pauses[0]", "0s", pause)])
    );
    assert_eq!(problems(r#"{"pauses":[]}"#)[0]["field"], "pauses");
    assert_eq!(
        problems(r#"{"texts":["fine","a,b"]}"#)[0]["field"],
        "texts[1]"
    );
    assert_eq!(
        problems(r#"{"statuses":[429,"x",401]}"#)[0]["field"],
        "statuses[1]"
    );
    assert_eq!(
        problems(r#"{"statuses":[429,401]}"#)[0]["field"],
        "statuses[1]"
    );
}

#[test]
fn names_every_invalid_setting_and_changes_none() {
    let (running, _folder) = Running::new(TWO);
    let body = r#"{"pauses":["500ms"],"disable_after":11,"statuses":[401],"enabled":1,"pause":[]}"#;
    let answer = running.ask("PUT", PROTECTION, Some(body));
    assert_eq!(answer.problem(), (422, "invalid".to_owned()));
    let problem = answer.json();
    let fields: Vec<&str> = problem["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| fault["field"].as_str().unwrap())
        .collect();
    assert_eq!(
        fields,
        [
            "enabled",
            "pauses[0]",
            "disable_after",
            "statuses[0]",
            "pause"
        ]
    );
    assert_eq!(
        problem["problems"][2],
        json!({ "field": "disable_after", "value": "11", "expected": "a whole number from 1 to 10" })
    );
    let protection = &running.get("/api/v1/pools/llm")["protection"];
    assert_eq!(protection["disable_after"], 5);
}

#[test]
fn enabled_and_disabled_survive_a_restart() {
    let (running, folder) = Running::new(TWO);
    let path = "/api/v1/pools/llm/endpoints/b";
    let answer = running
        .ask("PATCH", path, Some(r#"{"enabled":false}"#))
        .json();
    assert_eq!(answer["enabled"], false);
    assert_eq!(answer["disabled_reason"], "disabled by a person");
    assert_eq!(answer["disabled_kind"], "person");
    let disabled_at = answer["disabled_at_ms"].as_i64().unwrap();
    drop(running);
    let running = Running::in_folder(TWO, folder.path());
    let expected = [("a".to_owned(), true), ("b".to_owned(), false)];
    assert_eq!(endpoints(&running), expected);
    let restored = running.get("/api/v1/pools/llm")["endpoints"][1].clone();
    let restored_at = restored["disabled_at_ms"].as_i64().unwrap();
    assert!(restored_at.abs_diff(disabled_at) < 1000, "{restored}");
    let answer = running
        .ask("PATCH", path, Some(r#"{"enabled":true}"#))
        .json();
    assert_eq!(answer["disabled_reason"], Value::Null);
    drop(running);
    let running = Running::in_folder(TWO, folder.path());
    assert!(
        endpoints(&running)
            .iter()
            .all(|(_, is_enabled)| *is_enabled)
    );
}

#[test]
fn enabling_an_endpoint_whose_quota_was_used_up_releases_its_gate() {
    let (running, folder) = Running::new(TWO);
    let gate = |running: &Running| {
        let gate = running.get("/api/v1/gates/llm%2Fa");
        (gate["breaker"]["state"].clone(), gate["hold"].clone())
    };
    running.state.limiter().isolate("llm/a").unwrap();
    let quota = LadderRecord {
        disabled: Some(Disabled::QuotaExhausted),
        ..LadderRecord::default()
    };
    let endpoint = store::StoredEndpoint {
        pool: "llm".to_owned(),
        name: "a".to_owned(),
        record: quota,
        at: running.state.limiter().clock().wall(),
    };
    let gate_record = store::StoredGate {
        key: "llm/a".to_owned(),
        record: running.state.limiter().record("llm/a").unwrap(),
        at: endpoint.at,
    };
    let store = running.state.store().clone();
    let changes = [Change::Endpoint(endpoint), Change::Gate(gate_record)];
    store.save_all(changes).wait().unwrap();
    drop((running, store));

    let running = Running::in_folder(TWO, folder.path());
    let path = "/api/v1/pools/llm/endpoints/a";
    assert_eq!(gate(&running).0, "isolated");
    let endpoint = running.get("/api/v1/pools/llm")["endpoints"][0].clone();
    assert_eq!(endpoint["disabled_reason"], "its quota is used up");
    let answer = running.ask("PATCH", path, Some(r#"{"enabled":true}"#));
    assert_eq!(answer.json()["enabled"], true);
    assert_eq!(gate(&running), (json!("closed"), Value::Null));
    drop(running);
    let running = Running::in_folder(TWO, folder.path());
    assert_eq!(gate(&running), (json!("closed"), Value::Null));
}

#[test]
fn added_and_removed_endpoints_survive_a_restart() {
    let toml = &format!("secrets = [\"env:PATH\"]\n{TWO}");
    let (running, folder) = Running::new(toml);
    let path = "/api/v1/pools/llm/endpoints";
    let body = r#"{"name":"c d","url":"https://c.example.com/v1","headers":{"Authorization":"Bearer env:PATH"}}"#;
    let answer = running.ask("POST", path, Some(body));
    assert_eq!(answer.status, 201, "{}", answer.body);
    let location = answer.header("location").unwrap().to_owned();
    assert_eq!(location, "/api/v1/pools/llm/endpoints/c%20d");
    assert!(!answer.body.contains("env:"), "no header is shown");
    assert_eq!(
        running.ask("DELETE", &format!("{path}/a"), None).status,
        204
    );
    assert_eq!(names(&running), ["b", "c d"]);
    drop(running);

    let running = Running::in_folder(toml, folder.path());
    assert_eq!(names(&running), ["b", "c d"]);
    assert_eq!(running.warnings, [""; 0]);
    // The configuration's own may go down to the last, and be brought back.
    assert_eq!(running.ask("DELETE", &location, None).status, 204);
    assert_eq!(
        running.ask("DELETE", &format!("{path}/b"), None).status,
        204
    );
    assert_eq!(names(&running), [""; 0]);
    let back = r#"{"name":"a","url":"https://other.example.com"}"#;
    assert_eq!(running.ask("POST", path, Some(back)).status, 201);
    drop(running);

    let running = Running::in_folder(toml, folder.path());
    assert_eq!(names(&running), ["a"]);
    let pool = running.get("/api/v1/pools/llm");
    assert_eq!(pool["endpoints"][0]["url"], "https://other.example.com");
}

#[test]
fn refuses_an_invalid_endpoint_with_every_reason() {
    let (running, _folder) = Running::new(TWO);
    let path = "/api/v1/pools/llm/endpoints";
    let check = |body: &str, status: u16, reason: &str| {
        let answer = running.ask("POST", path, Some(body));
        assert_eq!(answer.problem(), (status, reason.to_owned()), "{body}");
        answer.json()
    };
    let body = r#"{"name":"a/b","url":"ftp://u:S3CRET@x","headers":{"host":"env:PATH","x-key":"S3CRET","y":"env:NO_SUCH_VARIABLE_AT_ALL"}}"#;
    let problem = check(body, 422, "invalid");
    assert_eq!(
        problem["problems"].as_array().unwrap().len(),
        5,
        "{problem}"
    );
    assert!(!problem.to_string().contains("S3CRET"), "{problem}");
    check(
        r#"{"name":"a","url":"https://x.example.com"}"#,
        422,
        "invalid",
    );
    check(
        r#"{"name":"x","url":"https://x.example.com/?a=1"}"#,
        422,
        "invalid",
    );
    check("{}", 422, "invalid");
    let long = json!({ "name": "x", "url": format!("https://x.example.com/{}", "*".repeat(2048)) });
    check(&long.to_string(), 422, "invalid");
    for url in [
        "http://127.0.0.1:9/",
        "http://[::1]/",
        "http://169.254.169.254/",
        "http://0x7f.1/",
        "http://localhost:1/",
        "http://api.localhost/",
    ] {
        let body = json!({ "name": "x", "url": url }).to_string();
        let problem = check(&body, 403, "address_not_allowed");
        assert_eq!(problem["problems"][0]["field"], "url");
    }
    assert_eq!(names(&running), ["a", "b"]);
    let answer = running.ask("DELETE", &format!("{path}/x"), None);
    assert_eq!(answer.problem(), (404, "not_found".to_owned()));
}

#[test]
fn secrets_that_the_configuration_neither_uses_nor_allows_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let used = folder.path().join("used");
    std::fs::write(&used, "k-1\n").unwrap();
    let toml = |secrets: &str| {
        format!(
            "{secrets}\n[pool.llm]\nendpoints = [{{ name = \"a\", url = \"http://127.0.0.1:9/v1\", \
             headers = {{ x-key = \"file:{}\" }} }}]\n",
            used.display()
        )
    };
    let data = folder.path().join("data");
    let running = Running::in_folder(&toml("secrets = [\"env:HO*\"]"), &data);
    let add = |running: &Running, name: &str, reference: &str| {
        let headers = json!({ "x-key": reference });
        let body = json!({ "name": name, "url": "https://x.example.com", "headers": headers });
        let path = "/api/v1/pools/llm/endpoints";
        running.ask("POST", path, Some(&body.to_string()))
    };
    for reference in [
        "env:PATH",
        "Bearer env:PATH",
        "file:/etc/passwd",
        "file:/no/such/file",
    ] {
        let answer = add(&running, "b", reference);
        assert_eq!(answer.problem(), (422, "invalid".to_owned()));
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.starts_with("`headers.x-key`: "), "{detail}");
        assert!(detail.contains("`server.secrets`"), "{detail}");
    }
    assert_eq!(names(&running), ["a"]);
    let of_the_file = format!("file:{}", used.display());
    for (name, reference) in [("b", of_the_file.as_str()), ("c", "Bearer env:HOME")] {
        assert_eq!(add(&running, name, reference).status, 201, "{reference}");
    }
    drop(running);
    // What is not allowed any more is not restored.
    let running = Running::in_folder(&toml(""), &data);
    assert_eq!(names(&running), ["a", "b"]);
    let [warning] = running.warnings.as_slice() else {
        panic!("{:?}", running.warnings);
    };
    assert!(warning.contains("`server.secrets`"), "{warning}");
}

#[test]
fn an_address_that_the_operator_allows_may_be_added() {
    let toml = format!("{TWO}\n[network]\nallow = [\"127.0.0.0/8\"]\n");
    let (running, _folder) = Running::new(&toml);
    let body = r#"{"name":"x","url":"http://127.0.0.1:9/"}"#;
    let answer = running.ask("POST", "/api/v1/pools/llm/endpoints", Some(body));
    assert_eq!(answer.status, 201);
}

#[test]
fn changes_nothing_when_the_store_fails() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Faults::from(0);
    let store = Store::memory_faulty(faults.clone());
    let running = Running::with_store(TWO, folder.path(), store);
    let limiter = running.state.limiter();
    limiter.isolate("isolated.example.com").unwrap();
    for (method, path, body) in [
        ("PUT", PROTECTION, Some(r#"{"disable_after":2}"#)),
        ("POST", "/api/v1/pools/llm/protection/reset", None),
        (
            "PATCH",
            "/api/v1/pools/llm/endpoints/a",
            Some(r#"{"enabled":false}"#),
        ),
        (
            "POST",
            "/api/v1/pools/llm/endpoints",
            Some(r#"{"name":"c","url":"https://c.example.com"}"#),
        ),
        ("DELETE", "/api/v1/pools/llm/endpoints/a", None),
        ("POST", "/api/v1/gates/isolated.example.com/release", None),
        ("POST", "/api/v1/gates/isolated.example.com/reset", None),
        ("POST", "/api/v1/gates/new.example.com/isolate", None),
    ] {
        let answer = running.ask(method, path, body);
        assert_eq!(answer.problem(), (503, "store_failed".to_owned()), "{path}");
    }
    let gate = running.get("/api/v1/gates/isolated.example.com");
    assert_eq!(gate["breaker"]["state"], "isolated");
    let answer = running.ask("GET", "/api/v1/gates/new.example.com", None);
    assert_eq!(answer.status, 404);
    let expected = [("a".to_owned(), true), ("b".to_owned(), true)];
    assert_eq!(endpoints(&running), expected);
    assert_eq!(
        running.get("/api/v1/pools/llm")["protection"]["disable_after"],
        5
    );
    let ready = running.ask("GET", "/readyz", None);
    assert_eq!(
        (ready.status, ready.json()["status"].clone()),
        (503, json!("degraded"))
    );
    faults.heal();
    let answer = running.ask("PUT", PROTECTION, Some(r#"{"disable_after":2}"#));
    assert_eq!(answer.status, 200);
    assert_eq!(running.ask("GET", "/readyz", None).status, 200);
}

#[test]
fn a_change_is_completed_when_its_client_disconnects() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Faults::stalled();
    let store = Store::open_faulty(folder.path(), faults.clone()).unwrap();
    let running = Running::with_store(TWO, folder.path(), store.clone());
    let stream = send(
        &running,
        "PATCH /api/v1/pools/llm/endpoints/b",
        r#"{"enabled":false}"#,
    );
    wait_until("the change is being stored", || faults.calls() > 0);
    drop(stream);
    // The one thread of the admin API sees the end of that connection before it answers this.
    assert_eq!(running.ask("GET", "/healthz", None).status, 200);
    faults.heal();
    let is_disabled = |endpoint: &store::StoredEndpoint| endpoint.record.disabled.is_some();
    assert!(store.load().unwrap().endpoints.iter().any(is_disabled));
    let expected = [("a".to_owned(), true), ("b".to_owned(), false)];
    wait_until("the live endpoint is as stored", || {
        endpoints(&running) == expected
    });
}

#[test]
fn gate_overrides_are_durable_before_they_take_effect() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Faults::stalled();
    let store = Store::open_faulty(folder.path(), faults.clone()).unwrap();
    let running = Running::with_store(TWO, folder.path(), store.clone());
    let stream = send(&running, "POST /api/v1/gates/llm%2Fa/isolate", "");
    wait_until("the override is being stored", || faults.calls() > 0);
    let before = running.state.limiter().record("llm/a");
    drop(stream);
    // The one thread of the admin API sees the end of that connection before it answers this.
    assert_eq!(running.ask("GET", "/healthz", None).status, 200);
    faults.heal();
    assert_eq!(before, None);
    let stored = store.load().unwrap().gates;
    assert_eq!(stored[0].key, "llm/a");
    assert_eq!(stored[0].record.breaker.state, BreakerState::Isolated);
    wait_until("the gate is isolated", || {
        let record = running.state.limiter().record("llm/a");
        record.is_some_and(|record| record.breaker.state == BreakerState::Isolated)
    });
}

/// Sends a request, and leaves its answer unread.
fn send(running: &Running, target: &str, body: &str) -> TcpStream {
    let mut stream = connect(running.address());
    let request = format!(
        "{target} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        running.address(),
        running.token.expose(),
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

#[test]
fn a_new_configuration_takes_effect_where_nothing_was_changed() {
    let (running, folder) = Running::new(TWO);
    running.ask("PUT", PROTECTION, Some(r#"{"disable_after":2}"#));
    running.ask("DELETE", "/api/v1/pools/llm/endpoints/a", None);
    let body = r#"{"name":"x","url":"https://x.example.com"}"#;
    running.ask("POST", "/api/v1/pools/llm/endpoints", Some(body));
    let new = r#"
[pool.llm]
endpoints = [
  { name = "a", url = "http://127.0.0.1:9/v1" },
  { name = "c", url = "https://c.example.com/v1" },
]
protection = { pauses = ["3s"], disable_after = 9 }
"#;
    let reload = |toml: &str| {
        let settings = settings(toml, folder.path());
        running.state.reload(Arc::new(settings));
    };
    reload(new);
    assert_eq!(names(&running), ["c", "x"]);
    let protection = running.get("/api/v1/pools/llm")["protection"].clone();
    assert_eq!(protection["disable_after"], 2, "as changed");
    assert_eq!(protection["pauses"], json!(["3s"]), "as configured");
    let reset = running
        .ask("POST", &format!("{PROTECTION}/reset"), None)
        .json();
    assert_eq!(reset["disable_after"], 9);
    // What was added and went again leaves nothing behind.
    running.ask("DELETE", "/api/v1/pools/llm/endpoints/x", None);
    reload(&new.replace("\"c\"", "\"x\""));
    assert_eq!(names(&running), ["x"]);
}

#[test]
fn leaves_out_an_added_endpoint_without_its_secret_and_warns() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "k-123\n").unwrap();
    let data = folder.path().join("data");
    let reference = format!("file:{}", secret.display());
    let toml = &format!("secrets = [{reference:?}]\n{TWO}");
    let running = Running::in_folder(toml, &data);
    let body =
        json!({ "name": "x", "url": "https://x.example.com", "headers": { "x-key": reference } });
    let answer = running.ask(
        "POST",
        "/api/v1/pools/llm/endpoints",
        Some(&body.to_string()),
    );
    assert_eq!(answer.status, 201);
    drop(running);
    std::fs::remove_file(&secret).unwrap();
    let running = Running::in_folder(toml, &data);
    assert_eq!(names(&running), ["a", "b"]);
    assert_eq!(running.warnings.len(), 1);
    let warning = &running.warnings[0];
    assert!(warning.contains("`x` of pool `llm`"), "{warning}");
}

#[cfg(unix)]
#[test]
fn refuses_a_secret_in_a_pipe_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let toml = format!("secrets = [\"file:{}/*\"]\n{TWO}", folder.path().display());
    let (running, _folder) = Running::new(&toml);
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let reference = format!("file:{}", pipe.display());
    let body =
        json!({ "name": "x", "url": "https://x.example.com", "headers": { "x-key": reference } });
    let answer = running.ask(
        "POST",
        "/api/v1/pools/llm/endpoints",
        Some(&body.to_string()),
    );
    assert_eq!(answer.problem(), (422, "invalid".to_owned()));
    assert_eq!(names(&running), ["a", "b"]);
}

#[test]
fn the_test_tool_plays_every_scenario_without_touching_the_pool() {
    let (running, _folder) = Running::new(TWO);
    let play = |scenario: &str| -> Vec<(Value, Value, Value)> {
        let body = json!({ "scenario": scenario }).to_string();
        let answer = running.ask("POST", "/api/v1/pools/llm/test", Some(&body));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let answer = answer.json();
        let steps = answer["steps"].as_array().unwrap().iter();
        let shown = |step: &Value| {
            (
                step["enabled"].clone(),
                step["pause_ms"].clone(),
                step["consecutive_errors"].clone(),
            )
        };
        steps.map(shown).collect()
    };
    let step = |is_enabled: bool, pause_ms: u64, errors: u32| {
        (json!(is_enabled), json!(pause_ms), json!(errors))
    };
    assert_eq!(play("single_error"), [step(true, 30_000, 1)]);
    assert_eq!(
        play("repeated_errors"),
        [
            step(true, 30_000, 1),
            step(true, 60_000, 2),
            step(true, 120_000, 3)
        ]
    );
    assert_eq!(
        play("success_recovery"),
        [
            step(true, 30_000, 1),
            step(true, 60_000, 2),
            step(true, 0, 0),
            step(true, 30_000, 1)
        ]
    );
    assert_eq!(
        play("auto_disable"),
        [
            step(true, 30_000, 1),
            step(true, 60_000, 2),
            step(true, 120_000, 3),
            step(true, 300_000, 4),
            step(false, 600_000, 5)
        ]
    );
    running.ask(
        "PUT",
        PROTECTION,
        Some(r#"{"pauses":["5s"],"disable_after":1}"#),
    );
    assert_eq!(play("auto_disable"), [step(false, 5_000, 1)]);
    assert!(
        endpoints(&running)
            .iter()
            .all(|(_, is_enabled)| *is_enabled)
    );
    let body = Some(r#"{"scenario":"other"}"#);
    let answer = running.ask("POST", "/api/v1/pools/llm/test", body);
    assert_eq!(answer.problem(), (422, "invalid".to_owned()));
}
