//! The APIs that a mock imitates.

use std::time::Duration;

use app::mock::{MockSettings, Script, Style, spec};
use policy::hint;
use serde_json::{Value, json};

use crate::support::{Fixture, Reply, limited};

/// The wait that the product reads from a response.
fn hinted_wait(reply: &Reply) -> Option<Duration> {
    let headers = reply.headers.iter();
    let headers = headers.map(|(name, value)| (name.as_str(), value.as_bytes()));
    let response = hint::Response {
        status: reply.status,
        headers,
        body: &reply.body,
    };
    hint::read(&response, None).wait
}

#[test]
fn plain_bodies_have_the_requested_length() {
    for size in [0, 1, 2, 10, 11, 128, 100_000] {
        let fixture = Fixture::new(MockSettings {
            body_size: Some(size),
            ..MockSettings::default()
        });
        let reply = fixture.get("/");
        assert_eq!(reply.body.len(), size);
        assert!(size == 0 || serde_json::from_slice::<Value>(&reply.body).is_ok());
    }
}

#[test]
fn plain_refusals_have_a_message_and_no_hint() {
    let fixture = Fixture::of(Style::Plain, &["1/1m"]);
    fixture.get("/");
    let reply = fixture.get("/");
    assert_eq!(
        reply.json(),
        json!({ "error": "too many requests: the quota of this window is used up" })
    );
    assert_eq!(hinted_wait(&reply), None);
}

#[test]
fn github_sends_its_quota_with_every_response() {
    let fixture = Fixture::of(Style::Github, &["2/1h", "1/s burst 1"]);
    let shown = |reply: &Reply| {
        ["limit", "remaining", "used"].map(|name| {
            let value = reply.header(&format!("x-ratelimit-{name}")).unwrap();
            value.parse::<u64>().unwrap()
        })
    };
    let served = fixture.get("/repos/tide/gate");
    assert_eq!((served.status, shown(&served)), (200, [2, 1, 1]));
    assert_eq!(served.json()["full_name"], "tide/gate");
    assert_eq!(served.header("x-ratelimit-resource"), Some("core"));
    let wall = fixture.clock.clock().wall().as_unix_millis() / 1000;
    let reset = served.header("x-ratelimit-reset").unwrap();
    assert_eq!(reset.parse::<i64>().unwrap(), wall + 3600);

    // A secondary limit refuses, and the quota is not charged.
    let secondary = fixture.get("/user");
    assert_eq!((secondary.status, shown(&secondary)), (429, [2, 1, 1]));
    assert!(secondary.text().contains("secondary rate limit"));

    fixture.advance(1000);
    assert_eq!(fixture.get("/user").status, 200);
    fixture.advance(1000);
    let primary = fixture.get("/user");
    assert_eq!((primary.status, shown(&primary)), (403, [2, 0, 2]));
    assert!(
        primary
            .text()
            .contains("API rate limit exceeded for 127.0.0.1")
    );

    let asked = fixture.get("/rate_limit");
    assert_eq!(asked.json()["resources"]["core"]["remaining"], 0);
    assert_eq!(fixture.mock.stats().received, 4, "it is not limited");
}

#[test]
fn openai_completes_chats() {
    let fixture = Fixture::of(Style::Openai, &["60/1m"]);
    let mut client = fixture.connect();
    let request = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let reply = client.post("/v1/chat/completions", request);
    let names = [
        "limit-requests",
        "remaining-requests",
        "reset-requests",
        "limit-tokens",
    ];
    assert_eq!(
        names.map(|name| reply.header(&format!("x-ratelimit-{name}")).unwrap()),
        ["60", "59", "1m0s", "60000"]
    );
    let completion = reply.json();
    assert_eq!(completion["object"], "chat.completion");
    assert_eq!(completion["model"], "m");
    let choice = &completion["choices"][0];
    assert_eq!(choice["message"]["content"], "This is an answer of a mock.");
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(completion["usage"]["completion_tokens"], 7);
    // Also without the version in the path.
    assert_eq!(client.post("/chat/completions", request).status, 200);
}

#[test]
fn openai_streams_chats() {
    let fixture = Fixture::new(MockSettings {
        stream_every: Duration::ZERO,
        ..limited(Style::Openai, &[])
    });
    let request = r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true}}"#;
    let reply = fixture.connect().post("/v1/chat/completions", request);
    assert_eq!(
        reply.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    let mut events: Vec<&str> = reply.text().split_terminator("\n\n").collect();
    assert_eq!(events.pop(), Some("data: [DONE]"));
    let chunks = events
        .iter()
        .map(|event| event.strip_prefix("data: ").unwrap());
    let chunks: Vec<Value> = chunks
        .map(|chunk| serde_json::from_str(chunk).unwrap())
        .collect();
    let words = chunks.iter();
    let words: String = words
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(words, "This is an answer of a mock.");
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let count = chunks.len();
    assert_eq!(chunks[count - 2]["choices"][0]["finish_reason"], "stop");
    assert_eq!(chunks[count - 1]["usage"]["completion_tokens"], 7);
}

