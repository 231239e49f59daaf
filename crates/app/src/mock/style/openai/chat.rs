//! Chat completions: a sentence, whole or word by word.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{model_of, tokens};
use crate::mock::body::MockBody;
use crate::mock::endpoint::EVENT_STREAM;
use crate::mock::handle::{self, Answer, Call};

pub(super) fn answer(call: &Call<'_>, request: &Value) -> Answer {
    if !request["messages"].is_array() {
        let message = "`messages` is missing, a list was expected";
        return super::error(400, message, "invalid_request_error", None);
    }
    let reply = Reply::new(call, request);
    if request["stream"] == true {
        let includes_usage = request["stream_options"]["include_usage"] == true;
        reply.streamed(call, includes_usage)
    } else {
        reply.whole()
    }
}

struct Reply {
    id: String,
    model: String,
    /// Seconds since 1970.
    created: i64,
    /// How many letters are said.
    length: usize,
    usage: Value,
}

impl Reply {
    fn new(call: &Call<'_>, request: &Value) -> Self {
        let length = call.desk.settings.body_size.unwrap_or(USUAL);
        let asked = tokens(&request["messages"].to_string());
        let given = words(length).count() as u64;
        Self {
            id: format!("chatcmpl-mock-{}", call.number),
            model: model_of(request).to_owned(),
            created: call.desk.clock().wall().as_unix_millis() / 1000,
            length,
            usage: json!({
                "prompt_tokens": asked,
                "completion_tokens": given,
                "total_tokens": asked + given,
            }),
        }
    }

    fn whole(&self) -> Answer {
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

    /// The role, then word by word, then the end, and if asked for what it cost.
    fn streamed(self, call: &Call<'_>, includes_usage: bool) -> Answer {
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
        let settings = &call.desk.settings;
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

/// The sentence without the blank behind it.
const USUAL: usize = SENTENCE.len() - 1;

const SENTENCE: &str = "This is an answer of a mock. ";

/// The words of the sentence, again and again up to this length.
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
    fn words_are_as_long_as_asked_for() {
        let text = |length| words(length).collect::<String>();
        assert_eq!(text(USUAL), "This is an answer of a mock.");
        assert_eq!(text(33), "This is an answer of a mock. This");
        for length in [0, 1, 27, 29, 30, 1000] {
            assert_eq!(text(length).len(), length);
        }
    }
}
