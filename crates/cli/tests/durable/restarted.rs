//! A server that is stopped as service managers do it, and started again.

use serde_json::{Value, json};

use crate::support::{Admin, Home, Running, SLACK_MS, endpoint, mock, now_ms, wait_for};

/// Everything that survives a restart, as it was seen.
struct Seen {
    hold: Value,
    opened: Value,
    isolated: Value,
    rate: f64,
    mixed: Value,
}

impl Seen {
    fn now(admin: &Admin) -> Self {
        Self {
            hold: admin.gate("held/a")["hold"].clone(),
            opened: admin.gate("broken/a")["breaker"].clone(),
            isolated: admin.gate("shut.example.com")["breaker"].clone(),
            rate: admin.gate("quick/a")["rate_per_second"].as_f64().unwrap(),
            mixed: admin.pool("mixed"),
        }
    }

    fn assert_is_back(&self, admin: &Admin) {
        let now = Self::now(admin);
        assert_not_earlier(&self.hold, &now.hold, "until_ms");
        assert_eq!(now.hold["source"], "retry-after");
        assert_not_earlier(&self.opened, &now.opened, "until_ms");
        assert_eq!(now.opened["state"], "open");
        assert_eq!(now.isolated["state"], "isolated");
        assert!(
            (now.rate / self.rate - 1.0).abs() < 0.02,
            "{} is {}",
            self.rate,
            now.rate
        );
        assert_eq!(now.mixed["protection"], self.mixed["protection"]);
        let both = [&self.mixed, &now.mixed].map(|pool| pool["endpoints"].as_array().unwrap());
        assert_eq!(both[0].len(), both[1].len());
        for (before, after) in both[0].iter().zip(both[1]) {
            assert_not_earlier(before, after, "paused_until_ms");
            let stays = ["name", "url", "enabled", "consecutive_errors", "last_error"];
            for field in stays.iter().chain(&["disabled_reason"]) {
                assert_eq!(before[field], after[field], "{field} of {before}");
            }
        }
    }
}

fn assert_not_earlier(before: &Value, after: &Value, field: &str) {
    match (before[field].as_i64(), after[field].as_i64()) {
        (Some(before), Some(after)) => {
            assert!(
                (before - SLACK_MS..before + 60_000).contains(&after),
                "{before} is {after}"
            );
        }
        (before, after) => assert_eq!(before, after),
    }
}

fn settings(urls: [&str; 5]) -> String {
    let [held, broken, failing, fine, quick] = urls;
    format!(
        r#"
        [gate]
        initial_rate = 20
        consecutive_failures = 3
        open_first = "500s"
        open_for = "500s"
        [backoff.once]
        base = "1s"
        max = "1s"
        max_attempts = 1
        [network]
        allow = ["127.0.0.0/8"]
        [pool.held]
        backoff = "once"
        endpoints = [{{ name = "a", url = "{held}" }}]
        [pool.broken]
        backoff = "once"
        endpoints = [{{ name = "a", url = "{broken}" }}]
        [pool.mixed]
        backoff = "once"
        balance = "first"
        endpoints = [
          {{ name = "failing", url = "{failing}" }},
          {{ name = "fine", url = "{fine}" }},
          {{ name = "switched", url = "{fine}" }},
          {{ name = "removed", url = "{fine}" }},
        ]
        [pool.quick]
        endpoints = [{{ name = "a", url = "{quick}" }}]
        "#
    )
}

#[test]
fn restores_everything_after_a_restart_and_a_reload() {
    let mocks = ["429:300", "reset", "503", "200", "200"].map(mock);
    let urls = mocks.each_ref().map(|mock| mock.url());
    let settings = settings(urls.each_ref().map(String::as_str));
    let home = Home::new(&settings);
    let server = home.start();
    make_trouble(&server, &urls[3]);
    let seen = Seen::now(&server.admin);
    assert!(seen.hold["until_ms"].as_i64().unwrap() > now_ms() + 200_000);
    assert_eq!(seen.opened["state"], "open");
    let failing = server.admin.endpoint("mixed", "failing");
    assert_eq!(failing["consecutive_errors"], 1);
    assert_eq!(failing["enabled"], true);
    assert!(failing["paused_until_ms"].is_i64(), "{failing}");
    assert!(failing["last_error"].is_string(), "{failing}");

    assert_eq!(server.stop().code(), Some(0));
    let asked = mocks[0].stats().received;
    let server = home.start();
    seen.assert_is_back(&server.admin);
    let why = server.admin.gate("quick/a")["why"].clone();
    let why = why.as_str().unwrap();
    assert!(why.ends_with(", as learned before a restart"), "{why}");
    // A held request is refused, and the upstream gets none.
    let answer = server.get("/held/x").unwrap();
    assert_eq!(answer.status, 429, "{answer:?}");
    assert!(answer.head.contains("tidegate-reason: "), "{answer:?}");
    assert_eq!(mocks[0].stats().received, asked);

    let more = format!(
        "{settings}\n[pool.more]\nendpoints = [{{ name = \"a\", url = \"{}\" }}]",
        urls[3]
    );
    home.write(&more);
    server.signal("HUP");
    wait_for("pool of the new settings", || {
        let pools = server.admin.pools()?;
        pools
            .iter()
            .any(|pool| pool["name"] == "more")
            .then_some(())
    });
    seen.assert_is_back(&server.admin);
    assert_eq!(server.stop().code(), Some(0));
    let server = home.start();
    seen.assert_is_back(&server.admin);
    take_it_all_back(&server.admin);
    assert_eq!(server.stop().code(), Some(0));
    assert_nothing_is_left(&home.start().admin);
}

