"""Errors of upstream and gateway arrive as the exceptions of OpenAI's library."""

import sys

import openai
from openai import OpenAI

base = sys.argv[1]
client = OpenAI(base_url=f"{base}/v1", api_key="any", max_retries=0, timeout=60)


def raised(kind, function, **arguments):
    try:
        function(**arguments)
    except kind as error:
        return error
    sys.exit(f"expected {kind.__name__}")


# The upstream's own: passed on as it is.
error = raised(openai.NotFoundError, client.files.list)
assert error.status_code == 404 and error.body["message"], error.body
error = raised(
    openai.BadRequestError, client.chat.completions.create, model="mock-model", messages="hello"
)
assert error.status_code == 400, error

# Without time to wait, the first refusal is the upstream's, the next one the gateway's.
impatient = dict(
    model="mock-model",
    messages=[{"role": "user", "content": "hello"}],
    extra_headers={"Tidegate-Max-Wait": "0s"},
)
error = raised(openai.RateLimitError, client.chat.completions.create, **impatient)
assert error.code == "rate_limit_exceeded", error.body
assert error.response.headers["Retry-After"] == "60", error.response.headers
assert "Tidegate-Reason" not in error.response.headers, error.response.headers
error = raised(openai.RateLimitError, client.chat.completions.create, **impatient)
assert error.response.headers["Tidegate-Reason"] == "wait_too_long", error.response.headers
assert error.response.headers["Tidegate-Attempts"] == "0", error.response.headers
assert 1 <= int(error.response.headers["Retry-After"]) <= 60, error.response.headers

# A pool that does not exist.
elsewhere = OpenAI(base_url=base.replace("/api", "/nowhere"), api_key="any", max_retries=0)
error = raised(openai.NotFoundError, elsewhere.models.list)
assert error.response.headers["Tidegate-Reason"] == "no_route", error.response.headers
