//! The console's files and the sign-in of a browser, over real sockets.

use crate::support::{Answer, Running, TWO, ask};

fn get(running: &Running, path: &str, headers: &[&str]) -> Answer {
    ask(running.address(), "GET", path, headers, "")
}

/// Signs in by the address that `serve` prints, and returns the cookie as a browser sends it.
fn sign_in(running: &Running) -> String {
    let address = running.admin().sign_in_address();
    let path = address.split_once("/?").unwrap().1;
    let answer = get(running, &format!("/?{path}"), &[]);
    assert_eq!((answer.status, answer.header("location")), (303, Some("/")));
    cookie_of(&answer)
}

fn cookie_of(answer: &Answer) -> String {
    let cookie = answer.header("set-cookie").unwrap();
    format!("Cookie: {}", cookie.split(';').next().unwrap())
}

const SAME: &str = "Sec-Fetch-Site: same-origin";
const JSON: &str = "Content-Type: application/json";

#[test]
fn serves_the_page_for_every_path_of_the_console() {
    let (running, _folder) = Running::new(TWO);
    let page = get(&running, "/", &[]);
    assert!(page.body.starts_with("<!doctype html>"), "{}", page.body);
    for path in [
        "/",
        "/login",
        "/gates?state=open",
        "/gates/llm/a",
        "/gates/llm%2Fa",
        "/pools",
        "/operations",
        "/operations/op_1",
        "/jobs",
        "/jobs/job_1",
        "/simulate",
    ] {
        let answer = get(&running, path, &[]);
        assert_eq!((answer.status, &answer.body), (200, &page.body), "{path}");
        let kind = answer.header("content-type");
        assert_eq!(kind, Some("text/html; charset=utf-8"));
    }
    let post = running.ask("POST", "/gates", None);
    assert_eq!(post.problem(), (405, "method_not_allowed".to_owned()));
    for path in ["/operations/a/b", "/gates/", "/nowhere"] {
        assert_eq!(running.ask("GET", path, None).problem().0, 404, "{path}");
        assert_eq!(get(&running, path, &[]).problem().0, 401, "{path}");
    }
}

#[test]
fn serves_files_that_browsers_revalidate() {
    let (running, _folder) = Running::new(TWO);
    let answer = get(&running, "/console/main.js", &[]);
    assert_eq!(answer.status, 200);
    let check = |name: &str, expected: &str| assert_eq!(answer.header(name), Some(expected));
    check("content-type", "text/javascript; charset=utf-8");
    check("cache-control", "no-cache");
    check("x-content-type-options", "nosniff");
    check("referrer-policy", "no-referrer");
    check("cross-origin-opener-policy", "same-origin");
    check("cross-origin-resource-policy", "same-origin");
    check(
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    );
    let tag = answer.header("etag").unwrap();
    let known = format!("If-None-Match: \"other\", {tag}");
    let again = get(&running, "/console/main.js", &[&known]);
    assert_eq!((again.status, &*again.body), (304, ""));
    assert_eq!(again.header("etag"), Some(tag));
    let other = get(&running, "/console/main.js", &["If-None-Match: \"other\""]);
    assert_eq!((other.status, other.body), (200, answer.body));
    for name in [
        "none.js",
        "../Cargo.toml",
        "%2e%2e/Cargo.toml",
        "test/text.test.js",
        "tsconfig.json",
        "",
    ] {
        let answer = get(&running, &format!("/console/{name}"), &[]);
        assert!(matches!(answer.status, 404 | 401), "{name}");
    }
}

#[test]
fn every_response_says_when_it_was_made() {
    let (running, _folder) = Running::new(TWO);
    let before = running.state.clock().wall().as_unix_millis();
    for path in ["/", "/console/main.js", "/healthz", "/api/v1/gates", "/x"] {
        let now: i64 = get(&running, path, &[])
            .header("tidegate-now")
            .unwrap()
            .parse()
            .unwrap();
        assert!((before..before + 20_000).contains(&now), "{path}");
    }
}

#[test]
fn says_which_process_responds() {
    let (running, _folder) = Running::new(TWO);
    let version = running.get("/version");
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(version["demo"], false);
    assert_eq!(version, running.get("/version"));
    let (other, _folder) = Running::new(TWO);
    assert_ne!(other.get("/version")["boot_id"], version["boot_id"]);
    assert_eq!(get(&running, "/version", &[]).problem().0, 401);
}

#[test]
fn exchanges_the_token_in_an_address_for_a_cookie() {
    let (running, _folder) = Running::new(TWO);
    let token = running.token.expose();
    let check = |path: &str, expected: &str, is_signed_in: bool| {
        let answer = get(&running, path, &[]);
        assert_eq!(answer.status, 303, "{path}");
        assert_eq!(answer.header("location"), Some(expected), "{path}");
        assert_eq!(answer.header("set-cookie").is_some(), is_signed_in);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert!(!answer.body.contains(token));
    };
    check(&format!("/?token={token}"), "/", true);
    let deep = format!("/gates/llm/a?request=1&token={token}&x=%2F");
    check(&deep, "/gates/llm/a?request=1&x=%2F", true);
    check("/?token=wrong", "/login?wrong", false);
    check("/gates?token=", "/login?wrong", false);
    let answer = get(&running, &format!("/?token={token}"), &[]);
    let cookie = answer.header("set-cookie").unwrap();
    let port = running.address().port();
    assert!(cookie.starts_with(&format!("tidegate-{port}=")), "{cookie}");
    assert!(
        cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/; Max-Age=43200"),
        "{cookie}"
    );
    // A token in an address opens pages, not calls, and makes no redirect elsewhere.
    for path in ["/api/v1/gates", "/version", "//evil.example.com/", "/r/x"] {
        let answer = get(&running, &format!("{path}?token={token}"), &[]);
        assert_eq!(answer.problem().0, 401, "{path}");
        assert_eq!(answer.header("location"), None);
    }
}

