//! The alert rules in `deploy/`, as Prometheus reads them, and when they fire.

use std::path::Path;

use crate::client::{prometheus, run, script};

#[test]
fn prometheus_takes_the_rules() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus-alerts.yaml");
    let output = run(prometheus("promtool").args(["check", "rules"]).arg(rules));
    assert!(output.stdout.contains("rules found"), "{output:?}");
}

#[test]
fn every_alert_fires_for_its_cause_and_none_otherwise() {
    run(prometheus("promtool")
        .args(["test", "rules"])
        .arg(script("alerts.yaml")));
}
