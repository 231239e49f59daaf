//! The JSON Schema of a settings file, for editors that complete and check.
//!
//! Made from the table of settings, with defaults and reasons from the default file. It knows
//! names and kinds; bounds and contradictions are judged in one place only, by `tidegate check`.

use serde_json::{Map, Value, json};

use super::default_file::{self, About, Line};
use super::table::{Kind, Name, ROOT, Section};

/// The schema, in draft 2020-12.
pub fn schema() -> Value {
    let about = default_file::sections();
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of Tidegate",
    });
    merge(&mut schema, object(&ROOT, &about));
    schema
}

fn object(section: &'static Section, about: &[About]) -> Value {
    let properties: Map<String, Value> = section
        .keys
        .iter()
        .map(|key| {
            let mut property = kind(key.kind, about);
            if let Some(line) = line(section, key.name, about) {
                merge(&mut property, description(line, key.kind));
            }
            (key.name.to_owned(), property)
        })
        .collect();
    let mut schema = json!({ "type": "object", "properties": properties });
    if let Some(about) = about
        .iter()
        .find(|about| std::ptr::eq(about.section, section))
    {
        merge(&mut schema, json!({ "description": about.reason }));
    }
    let others = match section.named {
        None => json!(false),
        Some(named) => object(named.section, about),
    };
    merge(&mut schema, json!({ "additionalProperties": others }));
    if let Some(named) = section.named.filter(|named| named.name == Name::Word) {
        let names = json!({ "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$" });
        merge(&mut schema, json!({ "propertyNames": names }));
        debug_assert!(
            section.keys.is_empty(),
            "names of {} are free",
            named.section.path
        );
    }
    schema
}

fn kind(kind: Kind, about: &[About]) -> Value {
    match kind {
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::Whole => json!({ "type": "integer", "minimum": 0 }),
        Kind::Number => json!({ "type": "number", "minimum": 0 }),
        Kind::Duration => json!({ "type": "string", "pattern": DURATION }),
        Kind::Text | Kind::Path | Kind::Secret | Kind::NameOf(_) => json!({ "type": "string" }),
        Kind::Choice(words) => json!({ "type": "string", "enum": words }),
        Kind::Size => {
            json!({ "type": "string", "pattern": "^(none|[0-9_]+ ?(B|[KMG]iB|[kMG]B))$" })
        }
        Kind::Limit => json!({ "type": "string", "pattern": "^[0-9]+/" }),
        Kind::Address => json!({ "type": "string", "pattern": ":[0-9]+$" }),
        Kind::Url => json!({ "type": "string", "pattern": "^https?://" }),
        Kind::List(inner) => json!({ "type": "array", "items": self::kind(*inner, about) }),
        Kind::Headers => {
            json!({ "type": "object", "additionalProperties": { "type": "string" } })
        }
        Kind::Table(section) => object(section, about),
        Kind::Tables(section) => json!({ "type": "array", "items": object(section, about) }),
    }
}

const DURATION: &str = "^([0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h|d) ?)+$";

fn line<'a>(section: &Section, name: &str, about: &'a [About]) -> Option<&'a Line> {
    // A host has what every gate has.
    let path = |about: &&About| {
        about.section.path == section.path
            || section.path == "gate.HOST" && about.section.path == "gate"
    };
    let lines = about.iter().filter(path).flat_map(|about| &about.lines);
    let mut lines = lines.filter(|line| line.name == name && !line.reason.is_empty());
    lines.next()
}

fn description(line: &Line, kind: Kind) -> Value {
    let default = default_value(line, kind);
    match default {
        Some(default) => json!({ "description": line.reason, "default": default }),
        None => json!({ "description": line.reason }),
    }
}

fn default_value(line: &Line, kind: Kind) -> Option<Value> {
    if line.is_example {
        return None;
    }
    let text = line.value.trim_matches('"');
    match kind {
        Kind::Switch => text.parse().ok().map(Value::Bool),
        Kind::Whole => text
            .replace('_', "")
            .parse()
            .ok()
            .map(|whole: u64| json!(whole)),
        Kind::Number => text
            .replace('_', "")
            .parse()
            .ok()
            .map(|number: f64| json!(number)),
        Kind::List(_) => serde_json::from_str(&line.value).ok(),
        _ => Some(json!(text)),
    }
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

#[cfg(test)]
mod tests {
    use super::super::default_file::{DEFAULT_FILE, with_examples};
    use super::*;

    /// Everything in which `value` is not as `schema` says. Knows the words that are used here.
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
    fn the_default_file_is_as_the_schema_says() {
        for text in [DEFAULT_FILE.to_owned(), with_examples()] {
            let file: toml::Table = text.parse().unwrap();
            let found = findings(&toml::Value::Table(file), &schema(), "");
            assert!(found.is_empty(), "{}", found.join("\n"));
        }
    }

    #[test]
    fn what_is_not_as_the_schema_says_is_found() {
        for text in [
            "[gate]\nmax_rat = 1",
            "[gate]\nenabled = 1",
            "[gate]\nstrategy = \"x\"",
            "x = 1",
        ] {
            let file: toml::Table = text.parse().unwrap();
            assert_eq!(
                findings(&toml::Value::Table(file), &schema(), "").len(),
                1,
                "{text}"
            );
        }
    }

    #[test]
    fn defaults_and_reasons_are_those_of_the_default_file() {
        let schema = schema();
        let max_wait = &schema["properties"]["gate"]["properties"]["max_wait"];
        assert_eq!(max_wait["default"], "30s");
        assert_eq!(
            max_wait["description"],
            "How long a caller may be kept waiting."
        );
        let pool = &schema["properties"]["pool"]["additionalProperties"];
        assert_eq!(pool["properties"]["balance"].get("default"), None);
    }
}
