//! The reference of the admin API, as a page of Markdown.
//!
//! Made from the document that the server gives out; a test holds that `docs/reference/api.md` is
//! what this makes.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::api;
use super::problem::Kind;

/// The page.
pub fn reference() -> String {
    let document: Value =
        serde_json::from_str(&api::document()).expect("the document is JSON by construction");
    let mut page = INTRODUCTION.to_owned();
    for tag in list(&document["tags"]) {
        // Writing into a string cannot fail.
        _ = writeln!(page, "\n## {}\n", word(&tag["description"]));
        for (method, path, operation) in operations(&document, word(&tag["name"])) {
            write_operation(&mut page, &method, path, operation);
        }
    }
    page.push_str("\n## Bodies\n");
    for (name, schema) in entries(&document["components"]["schemas"]) {
        write_schema(&mut page, name, schema);
    }
    page.push_str(PROBLEMS);
    for kind in Kind::ALL {
        let status = kind.status().as_u16();
        _ = writeln!(
            page,
            "| {status} | `{}` | {} |",
            kind.reason(),
            kind.title()
        );
    }
    page
}

const INTRODUCTION: &str = "\
# Admin API

JSON over HTTP at `server.admin`, by default `http://127.0.0.1:7071`. Every call but `/healthz` and `/readyz` needs
`Authorization: Bearer TOKEN` with the token in `admin-token` of the data folder, or the cookie of a browser that has
signed in; `/openapi.json` describes all of it for programs. [How to use it](../guide/admin.md) is a page of its own.

Times that end with `_ms` are milliseconds, of Unix time where they are instants. Every response
says in the header `Tidegate-Now` when it was made. Bodies have at most 64 KiB, documents of operations aside.

<!-- Made from the handlers of the admin API: scripts/update-reference writes it anew. -->
";

const PROBLEMS: &str = "
## Problems

A call that fails is answered with `application/problem+json` ([`Problem`](#problem)) and one of these reasons:

| status | reason | title |
|---|---|---|
";

/// The calls of a tag, in the order of their paths.
fn operations<'a>(document: &'a Value, tag: &str) -> Vec<(String, &'a str, &'a Value)> {
    let mut found = Vec::new();
    for (path, item) in entries(&document["paths"]) {
        for (method, operation) in entries(item) {
            if list(&operation["tags"]).any(|known| known == tag) {
                found.push((method.to_uppercase(), path.as_str(), operation));
            }
        }
    }
    found
}

fn write_operation(page: &mut String, method: &str, path: &str, operation: &Value) {
    _ = writeln!(page, "### `{method} {path}`\n");
    _ = writeln!(page, "{}.", word(&operation["summary"]));
    if let Some(more) = operation["description"].as_str() {
        _ = writeln!(page, "\n{}", more.replace('\n', " "));
    }
    let mut parameters = list(&operation["parameters"]).peekable();
    if parameters.peek().is_some() {
        _ = writeln!(page, "\n| parameter | value | meaning |\n|---|---|---|");
    }
    for parameter in parameters {
        let (name, kind) = (word(&parameter["name"]), kind(&parameter["schema"]));
        let meaning = word(&parameter["description"]);
        _ = writeln!(page, "| `{name}` | {kind} | {meaning} |");
    }
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    if body.is_object() {
        _ = writeln!(page, "\nThe body is {}.", kind(body));
    }
    _ = writeln!(page, "\n| status | answer | |\n|---|---|---|");
    for (status, response) in entries(&operation["responses"]) {
        let content = entries(&response["content"]).next();
        let answer = match content {
            Some((media, _)) if media == "application/problem+json" => "a problem".to_owned(),
            Some((media, content)) if media == "application/json" => kind(&content["schema"]),
            Some((media, _)) => format!("`{media}`"),
            None => "nothing".to_owned(),
        };
        let meaning = word(&response["description"]);
        _ = writeln!(page, "| {status} | {answer} | {meaning} |");
    }
    page.push('\n');
}

fn write_schema(page: &mut String, name: &str, schema: &Value) {
    _ = writeln!(page, "\n### `{name}`\n");
    if let Some(meaning) = schema["description"].as_str() {
        _ = writeln!(
            page,
            "{}.\n",
            meaning.replace('\n', " ").trim_end_matches('.')
        );
    }
    if schema["enum"].is_array() {
        _ = writeln!(page, "One of {}.", kind(schema));
        return;
    }
    _ = writeln!(page, "| field | value | meaning |\n|---|---|---|");
    if !schema["allOf"].is_array() {
        return write_fields(page, schema);
    }
    for part in list(&schema["allOf"]) {
        match part["$ref"].is_string() {
            true => _ = writeln!(page, "| all of {} | | |", kind(part)),
            false => write_fields(page, part),
        }
    }
}

fn write_fields(page: &mut String, schema: &Value) {
    let required: Vec<&str> = list(&schema["required"]).map(word).collect();
    for (field, schema) in entries(&schema["properties"]) {
        let optional = if required.contains(&field.as_str()) {
            ""
        } else {
            ", may be missing"
        };
        let meaning = word(&schema["description"]).replace('\n', " ");
        _ = writeln!(
            page,
            "| `{field}` | {}{optional} | {meaning} |",
            kind(schema)
        );
    }
}

/// The kind of value that a schema describes, for people.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or(name);
        return format!("[`{name}`](#{})", name.to_lowercase());
    }
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<String> = words
            .iter()
            .map(|name| format!("`{}`", word(name)))
            .collect();
        return words.join(", ");
    }
    if schema["oneOf"].is_array() {
        let choices: Vec<String> = list(&schema["oneOf"]).map(kind).collect();
        return choices.join(" or ");
    }
    let names: Vec<&str> = match &schema["type"] {
        Value::Array(names) => names.iter().map(word).collect(),
        name => vec![word(name)],
    };
    let words = names.iter().map(|name| match *name {
        "array" => format!("list of {}", plural(&schema["items"])),
        "integer" => format!("whole number{}", bounds(schema)),
        "number" => format!("number{}", bounds(schema)),
        "boolean" => "`true`, `false`".to_owned(),
        "object" => "object".to_owned(),
        "null" => "null".to_owned(),
        "" => "any value".to_owned(),
        other => other.to_owned(),
    });
    words.collect::<Vec<String>>().join(" or ")
}

fn plural(schema: &Value) -> String {
    if schema["$ref"].is_string() {
        return kind(schema);
    }
    if schema["type"] == json!(["number", "null"]) {
        return "numbers or null".to_owned();
    }
    match schema["type"].as_str() {
        Some("string") => "strings".to_owned(),
        Some("integer") => "whole numbers".to_owned(),
        Some("number") => "numbers".to_owned(),
        Some("object") => "objects".to_owned(),
        _ => "whole numbers, each ".to_owned() + &kind(schema).replace("whole number ", ""),
    }
}

fn bounds(schema: &Value) -> String {
    match (&schema["minimum"], &schema["maximum"]) {
        (least, most) if least.is_number() && most.is_number() && least == most => {
            format!(" {least}")
        }
        (least, most) if least.is_number() && most.is_number() => format!(" {least}–{most}"),
        _ => String::new(),
    }
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_in_step() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/api.md");
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(path, reference()).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            page == reference(),
            "docs/reference/api.md is old; scripts/update-reference writes it anew"
        );
    }
}
