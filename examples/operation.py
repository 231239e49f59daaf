"""Hands over a request, and waits until it is delivered or needs a person."""

import json
import os
import time
import urllib.request

ADMIN = os.environ.get("ADMIN", "http://127.0.0.1:7071")
TARGET = os.environ.get("TARGET", "https://api.example.com/orders/7")
with open(os.path.join(os.environ.get("DATA", "tidegate-data"), "admin-token")) as file:
    TOKEN = file.read().strip()


def call(path, body=None):
    request = urllib.request.Request(ADMIN + path, json.dumps(body).encode() if body else None)
    request.add_header("Authorization", f"Bearer {TOKEN}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


# Posting it again under the same key, such as after a crash of this program, is harmless.
accepted = call(
    "/api/v1/operations",
    {"method": "PUT", "url": TARGET, "body": {"amount": 5}, "idempotency_key": "order-7"},
)
while True:
    operation = call(f"/api/v1/operations/{accepted['id']}")
    if operation["state"] not in ("available", "running", "retryable"):
        break
    time.sleep(1)
print(json.dumps(operation))
