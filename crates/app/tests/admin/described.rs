//! The document and the server say the same: every call, with good and with bad input.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::schema::misfits;
use crate::support::{Running, TWO, ask};

/// A target, a body and the status that has to come of it.
type Input = (String, Option<Value>, u16);

/// Good and bad input for every call of the document but the stream, which has no end.
fn inputs() -> Vec<(&'static str, &'static str, Vec<Input>)> {
    let to = |path: &str, status: u16| (path.to_owned(), None, status);
    let with = |path: &str, body: Value, status: u16| (path.to_owned(), Some(body), status);
    let gates = "/api/v1/gates";
    let pools = "/api/v1/pools";
    let endpoint = "/api/v1/pools/llm/endpoints";
    let operations = "/api/v1/operations";
    let jobs = "/api/v1/jobs";
    vec![
        (
            "get",
            "/api/v1/gates",
            vec![
                to(gates, 200),
                to(
                    &format!("{gates}?sort=accepted&recent=true&offset=1&state=open&filter=a"),
                    200,
                ),
                to(&format!("{gates}?limit=0"), 400),
                to(&format!("{gates}?offset=1000000001"), 400),
            ],
        ),
        (
            "post",
            "/api/v1/gates/{key}/isolate",
            vec![
                to(&format!("{gates}/llm%2Fa/isolate"), 200),
                to(&format!("{gates}/!/isolate"), 404),
            ],
        ),
        (
            "get",
            "/api/v1/gates/{key}",
            vec![
                to(&format!("{gates}/llm%2Fa"), 200),
                to(&format!("{gates}/x"), 404),
                to(&format!("{gates}/%ff"), 400),
            ],
        ),
        (
            "get",
            "/api/v1/gates/{key}/history",
            vec![
                to(&format!("{gates}/llm%2Fa/history?window=1m"), 200),
                to(&format!("{gates}/llm%2Fa/history?window=1s"), 400),
                to(&format!("{gates}/x/history"), 404),
            ],
        ),
        (
            "get",
            "/api/v1/gates/{key}/servers",
            vec![
                to(&format!("{gates}/llm%2Fa/servers"), 200),
                to(&format!("{gates}/x/servers"), 404),
            ],
        ),
        (
            "post",
            "/api/v1/gates/{key}/release",
            vec![
                to(&format!("{gates}/llm%2Fa/release"), 200),
                to(&format!("{gates}/x/release"), 404),
            ],
        ),
        (
            "post",
            "/api/v1/gates/{key}/reset",
            vec![
                to(&format!("{gates}/llm%2Fa/reset"), 200),
                to(&format!("{gates}/x/reset"), 404),
            ],
        ),
        ("get", "/api/v1/pools", vec![to(pools, 200)]),
        (
            "get",
            "/api/v1/pools/{pool}",
            vec![
                to(&format!("{pools}/llm"), 200),
                to(&format!("{pools}/x"), 404),
            ],
        ),
        (
            "post",
            "/api/v1/pools/{pool}/endpoints",
            vec![
                with(
                    endpoint,
                    json!({ "name": "c", "url": "https://c.example.com" }),
                    201,
                ),
                with(endpoint, json!({ "name": "c" }), 422),
                with(
                    endpoint,
                    json!({ "name": "d", "url": "http://10.0.0.1" }),
                    403,
                ),
            ],
        ),
        (
            "patch",
            "/api/v1/pools/{pool}/endpoints/{name}",
            vec![
                with(&format!("{endpoint}/c"), json!({ "enabled": false }), 200),
                with(&format!("{endpoint}/c"), json!({ "enabled": 0 }), 422),
                with(&format!("{endpoint}/x"), json!({ "enabled": true }), 404),
            ],
        ),
        (
            "delete",
            "/api/v1/pools/{pool}/endpoints/{name}",
            vec![
                to(&format!("{endpoint}/c"), 204),
                to(&format!("{endpoint}/c"), 404),
            ],
        ),
        (
            "put",
            "/api/v1/pools/{pool}/protection",
            vec![
                with(&format!("{pools}/llm/protection"), json!({}), 200),
                with(
                    &format!("{pools}/llm/protection"),
                    json!({ "texts": [","] }),
                    422,
                ),
                with(&format!("{pools}/x/protection"), json!({}), 404),
            ],
        ),
        (
            "post",
            "/api/v1/pools/{pool}/protection/reset",
            vec![
                to(&format!("{pools}/llm/protection/reset"), 200),
                to(&format!("{pools}/x/protection/reset"), 404),
            ],
        ),
        (
            "post",
            "/api/v1/pools/{pool}/test",
            vec![
                with(
                    &format!("{pools}/llm/test"),
                    json!({ "scenario": "auto_disable" }),
                    200,
                ),
                with(&format!("{pools}/llm/test"), json!({}), 422),
            ],
        ),
        (
            "post",
            "/api/v1/operations",
            vec![
                with(
                    operations,
                    json!({ "method": "POST", "url": "/llm/orders", "body": { "a": 1 } }),
                    202,
                ),
                with(operations, json!({ "method": "POST" }), 422),
                with(
                    operations,
                    json!({ "method": "POST", "url": "http://10.0.0.1/" }),
                    403,
                ),
            ],
        ),
        (
            "get",
            "/api/v1/operations",
            vec![
                to(operations, 200),
                to(&format!("{operations}?state=x"), 400),
            ],
        ),
        (
            "get",
            "/api/v1/operations/{id}",
            vec![to(&format!("{operations}/op_x"), 404)],
        ),
        (
            "get",
            "/api/v1/operations/{id}/conflict",
            vec![to(&format!("{operations}/op_x/conflict"), 404)],
        ),
        (
            "post",
            "/api/v1/operations/{id}/retry",
            vec![to(&format!("{operations}/op_x/retry"), 404)],
        ),
        (
            "post",
            "/api/v1/operations/{id}/cancel",
            vec![to(&format!("{operations}/op_x/cancel"), 404)],
        ),
        (
            "post",
            "/api/v1/operations/{id}/resolve",
            vec![
                with(
                    &format!("{operations}/op_x/resolve"),
                    json!({ "action": "resend" }),
                    404,
                ),
                with(&format!("{operations}/op_x/resolve"), json!({}), 422),
            ],
        ),
        (
            "post",
            "/api/v1/operations/retry",
            vec![
                with(
                    &format!("{operations}/retry"),
                    json!({ "filter": {}, "dry_run": true }),
                    200,
                ),
                with(&format!("{operations}/retry"), json!({}), 422),
            ],
        ),
        (
            "post",
            "/api/v1/operations/cancel",
            vec![
                with(
                    &format!("{operations}/cancel"),
                    json!({ "filter": { "state": "available" } }),
                    200,
                ),
                with(
                    &format!("{operations}/cancel"),
                    json!({ "filter": {} }),
                    422,
                ),
            ],
        ),
        (
            "post",
            "/api/v1/jobs",
            vec![
                with(
                    jobs,
                    json!({ "urls": ["https://docs.example.com/"], "crawl": true, "depth": 2 }),
                    202,
                ),
                with(jobs, json!({ "urls": [] }), 422),
                with(jobs, json!({ "urls": ["http://10.0.0.1/"] }), 403),
            ],
        ),
        (
            "get",
            "/api/v1/jobs",
            vec![to(jobs, 200), to(&format!("{jobs}?cursor=x"), 400)],
        ),
        (
            "get",
            "/api/v1/jobs/{id}",
            vec![to(&format!("{jobs}/job_x"), 404)],
        ),
        (
            "post",
            "/api/v1/jobs/{id}/cancel",
            vec![to(&format!("{jobs}/job_x/cancel"), 404)],
        ),
        (
            "get",
            "/r/{slug}",
            vec![to("/r/unknown", 404), to("/r/unknown.json", 404)],
        ),
        (
            "get",
            "/api/v1/explain/{request_id}",
            vec![
                to("/api/v1/explain/000000000000000000000000", 404),
                to("/api/v1/explain/x", 400),
            ],
        ),
        (
            "get",
            "/api/v1/explain",
            vec![
                to("/api/v1/explain?key=llm/a&limit=5", 200),
                to("/api/v1/explain?limit=0", 400),
            ],
        ),
        (
            "get",
            "/api/v1/events/recent",
            vec![
                to("/api/v1/events/recent?limit=5", 200),
                to("/api/v1/events/recent?limit=x", 400),
            ],
        ),
        (
            "get",
            "/api/v1/summary",
            vec![
                to("/api/v1/summary?window=1m", 200),
                to("/api/v1/summary?window=x", 400),
            ],
        ),
        ("get", "/api/v1/demo", vec![to("/api/v1/demo", 404)]),
        ("get", "/api/v1/settings", vec![to("/api/v1/settings", 200)]),
        (
            "get",
            "/api/v1/scenarios",
            vec![to("/api/v1/scenarios", 200)],
        ),
        (
            "get",
            "/api/v1/gates/{key}/scenario",
            vec![to("/api/v1/gates/llm%2Fx/scenario", 404)],
        ),
        (
            "post",
            "/api/v1/simulate",
            vec![
                with(
                    "/api/v1/simulate",
                    json!({ "scenario": "o9", "set": { "duration": "20s" } }),
                    200,
                ),
                with("/api/v1/simulate", json!({ "scenario": "x" }), 422),
            ],
        ),
        (
            "post",
            "/login",
            vec![
                with("/login", json!({ "token": "0123456789abcdef" }), 401),
                with("/login", json!({}), 422),
            ],
        ),
        ("get", "/login", vec![to("/login", 200)]),
        ("post", "/logout", vec![to("/logout", 204)]),
        ("get", "/version", vec![to("/version", 200)]),
        ("get", "/healthz", vec![to("/healthz", 200)]),
        ("get", "/readyz", vec![to("/readyz", 200)]),
        ("get", "/metrics", vec![to("/metrics", 200)]),
    ]
}

