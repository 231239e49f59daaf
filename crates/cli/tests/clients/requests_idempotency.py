"""POSTs through an upstream that fails every other time: with a key again, without one never."""

import sys
import uuid

import requests

base = sys.argv[1]


def post(**headers):
    return requests.post(f"{base}/echo", json={"amount": 5}, headers=headers, timeout=60)


key = str(uuid.uuid4())
answer = post(**{"Idempotency-Key": key})
assert answer.status_code == 200, answer.text
assert answer.headers["Tidegate-Attempts"] == "2", answer.headers
seen = answer.json()
assert seen["headers"]["idempotency-key"] == key, seen
assert seen["body_length"] == len('{"amount": 5}'), "the body was sent again, whole"

# The server may have acted: without a key a second copy could do harm.
answer = post()
assert answer.status_code == 503, answer.text
assert answer.headers["Tidegate-Attempts"] == "1", answer.headers