#[test]
fn cookie_replaces_the_token_for_our_own_pages() {
    let (running, _folder) = Running::new(TWO);
    let cookie = sign_in(&running);
    let send = |method: &str, path: &str, headers: &[&str], body: &str| {
        let headers = [&[&*cookie], headers].concat();
        ask(running.address(), method, path, &headers, body)
    };
    assert_eq!(send("GET", "/api/v1/gates", &[SAME], "").status, 200);
    assert_eq!(send("GET", "/metrics", &[], "").status, 200);
    let endpoint = "/api/v1/pools/llm/endpoints/a";
    let (off, form) = (r#"{"enabled":false}"#, "enabled=false");
    let host = running.address();
    let own = format!("Origin: http://{host}");
    let other = "Origin: http://127.0.0.1:9";
    let form_kind = "Content-Type: application/x-www-form-urlencoded";
    let check = |headers: &[&str], body: &str, status: u16, reason: &str| {
        let answer = send("PATCH", endpoint, headers, body);
        assert_eq!(answer.problem(), (status, reason.to_owned()), "{headers:?}");
    };
    check(&[JSON], off, 403, "cross_site");
    check(&["Sec-Fetch-Site: none", JSON], off, 403, "cross_site");
    check(
        &["Sec-Fetch-Site: cross-site", JSON],
        off,
        403,
        "cross_site",
    );
    check(&["Sec-Fetch-Site: same-site", JSON], off, 403, "cross_site");
    check(&[other, JSON], off, 403, "cross_site");
    check(&[SAME, form_kind], form, 415, "not_json");
    check(&[SAME], off, 415, "not_json");
    let reset = send("POST", "/api/v1/gates/llm%2Fa/isolate", &[], "");
    assert_eq!(reset.problem(), (403, "cross_site".to_owned()));
    assert_eq!(send("PATCH", endpoint, &[SAME, JSON], off).status, 200);
    assert_eq!(send("PATCH", endpoint, &[&own, JSON], off).status, 200);
    let rebound = send(
        "GET",
        "/api/v1/gates",
        &["Host: evil.example.com", SAME],
        "",
    );
    assert_eq!(rebound.problem(), (421, "wrong_host".to_owned()));
}

#[test]
fn signs_in_and_out_by_posting() {
    let (running, _folder) = Running::new(TWO);
    let post = |path: &str, headers: &[&str], body: &str| {
        ask(running.address(), "POST", path, headers, body)
    };
    let body = format!(r#"{{"token":"{}"}}"#, running.token.expose());
    let answer = post("/login", &[SAME, JSON], &body);
    assert_eq!((answer.status, &*answer.body), (204, ""));
    let cookie = cookie_of(&answer);
    assert_eq!(get(&running, "/version", &[&cookie, SAME]).status, 200);
    let wrong = r#"{"token":"0123456789abcdef"}"#;
    for (headers, body, status, reason) in [
        (&[SAME, JSON][..], wrong, 401, "no_token"),
        (&[SAME, JSON], "{}", 422, "invalid"),
        (&[SAME, JSON], r#"{"token":1}"#, 422, "invalid"),
        (&[SAME], &*body, 415, "not_json"),
        (
            &["Sec-Fetch-Site: cross-site", JSON],
            &*body,
            403,
            "cross_site",
        ),
        (
            &["Origin: https://evil.example.com", JSON],
            &*body,
            403,
            "cross_site",
        ),
    ] {
        let answer = post("/login", headers, body);
        assert_eq!(answer.problem(), (status, reason.to_owned()), "{body}");
        assert_eq!(answer.header("set-cookie"), None);
        assert!(!answer.body.contains("0123456789abcdef"));
    }
    let answer = post("/logout", &["Sec-Fetch-Site: cross-site"], "");
    assert_eq!(answer.problem(), (403, "cross_site".to_owned()));
    let answer = post("/logout", &[SAME, &cookie], "");
    assert_eq!(answer.status, 204);
    let port = running.address().port();
    let removed = format!("tidegate-{port}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0");
    assert_eq!(answer.header("set-cookie"), Some(&*removed));
}

#[test]
fn cookie_survives_a_restart_and_ends_with_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::in_folder(TWO, folder.path());
    let cookie = sign_in(&running);
    let address = running.address();
    drop(running);
    let again = Running::at(TWO, folder.path(), address);
    assert_eq!(get(&again, "/version", &[&cookie, SAME]).status, 200);
    drop(again);
    std::fs::remove_file(folder.path().join("admin-token")).unwrap();
    let replaced = Running::at(TWO, folder.path(), address);
    let answer = get(&replaced, "/version", &[&cookie, SAME]);
    assert_eq!(answer.problem(), (401, "no_token".to_owned()));
}