#[test]
fn every_response_matches_the_document() {
    let (running, _folder) = Running::new(TWO);
    let document = running.get("/openapi.json");
    let mut seen = BTreeSet::from([("get", "/api/v1/events")]);
    for (method, path, inputs) in inputs() {
        let operation = &document["paths"][path][method];
        assert!(operation.is_object(), "{method} {path} is not described");
        seen.insert((method, path));
        for (target, body, status) in inputs {
            let body = body.map(|body| body.to_string());
            let answer = running.ask(&method.to_uppercase(), &target, body.as_deref());
            assert_eq!(answer.status, status, "{target}: {}", answer.body);
            let response = &operation["responses"][status.to_string()];
            assert!(response.is_object(), "{target}: {status} is not described");
            check_body(&document, response, &answer, &target);
        }
        let anonymous = ask(running.address(), &method.to_uppercase(), path, &[], "");
        let is_free = operation["security"].is_array();
        assert_eq!(anonymous.status == 401, !is_free, "{path}");
        // Signing in needs no credential, and is refused with a wrong one.
        assert_eq!(
            operation["responses"]["401"].is_object(),
            !is_free || (method, path) == ("post", "/login"),
            "{path}"
        );
    }
    let mut described = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            described.insert((method.as_str(), path.as_str()));
        }
    }
    assert_eq!(described, seen);
}