#[test]
fn openai_limits_the_tokens_that_responses_name() {
    let mut settings = limited(Style::Openai, &["60/1m"]);
    let upstream = settings.upstream.as_mut().expect("it has a limit");
    upstream.cost = Some(spec::cost("100/1m").unwrap());
    let fixture = Fixture::new(settings);
    let mut client = fixture.connect();
    let content = "x".repeat(100);
    let request = format!(r#"{{"messages":[{{"role":"user","content":"{content}"}}]}}"#);
    let mut complete = || client.post("/v1/chat/completions", &request);
    let remaining = |reply: &Reply| {
        ["requests", "tokens"].map(|what| {
            let name = format!("x-ratelimit-remaining-{what}");
            reply.header(&name).unwrap_or_default().to_owned()
        })
    };
    let reply = complete();
    assert_eq!(reply.json()["usage"]["total_tokens"], 40);
    assert_eq!(remaining(&reply), ["59", "60"]);
    assert_eq!(remaining(&complete()), ["58", "20"]);
    fixture.advance(45_000);
    let refused = complete();
    assert_eq!(
        (refused.status, remaining(&refused)),
        (429, ["58", "20"].map(str::to_owned))
    );
    let error = &refused.json()["error"];
    assert_eq!(error["type"], "tokens");
    assert_eq!(
        error["message"],
        "Rate limit reached on tokens per min (TPM): Limit 100, Used 80, Requested 40. Please try again in 15s."
    );
    fixture.advance(15_000);
    assert_eq!(complete().status, 200);
}

#[test]
fn plain_limits_the_cost_of_the_query() {
    let mut settings = limited(Style::Plain, &["60/1m"]);
    let upstream = settings.upstream.as_mut().expect("it has a limit");
    (upstream.cost, upstream.headers) = (Some(spec::cost("10/s burst 900").unwrap()), true);
    let fixture = Fixture::new(settings);
    let reply = fixture.get("/work?a=1&cost=800");
    assert_eq!(reply.json()["usage"]["total_tokens"], 800);
    assert_eq!(reply.header("x-ratelimit-remaining-requests"), Some("59"));
    assert_eq!(reply.header("x-ratelimit-remaining-tokens"), Some("100"));
    let refused = fixture.get("/work?cost=800");
    assert_eq!(refused.status, 429);
    assert!(refused.text().contains("too many tokens"));
    assert_eq!(fixture.get("/work").status, 200);
}

#[test]
fn openai_has_embeddings_and_models() {
    let fixture = Fixture::of(Style::Openai, &[]);
    let mut client = fixture.connect();
    let request = r#"{"model":"e","input":["a","b"],"dimensions":4}"#;
    let list = client.post("/v1/embeddings", request).json();
    assert_eq!(list["data"][1]["embedding"].as_array().unwrap().len(), 4);
    let request = r#"{"input":"a","dimensions":3,"encoding_format":"base64"}"#;
    let list = client.post("/v1/embeddings", request).json();
    assert_eq!(list["data"][0]["embedding"].as_str().unwrap().len(), 16);
    let models = client.get("/v1/models").json();
    assert_eq!(models["data"][0]["id"], "mock-model");
    assert_eq!(client.get("/v1/models/other").json()["id"], "other");
}

#[test]
fn openai_refusals_name_a_wait_that_is_read_as_a_hint() {
    let fixture = Fixture::of(Style::Openai, &["3/1m"]);
    fixture.statuses(3);
    fixture.advance(40_000);
    let reply = fixture.get("/v1/models");
    assert_eq!(reply.status, 429);
    let error = &reply.json()["error"];
    assert_eq!(
        (&error["type"], &error["code"]),
        (&json!("requests"), &json!("rate_limit_exceeded"))
    );
    let message = error["message"].as_str().unwrap();
    assert!(message.ends_with("Please try again in 20s."), "{message}");
    assert_eq!(hinted_wait(&reply), Some(Duration::from_secs(20)));
}

#[test]
fn openai_rejects_invalid_requests_with_a_message() {
    let fixture = Fixture::of(Style::Openai, &[]);
    let mut client = fixture.connect();
    for (path, body, status) in [
        ("/v1/chat/completions", "{", 400),
        ("/v1/chat/completions", "[]", 400),
        ("/v1/chat/completions", "{}", 400),
        ("/v1/embeddings", "{}", 400),
        ("/v1/nothing", "{}", 404),
    ] {
        let reply = client.post(path, body);
        assert_eq!(reply.status, status, "{path} {body}");
        assert!(reply.json()["error"]["message"].is_string());
    }
    let stats = fixture.mock.stats();
    assert_eq!((stats.received, stats.failed), (5, 5));
}

#[test]
fn scripted_errors_have_the_format_of_the_style() {
    for (style, pointer) in [
        (Style::Plain, "/error"),
        (Style::Github, "/message"),
        (Style::Openai, "/error/message"),
    ] {
        let fixture = Fixture::new(MockSettings {
            style,
            script: Some(Script::parse("400,401,403,404,429:2,500,503,204").unwrap()),
            ..MockSettings::default()
        });
        for status in [400, 401, 403, 404, 429, 500, 503] {
            let reply = fixture.get("/");
            assert_eq!(reply.status, status);
            let body = reply.json();
            assert!(
                body.pointer(pointer).unwrap().is_string(),
                "{style:?} {body}"
            );
        }
        assert_eq!(fixture.get("/").text(), "");
    }
}
