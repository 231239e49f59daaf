//! Simulations: what is offered, run, refused and stopped.

use std::io::Write;

use serde_json::{Value, json};

use crate::support::{Answer, Running, TWO, connect, wait_until};

const SIMULATE: &str = "/api/v1/simulate";

fn simulate(running: &Running, body: &Value) -> Answer {
    running.ask("POST", SIMULATE, Some(&body.to_string()))
}

fn problems(answer: &Answer) -> Vec<(String, String, String)> {
    assert_eq!(answer.problem(), (422, "invalid".to_owned()));
    let problem = answer.json();
    let problems = problem["problems"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    problems
        .map(|one| {
            (
                text(&one["field"]),
                text(&one["value"]),
                text(&one["expected"]),
            )
        })
        .collect()
}

#[test]
fn offers_scenarios_whose_fields_can_be_set() {
    let (running, _folder) = Running::new(TWO);
    let offered = running.get("/api/v1/scenarios");
    assert_eq!(
        offered["strategies"],
        json!(["adaptive", "aimd", "fixed:10", "none"])
    );
    let scenarios = offered["scenarios"].as_array().unwrap();
    let names: Vec<&str> = scenarios
        .iter()
        .map(|scenario| scenario["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8", "o8-8", "o9"]
    );
    let o5 = &scenarios[4];
    assert!(
        o5["title"]
            .as_str()
            .unwrap()
            .starts_with("token bucket of 100/s")
    );
    assert!(o5["text"].as_str().unwrap().contains("[upstream]"));
    assert_eq!(
        o5["fields"][0],
        json!({ "name": "upstream.rate", "label": "Rate per second", "value": "100" })
    );
}

#[test]
fn simulates_strategies_beside_each_other() {
    let (running, _folder) = Running::new(TWO);
    let body = json!({
        "scenario": "o5", "set": { "upstream.rate": "40", "duration": "100s" },
        "strategies": ["adaptive", "fixed:20"], "seed": 3,
    });
    let answer = simulate(&running, &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(
        simulate(&running, &body).body,
        answer.body,
        "the same seed gives the same bytes"
    );
    let result = answer.json();
    assert_eq!(
        result["command"],
        "tidegate simulate o5 --set duration=100s --set upstream.rate=40 --strategy adaptive,fixed:20 --seed 3"
    );
    let runs = result["runs"].as_array().unwrap();
    let strategies: Vec<&Value> = runs.iter().map(|run| &run["strategy"]).collect();
    assert_eq!(strategies, ["adaptive", "fixed:20"]);
    for run in runs {
        let series = &run["series"];
        let steps = series["capacity"].as_array().unwrap().len();
        assert!((10..=600).contains(&steps), "{steps}");
        for name in [
            "rate",
            "sent",
            "accepted",
            "refused",
            "failed",
            "latency_ms",
        ] {
            assert_eq!(series[name].as_array().unwrap().len(), steps, "{name}");
        }
        assert_eq!(series["capacity"][0], 40.0);
        assert!(run["figures"]["sent"].as_u64().unwrap() > 500, "{run}");
        assert_eq!(run["figures"]["steps"][0]["at_s"], 60.0);
    }
    assert_eq!(runs[1]["series"]["rate"][1], 20.0);
}

#[test]
fn names_every_problem_of_a_scenario() {
    let (running, _folder) = Running::new(TWO);
    let check = |body: Value, expected: &[(&str, &str, &str)]| {
        let found = problems(&simulate(&running, &body));
        let found: Vec<(&str, &str, &str)> = found
            .iter()
            .map(|(field, value, expected)| (&**field, &**value, &**expected))
            .collect();
        assert_eq!(found, expected, "{body}");
    };
    let rate = "a number of requests per second above 0 and at most 1000000";
    check(
        json!({ "scenario": "o1", "set": { "upstream.rate": "-1", "upstream.latency": "fast" } }),
        &[
            (
                "upstream.latency",
                "fast",
                "a number with a unit such as `500ms`, `30s` or `5m`",
            ),
            ("upstream.rate", "-1", rate),
        ],
    );
    check(
        json!({ "text": "[upstream]\nkind = \"bucket\"\nrate = 0\n" }),
        &[("upstream.rate", "0", &format!("{rate} (line 3)"))],
    );
    let bound = "; `tidegate simulate` has no such bound";
    check(
        json!({ "scenario": "o1", "set": { "duration": "2h", "client[0].count": "101" } }),
        &[
            ("duration", "2h", &format!("at most 1h{bound}")),
            (
                "client[0].count",
                "101",
                &format!("at most 100 clients{bound}"),
            ),
        ],
    );
    check(
        json!({ "scenario": "o1", "strategies": ["adaptive", "quick"] }),
        &[(
            "strategies[1]",
            "quick",
            "`adaptive`, `aimd`, `fixed:RATE` (requests per second) or `none`",
        )],
    );
    for wrong in [
        json!({}),
        json!({ "scenario": "o1", "text": "" }),
        json!({ "scenario": "o1", "strategies": vec!["none"; 5] }),
        json!({ "scenario": "o1", "set": { "upstream.steps": [] } }),
        json!({ "scenario": "o1", "set": { "upstream.rate": 5 } }),
        json!({ "scenario": "o1", "set": { "a=b": "1" } }),
        json!({ "text": "= 1" }),
    ] {
        assert!(!problems(&simulate(&running, &wrong)).is_empty(), "{wrong}");
    }
}

#[test]
fn makes_a_scenario_of_a_gate() {
    let toml = format!("{TWO}[gate]\nmax_rate = 500\nlimits = [\"100/1s\"]\n");
    let (running, _folder) = Running::new(&toml);
    let path = "/api/v1/gates/llm/a/scenario";
    let missing = running.ask("GET", path, None);
    assert_eq!(missing.problem(), (404, "not_found".to_owned()));
    running.state.limiter().isolate("llm/a").unwrap();
    let scenario = running.get(path);
    assert_eq!(scenario["name"], "llm/a");
    assert_eq!(
        scenario["text"],
        "duration = \"300s\"\nseed = 1\n\n[upstream]\nkind = \"bucket\"\nrate = 2\n\n\
         [[client]]\nstrategy = \"adaptive\"\nmax_rate = 500\nlimits = [\"100/1s\"]\n"
    );
    let body = json!({
        "text": scenario["text"], "set": { "duration": "60s" }, "strategies": ["adaptive", "none"],
    });
    let answer = simulate(&running, &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(
        answer.json()["command"]
            .as_str()
            .unwrap()
            .starts_with("tidegate simulate scenario.toml --set duration=60s"),
    );
}

/// A run that takes far longer than the test.
fn long() -> String {
    json!({
        "scenario": "o1", "strategies": ["none"],
        "set": { "duration": "1h", "upstream.rate": "1000000", "client[0].count": "100" },
    })
    .to_string()
}

#[test]
fn stops_a_simulation_whose_client_has_gone() {
    let (running, _folder) = Running::new(TWO);
    let long = long();
    let start = || {
        let mut stream = connect(running.address());
        let head = format!(
            "POST {SIMULATE} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{long}",
            running.address(),
            running.token.expose(),
            long.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let short = json!({ "scenario": "o9", "set": { "duration": "10s" } });
    let running_two = [start(), start()];
    wait_until("two run", || simulate(&running, &short).status == 429);
    let refused = simulate(&running, &short);
    assert_eq!(refused.problem(), (429, "too_many_simulations".to_owned()));
    assert_eq!(refused.header("retry-after"), Some("5"));
    drop(running_two);
    wait_until("they are stopped", || {
        simulate(&running, &short).status == 200
    });
}
