//! schemathesis over the admin API: it reads the document, makes up requests that fit and that do
//! not, and checks that every answer is as described.
//!
//! What it found becomes a test of its own in the crate `app`. `schemathesis.toml` says what is left
//! out, and why. `scripts/run-schemathesis` runs this with more examples.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{of_python, run_for, script};
use crate::servers::{Answer, Servers, ask, get};

/// Two endpoints to change, named as in the document's examples.
const LLM: &str = r#"
[pool.llm]
endpoints = [
  { name = "a", url = "http://MOCK" },
  { name = "b", url = "http://MOCK" },
]
[network]
allow = ["127.0.0.0/8"]
"#;

#[test]
fn every_answer_is_as_described_and_nothing_breaks() {
    let servers = Servers::start(&[], LLM);
    let id = request_id(&get(&servers.gateway(), "/llm/echo", &[]));
    let folder = servers.folder.path();
    // A request that can be explained.
    fs::write(folder.join("requests.dict"), format!("\"{id}\"\n")).unwrap();
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
    run_for(&mut command, LONGEST);

    assert_eq!(get(&servers.admin(), "/healthz", &[]).status, 200);
    assert_eq!(get(&servers.admin(), "/readyz", &[]).status, 200);
    assert_pool_is_usable(&servers);
    servers.end();
}

/// A long run is somebody's wish.
const LONGEST: Duration = Duration::from_secs(3600);

fn setting(name: &str, usual: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| usual.to_owned())
}

fn request_id(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("tidegate-request-id").unwrap().to_owned()
}

fn bearer(servers: &Servers) -> String {
    format!("Authorization: Bearer {}", servers.token())
}

/// Takes out whatever was put into the pool, puts an endpoint in, and sends a request through it.
fn assert_pool_is_usable(servers: &Servers) {
    let admin = |method: &str, path: &str, body: &str| {
        let headers = [&*bearer(servers), "content-type: application/json"];
        ask(&servers.admin(), method, path, &headers, body)
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
    let answer = get(&servers.gateway(), "/llm/echo", &[]);
    assert_eq!(answer.header("tidegate-endpoint"), Some("afterwards"));
    assert_eq!(answer.json()["path"], Value::from("/echo"));
}

fn percent_encoded(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
