"""OpenAI's library against the gateway, without retries of its own, while the upstream throttles."""

import sys

from openai import OpenAI

base = sys.argv[1]
client = OpenAI(base_url=f"{base}/v1", api_key="any", max_retries=0, timeout=60)
messages = [{"role": "user", "content": "What is a tide gate?"}]

models = [model.id for model in client.models.list()]
assert models, "there are models"

# More than the limit allows at once: a client without retries sees no refusal.
for number in range(8):
    chat = client.chat.completions.create(model=models[0], messages=messages)
    assert chat.choices[0].message.content, chat
    assert chat.usage.total_tokens > 0, chat

stream = client.chat.completions.create(model=models[0], messages=messages, stream=True)
parts = [part.choices[0].delta.content for part in stream if part.choices]
assert len([part for part in parts if part]) > 1, parts

embedded = client.embeddings.create(model=models[0], input=["a tide", "a gate"])
assert len(embedded.data) == 2, embedded
assert all(isinstance(value, float) for value in embedded.data[1].embedding)

# Headers can be seen with the library's own means.
raw = client.models.with_raw_response.list()
assert raw.headers["Tidegate-Attempts"] == "1", raw.headers
assert raw.headers["x-ratelimit-limit-requests"], raw.headers
print(models)
