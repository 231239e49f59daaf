//! `tidegate run --explain`: which rule matches a text.

use app::run::rules::{ExplainedRule, Explanation, RuleSet};
use serde_json::{Value, json};

use crate::commands::Failure;
use crate::output::Output;

/// Prints which rule decides about `text`, why, and which would be next.
pub(super) fn print(
    rules: &RuleSet,
    exit: Option<u8>,
    text: &str,
    output: &Output,
) -> Result<(), Failure> {
    let explanation = rules.explain(exit.map(i32::from), text);
    output.result(&record(&explanation), || format!("{explanation}\n"))
}

fn record(explanation: &Explanation<'_>) -> Value {
    let matches: Vec<Value> = explanation.matches.iter().map(rule_record).collect();
    json!({ "class": explanation.class.as_str(), "matches": matches })
}

fn rule_record(rule: &ExplainedRule<'_>) -> Value {
    let phrase = rule.phrase.map(
        |(phrase, place)| json!({ "text": phrase, "line": place.line, "column": place.column }),
    );
    json!({
        "rule": rule.name,
        "class": rule.class.as_str(),
        "reason": rule.reason,
        "exit": rule.exits,
        "phrase": phrase,
    })
}
