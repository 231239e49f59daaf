"""200 requests from 20 threads against an upstream with a limit; prints what they were told."""

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import requests

base = sys.argv[1]
local = threading.local()


def ask(number):
    if not hasattr(local, "session"):
        local.session = requests.Session()
    answer = local.session.get(f"{base}/items/{number}", timeout=60)
    return {
        "status": answer.status_code,
        "wait_ms": int(answer.headers["Tidegate-Wait-Ms"]),
        "attempts": int(answer.headers["Tidegate-Attempts"]),
    }


with ThreadPoolExecutor(max_workers=20) as threads:
    print(json.dumps(list(threads.map(ask, range(200)))))
