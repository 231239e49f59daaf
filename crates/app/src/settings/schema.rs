//! The JSON Schema of a settings file, for editors that complete and check.
//!
//! Rendered from the definitions: names, kinds, bounds, defaults and descriptions. Contradictions
//! between two values are found by `tidegate check` only.

use std::ops::Bound;

use config::schema::{Name, Section, Shape};
use policy::setting::{Kind, Setting};
use serde_json::{Map, Value, json};

use super::default_file::description;
use super::sections::ROOT;

/// The schema, in draft 2020-12.
pub fn schema() -> Value {
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of Tidegate",
    });
    merge(&mut schema, object(&ROOT));
    schema
}

fn object(section: &'static Section) -> Value {
    let settings = section
        .settings()
        .map(|setting| (setting.name.to_owned(), property(setting)));
    let tables = section.tables.iter().map(|inner| {
        let schema = match inner.shape {
            Shape::One(section) => object(section),
            Shape::List(section) => json!({ "type": "array", "items": object(section) }),
            Shape::Map => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        };
        (inner.name.to_owned(), schema)
    });
    let properties: Map<String, Value> = settings.chain(tables).collect();
    let others = section
        .named
        .map_or(json!(false), |named| object(named.section));
    let mut schema = json!({
        "type": "object", "properties": properties, "additionalProperties": others,
    });
    if !section.about.is_empty() {
        merge(&mut schema, json!({ "description": section.about }));
    }
    if section.named.is_some_and(|named| named.name == Name::Word) {
        let names = json!({ "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$" });
        merge(&mut schema, json!({ "propertyNames": names }));
    }
    schema
}

/// One setting: its values, description and default.
pub(crate) fn property(setting: &Setting) -> Value {
    let mut schema = kind(&setting.kind);
    merge(&mut schema, json!({ "description": description(setting) }));
    if let Some(default) = setting.default {
        let default = default_value(&setting.kind, &setting.kind.split(default));
        merge(&mut schema, json!({ "default": default }));
    }
    schema
}

fn kind(kind: &Kind) -> Value {
    match kind {
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::Whole {
            min,
            max,
            except: [],
        } => {
            json!({ "type": "integer", "minimum": min, "maximum": max })
        }
        Kind::Whole { min, max, except } => {
            json!({ "type": "integer", "minimum": min, "maximum": max, "not": { "enum": except } })
        }
        Kind::PowerOfTwo(max) => {
            let powers = std::iter::successors(Some(1), |power| Some(power * 2_u64));
            let powers: Vec<u64> = powers.take_while(|power| power <= max).collect();
            json!({ "type": "integer", "enum": powers })
        }
        Kind::Number { min, max, .. } => {
            let mut schema = json!({ "type": "number" });
            for (bound, included, excluded) in [
                (min, "minimum", "exclusiveMinimum"),
                (max, "maximum", "exclusiveMaximum"),
            ] {
                match bound {
                    Bound::Included(bound) => merge(&mut schema, json!({ included: bound })),
                    Bound::Excluded(bound) => merge(&mut schema, json!({ excluded: bound })),
                    Bound::Unbounded => {}
                }
            }
            schema
        }
        Kind::Duration(_) => json!({ "type": "string", "pattern": DURATION }),
        Kind::Choice(words) => json!({ "type": "string", "enum": words }),
        Kind::Format(format) => {
            let types = match format.or_number {
                true => json!(["string", "integer"]),
                false => json!("string"),
            };
            match format.pattern {
                Some(pattern) => json!({ "type": types, "pattern": pattern }),
                None => json!({ "type": types }),
            }
        }
        Kind::Secret { .. } | Kind::NameOf(_) => json!({ "type": "string" }),
        Kind::List { of, min, max } => {
            let mut schema = json!({ "type": "array", "items": self::kind(of), "maxItems": max });
            if *min > 0 {
                merge(&mut schema, json!({ "minItems": min }));
            }
            schema
        }
    }
}

