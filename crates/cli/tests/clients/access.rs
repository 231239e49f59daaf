//! The admin API of a real server, with raw requests: what is refused, and that no response contains
//! a secret.

use std::fs;

use crate::servers::{Response, Servers, get, send};

/// Secrets wherever settings may have them; the upstream responds with 401.
const SECRETS: &str = r#"
[pool.llm]
endpoints = [
  { name = "a", url = "http://MOCK", headers = { authorization = "Bearer file:FOLDER/secret" } },
]
[client.app]
token = "file:FOLDER/secret"
"#;

const SECRET: &str = "s3cr3t-0123456789abcdef";

fn started() -> Servers {
    let servers = Servers::start_with(&["--script", "401"], |folder| {
        fs::write(folder.join("secret"), SECRET).unwrap();
        SECRETS.replace("FOLDER", folder.to_str().unwrap())
    });
    let token = format!("tidegate-token: {SECRET}");
    let asked = get(&servers.gateway(), "/llm/x?key=s3cr3t", &[&token]);
    assert_eq!(asked.status, 401, "{asked:?}");
    assert_eq!(asked.header("tidegate-endpoint"), Some("a"), "{asked:?}");
    servers
}

/// Every path with a finite response.
const PATHS: [&str; 7] = [
    "/api/v1/gates",
    "/api/v1/gates/llm%2Fa",
    "/api/v1/pools",
    "/api/v1/pools/llm",
    "/metrics",
    "/openapi.json",
    "/nowhere",
];

fn reason(response: &Response) -> String {
    let kind = response.header("content-type");
    assert_eq!(kind, Some("application/problem+json"), "{response:?}");
    response.json()["reason"].as_str().unwrap().to_owned()
}

#[test]
fn admin_requires_the_token_and_refuses_cross_site_requests() {
    let servers = started();
    let admin = servers.admin();
    let token = format!("authorization: bearer {}", servers.token());
    let check = |path: &str, headers: &[&str], status: u16, expected: &str| {
        for method in ["GET", "POST", "DELETE", "OPTIONS"] {
            let response = send(&admin, method, path, headers, "");
            assert_eq!(response.status, status, "{method} {path}: {response:?}");
            assert_eq!(reason(&response), expected);
            assert!(!response.head.contains("access-control-"), "{response:?}");
        }
    };
    let of_client = format!("authorization: bearer {SECRET}");
    let preflight = "access-control-request-method: DELETE";
    for path in PATHS {
        check(path, &[], 401, "no_token");
        // A client token of the gateway is not accepted here.
        check(path, &[&of_client], 401, "no_token");
        check(path, &[&token, "host: evil.example.com"], 421, "wrong_host");
        let origin = "origin: https://evil.example.com";
        check(path, &[&token, origin, preflight], 403, "cross_site");
        check(
            path,
            &[&token, "sec-fetch-site: cross-site"],
            403,
            "cross_site",
        );
    }
    // The page holds no data; other names and other sites' requests do not get it either.
    assert_eq!(send(&admin, "GET", "/", &[], "").status, 200);
    let refused = ["host: evil.example.com", "origin: https://evil.example.com"];
    for (header, status) in refused.into_iter().zip([421, 403]) {
        assert_eq!(send(&admin, "GET", "/", &[header], "").status, status);
    }
    servers.end();
}

#[test]
fn no_response_contains_a_secret() {
    let servers = started();
    let token = servers.token();
    let with_token = format!("authorization: bearer {token}");
    for path in PATHS {
        for headers in [&[][..], &[&*with_token]] {
            let response = get(&servers.admin(), path, headers);
            let all = format!("{}\n{}", response.head, response.body);
            for secret in ["s3cr3t", &token] {
                assert!(!all.contains(secret), "{path} shows a secret: {all}");
            }
        }
    }
    let log = fs::read_to_string(servers.folder.path().join("serve.log")).unwrap();
    assert!(!log.contains("s3cr3t") && !log.contains(&token), "{log}");
    servers.end();
}
