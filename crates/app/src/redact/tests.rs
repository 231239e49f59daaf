//! What is shown, and what never is.

use proptest::prelude::*;

use super::*;

fn text(text: &str) -> String {
    Text::new(text).to_string()
}

fn url(url: &str) -> String {
    Url::new(url).to_string()
}

#[test]
fn keeps_the_readable_part_of_errors() {
    for said in [
        "Rate limit reached for gpt-4o-mini-2024-07-18 on requests per min: Limit 3, Used 3",
        "ProvisionedThroughputExceededException: slow down",
        "exceeded_current_quota_error_for_this_month",
        "HTTP 429",
        "Please try again in 20s. Visit https://platform.example.com/account/rate-limits",
        "The internationalisation of counterrevolutionaries",
        "2026-11-15T06:00:00.123Z host eu-west-1.console.example.com is down",
        "tokens: 500 of 40000",
    ] {
        assert_eq!(text(said), said);
    }
}

#[test]
fn hides_what_looks_like_a_secret() {
    let check = |said: &str, shown: &str| assert_eq!(text(said), shown);
    check("Bearer abc", "Bearer …");
    check(
        "authorization: Bearer a:b,c done",
        "authorization: Bearer … done",
    );
    check("Authorization: Basic dTpw", "Authorization: Basic …");
    check(r#"{"api_key":"a b c","n":1}"#, r#"{"api_key":"…","n":1}"#);
    check(r#"{\"apiKey\":\"abc\"}"#, r#"{\"apiKey\":\"…"}"#);
    check("password = hunter2!", "password = …");
    check("bad key ghp_0123456789 here", "bad key ghp_… here");
    check("jwt eyJhbGciOiJIUzI1NiJ9.e30.sig", "jwt eyJ…");
    check("id 0123456789abcdef0123 gone", "id … gone");
    check("uuid 123e4567-e89b-12d3-a456-426614174000", "uuid …");
    check("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "…");
    check("ask <ann@example.com>", "ask <…>");
    check(
        "see https://u:p@h.example/?a=1,2 now",
        "see https://h.example/?a=… now",
    );
    check("GET /x?key=1:2,3 failed", "GET /x?key=… failed");
    check("at h.example/x?key=1 now", "at … now");
}

#[test]
fn urls_show_names_of_parameters_without_values() {
    let check = |given: &str, shown: &str| assert_eq!(url(given), shown);
    check("https://a.example/v1/x", "https://a.example/v1/x");
    check("http://a.example:8080", "http://a.example:8080/");
    check("http://u@a.example/#x", "http://a.example/");
    check(
        "/v1/models/m:generate?key=k&x=y#z",
        "/v1/models/m:generate?key=…&x=…",
    );
    check("/p?secret", "/p?…");
    check("/p?c2VjcmV0==&&a[]=1", "/p?…&…&a[]=…");
    check(
        "/bot123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11/send",
        "/…/send",
    );
    check("/people/ann%40example.com/@ann", "/people/…/@ann");
    check("mailto:ann@example.com", "mailto:…");
    check("not a url", "…");
    check("http://u:p/w@host:x/", "…");
    check("", "…");
}

#[test]
fn shows_headers_by_name() {
    let check = |name: &str, value: &str, shown: &str| {
        assert_eq!(Header::new(name, value.as_bytes()).to_string(), shown);
    };
    for name in [
        "Authorization",
        "proxy-authorization",
        "Cookie",
        "set-cookie",
        "X-Api-Key",
        "api-key",
        "Tidegate-Token",
        "x-amz-security-token",
        "x-auth",
        "X-Session-Id",
        "apikey",
    ] {
        check(name, "v", &format!("{name}: …"));
    }
    check("retry-after", "20", "retry-after: 20");
    check(
        "x-ratelimit-remaining-tokens",
        "5",
        "x-ratelimit-remaining-tokens: 5",
    );
    check("x", "Bearer abc", "x: Bearer …");
    assert_eq!(Header::new("x", b"\xff").to_string(), "x: …");
    assert_eq!(
        format!("{:?}", Header::new("cookie", b"a")),
        "Header(cookie: …)"
    );
    assert_eq!(Body::new(b"secret").to_string(), "… (6 bytes)");
}

#[test]
fn shows_one_bounded_line() {
    let long = "ab ".repeat(1000);
    let shown = text(&long);
    assert_eq!(shown.chars().count(), MAX_SHOWN + 1);
    assert!(shown.ends_with('…'), "{shown}");
    assert_eq!(text(&"z".repeat(MAX_SHOWN)), "z".repeat(MAX_SHOWN));
    assert_eq!(text("a\r\nb\u{1b}[2J\u{202e}c\td"), "a  b[2Jc d");
}

proptest! {
    #[test]
    fn shows_any_input_as_one_short_line(any in any::<String>(), other in ".*") {
        let header = Header::new(&any, other.as_bytes()).to_string();
        for shown in [text(&any), url(&any), header, Body::new(any.as_bytes()).to_string()] {
            prop_assert!(shown.chars().count() <= MAX_SHOWN + 1);
            prop_assert!(!shown.chars().any(|c| c.is_control() || is_invisible(c)), "{:?}", shown);
        }
    }

    #[test]
    fn never_shows_secrets_in_urls(secret in SECRET, place in 0..6_usize) {
        let urls = [
            format!("https://{secret}@a.example/x"),
            format!("https://u:{secret}@a.example/x?y=z"),
            format!("https://a.example/x?key={secret}"),
            format!("https://a.example/x?y=z&q={secret}&w=1"),
            format!("/x?y={secret}"),
            format!("https://a.example/x?{secret}"),
        ];
        prop_assert!(!url(&urls[place]).contains(&secret), "{}", url(&urls[place]));
        let said = format!("could not reach {}: refused", urls[place]);
        prop_assert!(!text(&said).contains(&secret), "{}", text(&said));
    }

    #[test]
    fn never_shows_named_secrets(secret in SECRET, before in "[a-z ]{0,30}", place in 0..6_usize) {
        let said = [
            format!("{before} Bearer {secret}"),
            format!("{before} authorization: Basic {secret} x"),
            format!("{before} api_key={secret}"),
            format!("{{\"token\":\"{secret}\"}}"),
            format!("{before} password: '{secret}'"),
            format!("{before} sk-{secret}{secret}{secret}"),
        ];
        prop_assert!(!text(&said[place]).contains(&secret), "{}", text(&said[place]));
    }

    #[test]
    fn never_shows_secret_headers(secret in SECRET, name in "(authorization|cookie|x-[a-z]{1,8}-(key|token|secret))") {
        let shown = Header::new(&name, secret.as_bytes()).to_string();
        prop_assert!(!shown.contains(&secret), "{}", shown);
    }

    #[test]
    fn never_shows_long_hex_and_long_keys(
        hex in "[0-9a-f]{20,64}",
        key in "[A-Za-z]{10,20}[0-9][A-Za-z0-9]{9,30}",
        before in "[a-z ]{0,30}",
    ) {
        for secret in [hex, key] {
            let shown = text(&format!("{before} ({secret}), see there"));
            prop_assert!(!shown.contains(&secret), "{}", shown);
        }
    }
}

/// Anything that fits into a URL as it is; capitals and digits, so that no other part of the
/// samples happens to contain it.
const SECRET: &str = "[A-Z0-9._~+-]{3,40}[A-Z][0-9][A-Z]";
