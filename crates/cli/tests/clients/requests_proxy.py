"""requests through the gateway as a proxy: HTTP in absolute form, HTTPS in a tunnel.

Usage: requests_proxy.py PROXY HTTP_URL HTTPS_URL CA
"""

import sys

import requests

proxy, plain, secure, ca = sys.argv[1:]
session = requests.Session()
session.proxies = {"http": proxy, "https": proxy}

answer = session.get(f"{plain}/hello.txt")
assert (answer.status_code, answer.text) == (200, "hello\n"), answer.text
assert answer.headers["Tidegate-Attempts"] == "1", answer.headers
for _ in range(2):
    # A session's own setting would give way to the environment's.
    answer = session.get(f"{secure}/hello.txt", verify=ca)
    assert (answer.status_code, answer.text) == (200, "hello\n"), answer.text
    assert "Tidegate-Attempts" not in answer.headers, "the tunnel was looked into"

answer = session.get("http://other.example.com/")
assert answer.status_code == 403, answer.text
assert answer.json()["reason"] == "host_not_allowed", answer.text

# Without its token.
bare = proxy.split("@")[-1]
answer = requests.get(f"{plain}/hello.txt", proxies={"http": f"http://{bare}"})
assert answer.status_code == 407, answer.text
try:
    requests.get(f"{secure}/hello.txt", proxies={"https": f"http://{bare}"}, verify=ca)
except requests.exceptions.ProxyError as error:
    assert "407" in str(error), error
else:
    raise AssertionError("a tunnel without a token")