const DURATION: &str = "^([0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h|d) ?)+$";

/// A value that was read from text, as JSON.
pub(crate) fn default_value(kind: &Kind, parts: &[&str]) -> Value {
    let text = parts.first().copied().unwrap_or_default();
    match kind {
        Kind::List { of, .. } => parts
            .iter()
            .map(|part| default_value(of, &[part]))
            .collect(),
        Kind::Switch => json!(text == "true"),
        Kind::Whole { .. } | Kind::PowerOfTwo(_) => {
            json!(policy::setting::number::<u64>(text))
        }
        Kind::Number { .. } => json!(policy::setting::number::<f64>(text)),
        _ => json!(text),
    }
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

#[cfg(test)]
mod tests {
    use super::super::default_file::{default_file, with_examples};
    use super::*;

    /// Everything in which `value` does not match `schema`. Knows the words that are used here.
    fn findings(value: &toml::Value, schema: &Value, path: &str) -> Vec<String> {
        let mut found = Vec::new();
        let kind = match value {
            toml::Value::String(_) => "string",
            toml::Value::Integer(_) => "integer",
            toml::Value::Float(_) => "number",
            toml::Value::Boolean(_) => "boolean",
            toml::Value::Datetime(_) => "date",
            toml::Value::Array(_) => "array",
            toml::Value::Table(_) => "object",
        };
        let expected = schema["type"].as_str().unwrap();
        if kind != expected && !(kind == "integer" && expected == "number") {
            found.push(format!("{path}: {kind}, not {expected}"));
        }
        if let (Some(words), Some(text)) = (schema["enum"].as_array(), value.as_str())
            && !words.iter().any(|word| word == text)
        {
            found.push(format!("{path}: {text} is none of {words:?}"));
        }
        if let (Some(max), Some(number)) = (schema["maximum"].as_f64(), value.as_integer())
            && number as f64 > max
        {
            found.push(format!("{path}: {number} is above {max}"));
        }
        for item in value.as_array().into_iter().flatten() {
            found.extend(findings(item, &schema["items"], path));
        }
        for (name, value) in value.as_table().into_iter().flatten() {
            let path = format!("{path}.{name}");
            match (
                schema["properties"].get(name),
                &schema["additionalProperties"],
            ) {
                (Some(schema), _) | (None, schema @ Value::Object(_)) => {
                    found.extend(findings(value, schema, &path));
                }
                (None, _) => found.push(format!("{path}: unknown")),
            }
        }
        found
    }

    #[test]
    fn the_default_file_matches() {
        for text in [default_file(), with_examples()] {
            let file: toml::Table = text.parse().unwrap();
            let found = findings(&toml::Value::Table(file), &schema(), "");
            assert!(found.is_empty(), "{}", found.join("\n"));
        }
    }

    #[test]
    fn finds_what_does_not_match() {
        for text in [
            "[gate]\nmax_rat = 1",
            "[gate]\nenabled = 1",
            "[gate]\nstrategy = \"x\"",
            "[gate]\nhalf_open_probes = 101",
            "x = 1",
        ] {
            let file: toml::Table = text.parse().unwrap();
            let found = findings(&toml::Value::Table(file), &schema(), "");
            assert_eq!(found.len(), 1, "{text}");
        }
    }

    #[test]
    fn has_bounds_defaults_and_descriptions() {
        let schema = schema();
        let gate = &schema["properties"]["gate"]["properties"];
        assert_eq!(gate["max_wait"]["default"], "30s");
        assert_eq!(gate["max_rate"]["maximum"], 1e9);
        assert_eq!(gate["decrease"]["exclusiveMaximum"], 1.0);
        assert_eq!(
            gate["max_wait"]["description"],
            "How long a caller may wait."
        );
        let pool = &schema["properties"]["pool"]["additionalProperties"];
        assert_eq!(pool["properties"]["credential"].get("default"), None);
    }
}