fn check_body(document: &Value, response: &Value, answer: &crate::support::Answer, target: &str) {
    let Some(content) = response["content"].as_object() else {
        assert_eq!(answer.body, "", "{target}");
        return;
    };
    let kind = answer.header("content-type").unwrap();
    let kind = kind.split(';').next().unwrap();
    let described = content.get(kind);
    let schema =
        &described.unwrap_or_else(|| panic!("{target}: {kind} is not described"))["schema"];
    if kind.ends_with("json") {
        let found = misfits(document, schema, &answer.json(), "answer");
        assert!(found.is_empty(), "{target}: {found:#?}");
    }
}

#[test]
fn every_operation_has_an_id_and_a_summary() {
    let document: Value = serde_json::from_str(&app::admin::document()).unwrap();
    let mut names = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "{name} is there twice");
            assert!(operation["summary"].is_string(), "{method} {path}");
            for response in ["403", "421"] {
                assert!(operation["responses"][response].is_object(), "{path}");
            }
        }
    }
}

/// A number without bounds invites numbers that no field of the server can hold.
#[test]
fn every_number_in_a_query_has_bounds() {
    let document: Value = serde_json::from_str(&app::admin::document()).unwrap();
    let items = document["paths"].as_object().unwrap().values();
    let operations = items.flat_map(|item| item.as_object().unwrap().values());
    let parameters = operations.flat_map(|operation| operation["parameters"].as_array());
    for parameter in parameters.flatten() {
        let schema = &parameter["schema"];
        if schema["type"] == "integer" || schema["type"] == "number" {
            assert!(schema["minimum"].is_number(), "{parameter}");
            assert!(schema["maximum"].is_number(), "{parameter}");
        }
    }
}
