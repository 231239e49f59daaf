//! Embeddings: random vectors of length one, the same for the same text.

use policy::random::Random;
use serde_json::{Value, json};

use super::{model_of, tokens};
use crate::base64;
use crate::mock::handle::{self, MockResponse};
use crate::mock::state::MockState;

pub(super) fn respond(body: &Value) -> MockResponse {
    let inputs = inputs(&body["input"]);
    if inputs.is_empty() {
        let message = "`input` is missing, a string or a list was expected";
        return super::error(400, message, "invalid_request_error", None);
    }
    let dimensions = body["dimensions"].as_u64();
    let dimensions = dimensions.map_or(DEFAULT_DIMENSIONS, |count| count.clamp(1, MAX_DIMENSIONS));
    // The official clients ask for it, because it is shorter.
    let is_base64 = body["encoding_format"] == "base64";
    let data = inputs.iter().enumerate().map(|(index, text)| {
        let vector = vector(text, dimensions);
        let embedding = if is_base64 {
            let bytes: Vec<u8> = vector.iter().flat_map(|part| part.to_le_bytes()).collect();
            json!(base64::encode(&bytes))
        } else {
            json!(vector)
        };
        json!({ "object": "embedding", "index": index, "embedding": embedding })
    });
    let data: Vec<Value> = data.collect();
    let count = count(&inputs);
    handle::json(
        200,
        &json!({
            "object": "list",
            "model": model_of(body),
            "data": data,
            "usage": { "prompt_tokens": count, "total_tokens": count },
        }),
    )
}

/// The tokens of the inputs.
pub(super) fn tokens_of(_: &MockState, body: &Value) -> u64 {
    count(&inputs(&body["input"]))
}

fn count(inputs: &[String]) -> u64 {
    inputs.iter().map(|text| tokens(text)).sum()
}

/// That of OpenAI's smaller model.
const DEFAULT_DIMENSIONS: u64 = 1536;
const MAX_DIMENSIONS: u64 = 8192;

/// The inputs as texts: one text or several, or lists of tokens.
fn inputs(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(list) if list.iter().all(Value::is_number) && !list.is_empty() => {
            vec![value.to_string()]
        }
        Value::Array(list) => {
            let texts = list.iter();
            let texts = texts.map(|text| {
                text.as_str()
                    .map_or_else(|| text.to_string(), str::to_owned)
            });
            texts.collect()
        }
        _ => Vec::new(),
    }
}

/// A vector of length one.
#[expect(
    clippy::cast_possible_truncation,
    reason = "embeddings are small floats"
)]
fn vector(text: &str, dimensions: u64) -> Vec<f32> {
    let seed = text.bytes().fold(0_u64, |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    let mut random = Random::from_seed(seed);
    let parts: Vec<f64> = (0..dimensions).map(|_| random.between(-1.0, 1.0)).collect();
    let length = parts.iter().map(|part| part * part).sum::<f64>().sqrt();
    parts.iter().map(|part| (part / length) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_equal_vectors_of_length_one() {
        let one = vector("tide", 64);
        assert_eq!(one, vector("tide", 64));
        assert_ne!(one, vector("gate", 64));
        let length: f32 = one.iter().map(|part| part * part).sum();
        assert!((length - 1.0).abs() < 1e-3, "{length}");
    }

    #[test]
    fn reads_one_or_several_inputs_as_text_or_tokens() {
        let count = |value: Value| inputs(&value).len();
        assert_eq!(count(json!("a")), 1);
        assert_eq!(count(json!(["a", "b"])), 2);
        assert_eq!(count(json!([1, 2, 3])), 1);
        assert_eq!(count(json!([[1, 2], [3]])), 2);
        assert_eq!(count(json!([])), 0);
        assert_eq!(count(json!(null)), 0);
    }
}
