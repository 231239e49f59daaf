//! Chat completions: a sentence, whole or word by word.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{model_of, tokens};
use crate::mock::body::MockBody;
use crate::mock::endpoint::EVENT_STREAM;
use crate::mock::handle::{self, MockRequest, MockResponse};
use crate::mock::state::MockState;

pub(super) fn respond(request: &MockRequest<'_>, body: &Value) -> MockResponse {
    if !body["messages"].is_array() {
        let message = "`messages` is missing, a list was expected";
        return super::error(400, message, "invalid_request_error", None);
    }
    let completion = Completion::new(request, body);
    if body["stream"] == true {
        let includes_usage = body["stream_options"]["include_usage"] == true;
        completion.streamed(request, includes_usage)
    } else {
        completion.whole()
    }
}

/// The tokens of prompt and completion together.
pub(super) fn tokens_of(state: &MockState, body: &Value) -> u64 {
    let (prompt, completion) = usage(state, body);
    prompt + completion
}

fn usage(state: &MockState, body: &Value) -> (u64, u64) {
    let prompt = tokens(&body["messages"].to_string());
    (prompt, words(length(state)).count() as u64)
}

/// The length of the text of a completion.
fn length(state: &MockState) -> usize {
    state.settings.body_size.unwrap_or(DEFAULT_LENGTH)
}

struct Completion {
    id: String,
    model: String,
    /// Unix seconds.
    created: i64,
    /// The length of the text.
    length: usize,
    usage: Value,
}

impl Completion {
    fn new(request: &MockRequest<'_>, body: &Value) -> Self {
        let (prompt, completion) = usage(request.state, body);
        Self {
            id: format!("chatcmpl-mock-{}", request.number),
            model: model_of(body).to_owned(),
            created: request.state.clock().wall().as_unix_millis() / 1000,
            length: length(request.state),
            usage: json!({
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            }),
        }
    }

    fn whole(&self) -> MockResponse {
        let message = json!({
            "role": "assistant",
            "content": words(self.length).collect::<String>(),
            "refusal": null,
        });
        let choice = json!({
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": "stop",
        });
        let mut value = self.frame("chat.completion", json!([choice]));
        value["usage"] = self.usage.clone();
        handle::json(200, &value)
    }

    /// The role, the words one by one, the end, and the usage if asked for.
    fn streamed(self, request: &MockRequest<'_>, includes_usage: bool) -> MockResponse {
        let first = self.chunk(json!({ "role": "assistant", "content": "" }), None);
        let last = self.chunk(json!({}), Some("stop"));
        let usage = includes_usage.then(|| {
            let mut chunk = self.frame(CHUNK, json!([]));
            chunk["usage"] = self.usage.clone();
            chunk
        });
        let words =
            words(self.length).map(move |word| self.chunk(json!({ "content": word }), None));
        let chunks = std::iter::once(first)
            .chain(words)
            .chain([last])
            .chain(usage);
        let events = chunks.map(|chunk| Bytes::from(format!("data: {chunk}\n\n")));
        let events = events.chain([Bytes::from_static(b"data: [DONE]\n\n")]);
        let settings = &request.state.settings;
        let body = MockBody::pieces(&settings.clock, settings.stream_every, events);
        handle::typed(200, EVENT_STREAM, body)
    }

    fn chunk(&self, delta: Value, finish_reason: Option<&str>) -> Value {
        let choice = json!({
            "index": 0,
            "delta": delta,
            "logprobs": null,
            "finish_reason": finish_reason,
        });
        self.frame(CHUNK, json!([choice]))
    }

    fn frame(&self, object: &str, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": "mock",
            "choices": choices,
        })
    }
}

const CHUNK: &str = "chat.completion.chunk";

/// The sentence without its trailing space.
const DEFAULT_LENGTH: usize = SENTENCE.len() - 1;

const SENTENCE: &str = "This is an answer of a mock. ";

/// The words of the sentence, repeated up to this length.
fn words(length: usize) -> impl Iterator<Item = &'static str> + Send {
    let mut left = length;
    let all = SENTENCE.split_inclusive(' ').cycle();
    let words = all.map(move |word| {
        let word = &word[..word.len().min(left)];
        left -= word.len();
        word
    });
    words.take_while(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_add_up_to_the_length() {
        let text = |length| words(length).collect::<String>();
        assert_eq!(text(DEFAULT_LENGTH), "This is an answer of a mock.");
        assert_eq!(text(33), "This is an answer of a mock. This");
        for length in [0, 1, 27, 29, 30, 1000] {
            assert_eq!(text(length).len(), length);
        }
    }
}