/// A hold, an open breaker, a gate shut by a person, a learned rate; an endpoint paused, one
/// disabled by a person, one removed, one added; other protection.
fn make_trouble(server: &Running, url: &str) {
    let admin = &server.admin;
    server.get("/held/x").unwrap();
    wait_for("open breaker", || {
        server.get("/broken/x").unwrap();
        (admin.gate("broken/a")["breaker"]["state"] == "open").then_some(())
    });
    server.get("/mixed/x").unwrap();
    admin.must("POST", "/api/v1/gates/shut.example.com/isolate", None);
    let switch = |is: bool| json!({ "enabled": is });
    let path = |name: &str| format!("/api/v1/pools/mixed/endpoints/{name}");
    admin.must("PATCH", &path("switched"), Some(&switch(false)));
    admin.call("DELETE", &path("removed"), None).unwrap();
    let added = endpoint("added", url);
    admin.must("POST", "/api/v1/pools/mixed/endpoints", Some(&added));
    let protection = json!({ "disable_after": 7, "pauses": ["400s", "500s"] });
    admin.must("PUT", "/api/v1/pools/mixed/protection", Some(&protection));
    wait_for("rate that was learned", || {
        server.get("/quick/x").unwrap();
        let rate = admin.gate("quick/a")["rate_per_second"].as_f64().unwrap();
        (rate > 21.0).then_some(())
    });
}

/// What people remove stays removed, too.
fn take_it_all_back(admin: &Admin) {
    for key in ["held/a", "broken/a", "shut.example.com"] {
        admin.must("POST", &format!("/api/v1/gates/{key}/release"), None);
    }
    for name in ["failing", "switched"] {
        let path = format!("/api/v1/pools/mixed/endpoints/{name}");
        admin.must("PATCH", &path, Some(&json!({ "enabled": true })));
    }
    let path = "/api/v1/pools/mixed/endpoints/added";
    assert_eq!(admin.call("DELETE", path, None).unwrap().status, 204);
    admin.must("POST", "/api/v1/pools/mixed/protection/reset", None);
}

fn assert_nothing_is_left(admin: &Admin) {
    assert_eq!(admin.gate("held/a")["hold"], Value::Null);
    for key in ["held/a", "broken/a", "shut.example.com"] {
        assert_eq!(admin.gate(key)["breaker"]["state"], "closed", "{key}");
    }
    let mixed = admin.pool("mixed");
    assert_eq!(mixed["protection"]["disable_after"], 5);
    for endpoint in mixed["endpoints"].as_array().unwrap() {
        assert_eq!(endpoint["enabled"], true);
        assert_eq!(endpoint["consecutive_errors"], 0);
        assert_eq!(endpoint["last_error"], Value::Null);
        assert_ne!(endpoint["name"], "added");
    }
}

#[test]
fn drops_the_state_of_removed_endpoints() {
    let upstream = mock("429:300");
    let of = |name: &str| {
        let url = upstream.url();
        format!("[pool.p]\nendpoints = [{{ name = \"{name}\", url = \"{url}\" }}]")
    };
    let home = Home::new(&of("old"));
    let server = home.start();
    server.get("/p/x").unwrap();
    let switch = json!({ "enabled": false });
    let path = "/api/v1/pools/p/endpoints/old";
    server.admin.must("PATCH", path, Some(&switch));
    assert!(server.admin.gate("p/old")["hold"].is_object());
    server.stop();

    home.write(&of("new"));
    let server = home.start();
    let gates = server.admin.gates().unwrap();
    assert!(gates.iter().all(|gate| gate["key"] != "p/old"), "{gates:?}");
    server.stop();

    // It is another endpoint that happens to have the same name.
    home.write(&of("old"));
    let server = home.start();
    assert_eq!(server.admin.endpoint("p", "old")["enabled"], true);
    let gates = server.admin.gates().unwrap();
    assert!(gates.iter().all(|gate| gate["key"] != "p/old"), "{gates:?}");
}
