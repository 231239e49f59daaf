"""Serves a folder over HTTP and HTTPS on loopback, and prints both ports.

Usage: forward_site.py FOLDER CERT KEY

The folder gets what clients of package servers look for: a file, an index of Python packages with one
wheel, and a repository of Debian packages without any.
"""

import functools
import http.server
import pathlib
import ssl
import sys
import threading
import zipfile

folder, cert, key = sys.argv[1:]
root = pathlib.Path(folder)
(root / "hello.txt").write_text("hello\n")

wheel = root / "simple/tidegate-sample/tidegate_sample-1.0-py3-none-any.whl"
wheel.parent.mkdir(parents=True)
with zipfile.ZipFile(wheel, "w") as files:
    info = "tidegate_sample-1.0.dist-info"
    files.writestr("tidegate_sample.py", "")
    files.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tidegate-sample\nVersion: 1.0\n")
    files.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    files.writestr(f"{info}/RECORD", "")
(wheel.parent / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')

(root / "apt").mkdir()
(root / "apt/Packages").write_text("")


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass


handler = functools.partial(Handler, directory=folder)
servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) for _ in range(2)]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, key)
servers[1].socket = context.wrap_socket(servers[1].socket, server_side=True)
for server in servers:
    threading.Thread(target=server.serve_forever).start()
print(*(server.server_address[1] for server in servers), flush=True)
