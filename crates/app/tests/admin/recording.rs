//! What the console shows of the last minutes: samples, histories, lists and the summary.

use std::io::{BufRead, BufReader, Write};

use serde_json::{Value, json};

use crate::support::{Running, TWO, ask, connect, read_head, upstream, wait_until};

/// The events of a stream, with their ids.
fn stream(running: &Running, query: &str) -> impl Iterator<Item = (u64, String, Value)> + use<> {
    let mut stream = connect(running.address());
    let head = format!(
        "GET /api/v1/events?{query} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        running.address(),
        running.token.expose()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    assert_eq!(read_head(&mut reader).0, 200);
    let mut lines = reader.lines().map_while(Result::ok);
    std::iter::from_fn(move || {
        let id = lines.find(|line| line.starts_with("id: "))?;
        let event = lines.next()?;
        let data = lines.next()?;
        Some((
            id["id: ".len()..].parse().unwrap(),
            event.strip_prefix("event: ").unwrap().to_owned(),
            serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap(),
        ))
    })
}

fn pool() -> String {
    let address = upstream(&[]);
    format!("[pool.llm]\nendpoints = [{{ name = \"a\", url = \"http://{address}\" }}]\n")
}

#[test]
fn stream_of_changes_says_hello_and_samples_named_gates() {
    let (running, _folder) = Running::new(&pool());
    let gateway = running.gateway.address();
    assert_eq!(ask(gateway, "GET", "/llm/x", &[], "").status, 200);
    let query = "kinds=changes&key=llm/a&key=none&sample=250ms";
    let mut events = stream(&running, query);
    let (first, kind, hello) = events.next().unwrap();
    assert_eq!(kind, "hello");
    assert_eq!(hello["boot_id"], running.get("/version")["boot_id"]);
    assert!(hello["now_ms"].as_i64().unwrap() > 1_600_000_000_000);
    let (second, kind, sample) = events.next().unwrap();
    assert!(second > first);
    assert_eq!(kind, "sample");
    assert_eq!(sample["gates"].as_array().unwrap().len(), 1);
    assert_eq!(sample["gates"][0]["key"], "llm/a");
    assert_eq!(sample["gates"][0]["counts"]["success"], 1);
    assert_eq!(sample["operations"]["failed"], 0);
    assert!(sample["totals"]["gates"].is_number());
    // Such a stream is not why a limiter would report every request.
    assert_eq!(ask(gateway, "GET", "/llm/x", &[], "").status, 200);
    running.state.limiter().isolate("llm/a").unwrap();
    let mut others = events.filter(|(_, kind, _)| kind != "sample");
    assert_eq!(others.next().unwrap().1, "gate_overridden");
    let (_, kind, data) = others.next().unwrap();
    assert_eq!(
        (&*kind, &data["text"]),
        ("breaker_opened", &json!("llm/a isolated"))
    );
    let recent = running.get("/api/v1/events/recent?limit=1");
    assert_eq!(recent["events"][0]["kind"], "breaker_opened");
    assert_eq!(recent["events"][0]["text"], "llm/a isolated");
    let kinds = running.ask("GET", "/api/v1/events?kinds=x", None);
    assert_eq!(kinds.problem(), (400, "bad_request".to_owned()));
}

#[test]
fn fifty_streams_get_their_samples() {
    let (running, _folder) = Running::new(&pool());
    running
        .state
        .limiter()
        .try_acquire("llm/a")
        .unwrap()
        .give_back();
    let streams = (0..50).map(|_| stream(&running, "kinds=none&key=llm/a&sample=250ms"));
    let mut streams: Vec<_> = streams.collect();
    for events in &mut streams {
        assert_eq!(events.next().unwrap().1, "hello");
        for _ in 0..2 {
            let (_, kind, sample) = events.next().unwrap();
            assert_eq!(
                (&*kind, &sample["gates"][0]["key"]),
                ("sample", &json!("llm/a"))
            );
        }
    }
}

#[test]
fn lists_gates_by_filter_state_and_page() {
    let (running, _folder) = Running::new(TWO);
    let limiter = running.state.limiter();
    for number in 0..30 {
        limiter
            .try_acquire(&format!("host{number:02}.example.com"))
            .unwrap()
            .give_back();
    }
    limiter.isolate("llm/a").unwrap();
    let keys = |query: &str| -> (u64, Vec<String>) {
        let list = running.get(&format!("/api/v1/gates?sort=key&{query}"));
        assert_eq!(list["totals"]["gates"], 31);
        assert_eq!(list["totals"]["isolated"], 1);
        let gates = list["gates"].as_array().unwrap().iter();
        let keys = gates.map(|gate| gate["key"].as_str().unwrap().to_owned());
        (list["total"].as_u64().unwrap(), keys.collect())
    };
    let (total, first) = keys("filter=HOST&limit=10&offset=20");
    assert_eq!((total, first.len()), (30, 10));
    assert_eq!(first[0], "host20.example.com");
    assert_eq!(keys("filter=none"), (0, vec![]));
    for state in ["isolated", "attention"] {
        assert_eq!(
            keys(&format!("state={state}")),
            (1, vec!["llm/a".to_owned()])
        );
    }
    assert_eq!(keys("state=held").0, 0);
    assert_eq!(keys("offset=100&limit=5"), (31, vec![]));
    let recent = running.get("/api/v1/gates?recent=true&limit=1&state=isolated");
    assert_eq!(recent["gates"][0]["recent"], Value::Null);
}

#[test]
fn gate_has_its_settings_and_a_history() {
    let (running, _folder) = Running::new(&pool());
    assert_eq!(
        ask(running.gateway.address(), "GET", "/llm/x", &[], "").status,
        200
    );
    let gate = running.get("/api/v1/gates/llm/a");
    assert_eq!(
        (&gate["initial_rate"], &gate["max_rate"]),
        (&json!(2.0), &json!(10_000.0))
    );
    assert_eq!(gate["max_in_flight"], 256);
    assert_eq!(gate["limits"], json!([]));
    assert_eq!(gate["first_leaves_ms"], Value::Null);
    assert_eq!(gate["waiting_by_reason"]["rate"], 0);
    running.ask("POST", "/api/v1/gates/llm/a/isolate", None);
    let gate = running.get("/api/v1/gates/llm/a");
    assert_eq!(gate["breaker"]["reason"], "isolated by a person");
    assert!(gate["breaker"]["since_ms"].is_i64());
    wait_until("two seconds are recorded", || {
        let history = running.get("/api/v1/gates/llm%2Fa/history?window=1m");
        let rate = history["rate"].as_array().unwrap();
        rate.iter().filter(|point| !point.is_null()).count() >= 2
    });
    let history = running.get("/api/v1/gates/llm/a/history");
    assert_eq!(history["step_ms"], 1000);
    let band = &history["bands"][0];
    assert_eq!(
        (&band["state"], &band["to_ms"]),
        (&json!("isolated"), &Value::Null)
    );
    let listed = running.get("/api/v1/gates?recent=true");
    assert_eq!(listed["gates"][0]["recent"].as_array().unwrap().len(), 60);
    let trails = running.get("/api/v1/explain?key=llm/a");
    assert_eq!(trails["trails"][0]["status"], 200);
    assert_eq!(
        running.get("/api/v1/explain?key=llm/b")["trails"],
        json!([])
    );
}

#[test]
fn summary_says_what_needs_attention() {
    let (running, _folder) = Running::new(TWO);
    let summary = running.get("/api/v1/summary");
    assert_eq!(summary["health"]["status"], "ok");
    assert_eq!(
        summary["stores"][0],
        json!({ "name": "SQLite", "status": "ok", "detail": null })
    );
    assert_eq!(
        (&summary["attention"], &summary["attention_total"]),
        (&json!([]), &json!(0))
    );
    running.state.limiter().isolate("llm/a").unwrap();
    let pool = "/api/v1/pools/llm/endpoints/b";
    running.ask("PATCH", pool, Some(r#"{"enabled":false}"#));
    wait_until("the recorder has looked", || {
        running.get("/api/v1/summary")["attention_total"] == 2
    });
    let summary = running.get("/api/v1/summary?window=15m");
    let kinds: Vec<&Value> = (0..2).map(|at| &summary["attention"][at]["kind"]).collect();
    assert_eq!(kinds, ["endpoint_disabled", "gate_isolated"]);
    assert_eq!(summary["attention"][1]["link"], "/gates/llm/a");
    assert_eq!(
        summary["pools"],
        json!({ "pools": 1, "endpoints": 2, "paused": 0, "disabled": 1 })
    );
    let requests = summary["series"]["requests"].as_array().unwrap();
    assert!(!requests.is_empty() && requests.len() <= 900);
}
