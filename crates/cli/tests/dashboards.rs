//! The dashboard and the alert rules in `deploy/` use only metrics that exist, with labels that they
//! have. They are compared with the reference, which is made from the list of metrics in the code.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code; clippy knows only functions marked as tests"
)]

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

fn read(path: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    fs::read_to_string(format!("{root}{path}")).unwrap()
}

/// The names of metrics as they are queried, with their labels.
fn known() -> BTreeMap<String, Vec<String>> {
    let mut known = BTreeMap::new();
    for line in read("docs/reference/metrics.md").lines() {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [name, kind, labels, _] = cells.as_slice() else {
            continue;
        };
        let Some(name) = name
            .strip_prefix("| `")
            .and_then(|name| name.strip_suffix('`'))
        else {
            continue;
        };
        let labels = labels.split('`').skip(1).step_by(2);
        // Prometheus adds these to everything that it scrapes.
        let labels = labels.chain(["instance", "job"]).map(str::to_owned);
        let labels: Vec<String> = labels.collect();
        match *kind {
            "histogram" => {
                for part in ["sum", "count"] {
                    known.insert(format!("{name}_{part}"), labels.clone());
                }
                let labels = [labels, vec!["le".to_owned()]].concat();
                known.insert(format!("{name}_bucket"), labels);
            }
            _ => {
                known.insert(name.to_owned(), labels);
            }
        }
    }
    known
}

/// What is wrong with an expression of PromQL: metrics and labels that do not exist, and brackets
/// that do not match.
fn problems(expression: &str, known: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut open = Vec::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut labels: Vec<&String> = Vec::new();
    for (at, _) in expression.match_indices("tidegate_") {
        let rest = &expression[at..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        match known.get(&rest[..end]) {
            None => problems.push(format!("no metric `{}`", &rest[..end])),
            Some(of_metric) => {
                labels.extend(of_metric);
                let selector = rest[end..].strip_prefix('{');
                let selector = selector.and_then(|rest| rest.split('}').next());
                for name in selector.into_iter().flat_map(label_names) {
                    if !of_metric.iter().any(|label| label == name) {
                        problems.push(format!("`{}` has no label `{name}`", &rest[..end]));
                    }
                }
            }
        }
    }
    for (at, _) in expression.match_indices(" by (") {
        let names = expression[at + 5..].split(')').next().unwrap();
        for name in names.split(',').map(str::trim) {
            if !labels.iter().any(|label| *label == name) {
                problems.push(format!("no metric has the label `{name}`"));
            }
        }
    }
    for c in expression.chars() {
        match c {
            '(' | '[' | '{' => open.push(c),
            ')' | ']' | '}' => {
                let expected = match c {
                    ')' => '(',
                    ']' => '[',
                    _ => '{',
                };
                if open.pop() != Some(expected) {
                    problems.push(format!("`{c}` closes nothing"));
                }
            }
            _ => {}
        }
    }
    problems.extend(open.iter().map(|c| format!("`{c}` is not closed")));
    problems
}

/// The names in `a="1",b=~"2"`.
fn label_names(selector: &str) -> impl Iterator<Item = &str> {
    let names = selector.split('"').step_by(2);
    let names =
        names.map(|name| name.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    names.filter(|name| !name.is_empty())
}

fn check(file: &str, expressions: &[String]) {
    let known = known();
    assert!(known.len() > 25, "{known:?}");
    for expression in expressions {
        let problems = problems(expression, &known);
        assert!(problems.is_empty(), "{file}: `{expression}`: {problems:?}");
    }
}

#[test]
fn dashboard_uses_only_metrics_that_exist() {
    let file = "deploy/grafana-dashboard.json";
    let dashboard: Value = serde_json::from_str(&read(file)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut expressions = Vec::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        let of_panel = targets
            .iter()
            .map(|target| target["expr"].as_str().unwrap());
        expressions.extend(of_panel.map(str::to_owned));
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let queries = variables
        .iter()
        .filter_map(|one| one["query"]["query"].as_str());
    expressions.extend(queries.map(str::to_owned));
    assert!(expressions.len() > 20);
    check(file, &expressions);
    // Panels are told apart by their ids.
    let mut ids: Vec<u64> = panels
        .iter()
        .map(|panel| panel["id"].as_u64().unwrap())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), panels.len());
}

#[test]
fn alerts_use_only_metrics_that_exist_and_say_what_to_do() {
    let file = "deploy/prometheus-alerts.yaml";
    let text = read(file);
    let rules: Vec<&str> = text.split("      - alert: ").skip(1).collect();
    assert!(rules.len() > 10);
    let mut expressions = Vec::new();
    for rule in &rules {
        let value = |name: &str| {
            let line = rule
                .lines()
                .map(str::trim)
                .find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no `{name}` in {rule}"))
                .trim()
        };
        assert!(rule.starts_with("Tidegate"), "{rule}");
        assert!(
            ["info", "warning", "critical"].contains(&value("severity:")),
            "{rule}"
        );
        assert!(
            value("summary:").len() > 10 && value("description:").len() > 20,
            "{rule}"
        );
        expressions.push(value("expr:").to_owned());
    }
    check(file, &expressions);
    let guide = read("docs/guide/observability.md");
    for rule in rules {
        let name = rule.lines().next().unwrap();
        assert!(
            guide.contains(&format!("`{name}`")),
            "{name} is not in the guide"
        );
    }
}

#[test]
fn wrong_expressions_are_found() {
    let known = known();
    let found = |expression: &str| problems(expression, &known);
    assert!(found("rate(tidegate_requests_total{route=\"a\"}[5m])").is_empty());
    assert_eq!(
        found("tidegate_request_total"),
        ["no metric `tidegate_request_total`"]
    );
    assert_eq!(
        found("tidegate_gates{key=\"a\"}"),
        ["`tidegate_gates` has no label `key`"]
    );
    assert_eq!(
        found("sum by (pool) (tidegate_gates)"),
        ["no metric has the label `pool`"]
    );
    assert_eq!(found("sum(tidegate_gates"), ["`(` is not closed"]);
    // A histogram has no samples of its own name.
    assert_eq!(
        found("tidegate_wait_seconds"),
        ["no metric `tidegate_wait_seconds`"]
    );
}
