"""Receives one report of Tidegate, verifies its signature and prints it.

Needs `pip install standardwebhooks`, and the secret of the webhook in HOOK_SECRET.
"""

import json
import os
from http.server import BaseHTTPRequestHandler, HTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["HOOK_SECRET"])


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            report = webhook.verify(body, dict(self.headers))
        except WebhookVerificationError as error:
            self.send_error(400, str(error))
            return
        self.send_response(204)
        self.end_headers()
        print(json.dumps(report), flush=True)


server = HTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8000"))), Receiver)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.handle_request()
