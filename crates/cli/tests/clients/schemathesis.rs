//! schemathesis over the admin API: it reads the OpenAPI document, generates valid and invalid
//! requests, and checks that every response is as described.
//!
//! What it finds becomes a test in the crate `app`. `schemathesis.toml` lists the checks that are
//! switched off, with reasons. `scripts/run-schemathesis` runs this with more examples.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{of_python, run_for, script};
use crate::servers::{Response, Servers, get, send};

/// Two endpoints to change, named as in the document's examples.
const LLM: &str = r#"
[pool.llm]
endpoints = [
  { name = "a", url = "http://MOCK" },
  { name = "b", url = "http://MOCK" },
]
[network]
allow = ["127.0.0.0/8"]
[jobs]
status_limit = "100000/1m"
"#;

#[test]
fn every_admin_response_matches_its_description() {
    // The third request, an operation, is a conflict.
    let servers = Servers::start(&["--script", "200,200,409,200"], LLM);
    let id = request_id(&get(&servers.gateway(), "/llm/echo", &[]));
    let folder = servers.folder.path();
    // The id of a request that has a trail.
    fs::write(folder.join("requests.dict"), format!("\"{id}\"\n")).unwrap();
    let operations = ["completed", "conflict"].map(|state| operation(&servers, state));
    let operations = operations.map(|id| format!("\"{id}\"\n"));
    fs::write(folder.join("operations.dict"), operations.concat()).unwrap();
    let config = folder.join("schemathesis.toml");
    fs::copy(script("schemathesis.toml"), &config).unwrap();

    let mut command = of_python("schemathesis");
    command
        .current_dir(folder)
        .arg("--config-file")
        .arg(&config)
        .args(["run", "--no-color", "--workers", "1"])
        .args(["--max-examples", &setting("SCHEMATHESIS_EXAMPLES", "25")])
        .args(["--seed", &setting("SCHEMATHESIS_SEED", "1")])
        .args(["--header", &bearer(&servers)])
        .arg(format!("http://{}/openapi.json", servers.admin()));
    run_for(&mut command, MAX_RUN_TIME);

    assert_eq!(get(&servers.admin(), "/healthz", &[]).status, 200);
    assert_eq!(get(&servers.admin(), "/readyz", &[]).status, 200);
    assert_pool_is_usable(&servers);
    servers.end();
}

/// Long, for runs with many examples.
const MAX_RUN_TIME: Duration = Duration::from_secs(3600);

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

fn request_id(response: &Response) -> String {
    assert_eq!(response.status, 200, "{response:?}");
    response.header("tidegate-request-id").unwrap().to_owned()
}

/// The id of an operation, when it is in this state.
fn operation(servers: &Servers, state: &str) -> String {
    let headers = [&*bearer(servers), "content-type: application/json"];
    let ask = |method: &str, path: &str, body: &str| {
        let path = format!("/api/v1/operations{path}");
        send(&servers.admin(), method, &path, &headers, body)
    };
    let body = json!({ "method": "PUT", "url": "/llm/echo", "body": {} });
    let accepted = ask("POST", "", &body.to_string());
    assert_eq!(accepted.status, 202, "{accepted:?}");
    let id = accepted.json()["id"].as_str().unwrap().to_owned();
    servers.await_stats("delivered", |_| {
        ask("GET", &format!("/{id}"), "").json()["state"] == state
    });
    id
}

fn bearer(servers: &Servers) -> String {
    format!("Authorization: Bearer {}", servers.token())
}

/// Removes all endpoints of the pool, adds one, and sends a request through it.
fn assert_pool_is_usable(servers: &Servers) {
    let admin = |method: &str, path: &str, body: &str| {
        let headers = [&*bearer(servers), "content-type: application/json"];
        send(&servers.admin(), method, path, &headers, body)
    };
    let endpoints = "/api/v1/pools/llm/endpoints";
    let pool = admin("GET", "/api/v1/pools/llm", "").json();
    for endpoint in pool["endpoints"].as_array().unwrap() {
        let name = percent_encoded(endpoint["name"].as_str().unwrap());
        let removed = admin("DELETE", &format!("{endpoints}/{name}"), "");
        assert_eq!(removed.status, 204, "{removed:?}");
    }
    let url = format!("http://{}", servers.mock.address("listening"));
    let new = json!({ "name": "afterwards", "url": url });
    let added = admin("POST", endpoints, &new.to_string());
    assert_eq!(added.status, 201, "{added:?}");
    let response = get(&servers.gateway(), "/llm/echo", &[]);
    assert_eq!(response.header("tidegate-endpoint"), Some("afterwards"));
    assert_eq!(response.json()["path"], Value::from("/echo"));
}

fn percent_encoded(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
