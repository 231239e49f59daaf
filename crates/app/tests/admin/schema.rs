//! Does a value fit the schema that describes it? As much of JSON Schema as the document uses.

use serde_json::Value;

/// Everything about `value` that `schema` does not allow, with its place.
pub(crate) fn misfits(document: &Value, schema: &Value, value: &Value, place: &str) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let pointer = name.trim_start_matches('#');
        let schema = document.pointer(pointer).unwrap();
        return misfits(document, schema, value, place);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let fits = |choice: &&Value| misfits(document, choice, value, place).is_empty();
        let count = choices.iter().filter(fits).count();
        return match count {
            1 => Vec::new(),
            _ => vec![format!("{place}: {value} fits {count} of the choices")],
        };
    }
    let mut found = Vec::new();
    for part in schema["allOf"].as_array().into_iter().flatten() {
        found.extend(misfits(document, part, value, place));
    }
    if !has_type(&schema["type"], value) {
        found.push(format!("{place}: {value} is not {}", schema["type"]));
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        found.push(format!("{place}: {value} is none of {words:?}"));
    }
    if let (Some(least), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
        && number < least
    {
        found.push(format!("{place}: {number} is below {least}"));
    }
    if let (Some(most), Some(number)) = (schema["maximum"].as_f64(), value.as_f64())
        && number > most
    {
        found.push(format!("{place}: {number} is above {most}"));
    }
    if let Some(object) = value.as_object() {
        found.extend(object_misfits(document, schema, object, place));
    }
    if let (Some(list), true) = (value.as_array(), schema["items"].is_object()) {
        for (index, item) in list.iter().enumerate() {
            let place = format!("{place}[{index}]");
            found.extend(misfits(document, &schema["items"], item, &place));
        }
    }
    found
}

fn object_misfits(
    document: &Value,
    schema: &Value,
    object: &serde_json::Map<String, Value>,
    place: &str,
) -> Vec<String> {
    let mut found = Vec::new();
    let required = schema["required"].as_array().into_iter().flatten();
    for name in required.filter_map(Value::as_str) {
        if !object.contains_key(name) {
            found.push(format!("{place}.{name} is missing"));
        }
    }
    for (name, value) in object {
        let place = format!("{place}.{name}");
        match schema["properties"].get(name) {
            Some(schema) => found.extend(misfits(document, schema, value, &place)),
            // What is not described is not promised, and must not be there.
            None if schema["additionalProperties"].is_object() => {}
            None => found.push(format!("{place} is not described")),
        }
    }
    found
}

fn has_type(wanted: &Value, value: &Value) -> bool {
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    };
    match wanted {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        _ => true,
    }
}
