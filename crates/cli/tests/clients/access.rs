//! The admin side of a whole server, with raw requests: who is refused, and that no answer shows a
//! secret.

use std::fs;

use crate::servers::{Answer, Servers, ask, get};

/// Secrets where settings can have them; the upstream answers 401 to them.
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

/// Every path that can be read and ends.
const PATHS: [&str; 8] = [
    "/api/v1/gates",
    "/api/v1/gates/llm%2Fa",
    "/api/v1/pools",
    "/api/v1/pools/llm",
    "/metrics",
    "/openapi.json",
    "/nowhere",
    "/",
];

fn reason(answer: &Answer) -> String {
    let kind = answer.header("content-type");
    assert_eq!(kind, Some("application/problem+json"), "{answer:?}");
    answer.json()["reason"].as_str().unwrap().to_owned()
}

#[test]
fn only_the_token_opens_it_and_no_page_of_others_does() {
    let servers = started();
    let admin = servers.admin();
    let token = format!("authorization: bearer {}", servers.token());
    let check = |path: &str, headers: &[&str], status: u16, expected: &str| {
        for method in ["GET", "POST", "DELETE", "OPTIONS"] {
            let answer = ask(&admin, method, path, headers, "");
            assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
            assert_eq!(reason(&answer), expected);
            assert!(!answer.head.contains("access-control-"), "{answer:?}");
        }
    };
    let of_client = format!("authorization: bearer {SECRET}");
    let preflight = "access-control-request-method: DELETE";
    for path in PATHS {
        check(path, &[], 401, "no_token");
        // What opens the gateway opens nothing here.
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
    servers.end();
}

#[test]
fn no_answer_shows_a_secret() {
    let servers = started();
    let token = servers.token();
    let with_token = format!("authorization: bearer {token}");
    for path in PATHS {
        for headers in [&[][..], &[&*with_token]] {
            let answer = get(&servers.admin(), path, headers);
            let all = format!("{}\n{}", answer.head, answer.body);
            for secret in ["s3cr3t", &token] {
                assert!(!all.contains(secret), "{path} shows a secret: {all}");
            }
        }
    }
    let log = fs::read_to_string(servers.folder.path().join("serve.log")).unwrap();
    assert!(!log.contains("s3cr3t") && !log.contains(&token), "{log}");
    servers.end();
}
