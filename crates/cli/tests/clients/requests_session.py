"""A session of requests whose base URL is the gateway's: methods, JSON, streams, errors."""

import json
import sys

import requests

base = sys.argv[1]
session = requests.Session()
session.headers["X-App"] = "session"

seen = session.get(f"{base}/echo", params={"q": "ä b"}).json()
assert seen["method"] == "GET", seen
assert seen["query"] == "q=%C3%A4+b", seen
assert seen["headers"]["x-app"] == "session", seen

answer = session.post(f"{base}/echo", json={"text": "x" * 5000})
assert answer.status_code == 200, answer.text
assert answer.json()["headers"]["content-type"] == "application/json", answer.text
assert answer.headers["Tidegate-Endpoint"] == "mock", answer.headers

# A generator has no length: it is sent in chunks.
parts = (b"part %d\n" % number for number in range(1000))
assert session.put(f"{base}/echo", data=parts).json()["body_length"] == 8890

# A long body, piece by piece, whole at the end.
with session.get(f"{base}/bytes/20000000", stream=True) as answer:
    assert sum(len(piece) for piece in answer.iter_content(65536)) == 20_000_000

# Events come line by line.
with session.get(f"{base}/sse", params={"n": 4, "every": "20ms"}, stream=True) as answer:
    lines = [line for line in answer.iter_lines() if line.startswith(b"data:")]
assert [json.loads(line[5:])["n"] for line in lines] == [0, 1, 2, 3], lines

# What the upstream says is an error, is one.
answer = session.get(f"{base}/status/404")
assert answer.status_code == 404 and "Tidegate-Reason" not in answer.headers, answer.headers
try:
    answer.raise_for_status()
except requests.HTTPError:
    pass
else:
    sys.exit("404 was no error")
