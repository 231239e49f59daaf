//! The alert rules in `deploy/`, as Prometheus reads them, and when they fire; expressions of the dashboard.

use std::path::Path;

use serde_json::{Value, json};

use crate::client::{prometheus, run, script};

#[test]
fn prometheus_takes_the_rules() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus-alerts.yaml");
    let output = run(prometheus("promtool").args(["check", "rules"]).arg(rules));
    assert!(output.stdout.contains("rules found"), "{output:?}");
}

#[test]
fn prometheus_takes_the_expressions_of_the_dashboard() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/grafana-dashboard.json");
    let dashboard = std::fs::read_to_string(file).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let rules: Vec<Value> = targets
        .enumerate()
        .map(|(number, target)| {
            let expression = target["expr"].as_str().unwrap();
            // As Grafana fills them in.
            let filled = expression
                .replace("$__rate_interval", "5m")
                .replace("$instance", ".*")
                .replace("$key", ".*");
            assert!(!filled.contains('$'), "{filled}");
            json!({ "record": format!("panel:{number}"), "expr": filled })
        })
        .collect();
    let count = rules.len();
    assert!(count > 20);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    // JSON is YAML as well.
    let groups = json!({ "groups": [{ "name": "panels", "rules": rules }] });
    std::fs::write(&file, groups.to_string()).unwrap();
    let output = run(prometheus("promtool").args(["check", "rules"]).arg(file));
    let found = format!("{count} rules found");
    assert!(output.stdout.contains(&found), "{output:?}");
}

#[test]
fn every_alert_fires_for_its_cause_and_none_otherwise() {
    run(prometheus("promtool")
        .args(["test", "rules"])
        .arg(script("alerts.yaml")));
}
