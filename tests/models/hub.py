"""A model hub on loopback that can be slow, fail and return wrong data."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


@dataclass
class Behaviour:
    """What the hub does wrong next; each list is used up from the front."""

    files: dict[str, bytes]
    statuses: list[int] = field(default_factory=list)
    """Answered to the next requests for files instead of the file; 0 means serve it."""
    listing_status: int = 200
    cut_at: list[int] = field(default_factory=list)
    """Bytes after which the connection is closed, for the next answers with a model file."""
    stall_at: list[int] = field(default_factory=list)
    resumes: bool = True
    wrong: bool = False
    tells_digests: bool = True
    git_only: bool = False
    """Report git blob ids as digests, as the real hub does for small files."""
    ranges: list[str] = field(default_factory=list)
    """The Range headers that were received."""
    requests: int = 0


@contextmanager
def serving(does: Behaviour) -> Iterator[str]:
    """The address of a hub that behaves so."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            does.requests += 1
            path = unquote(urlsplit(self.path).path)
            if path.startswith("/api/models/"):
                self._send(does.listing_status, self._listing())
            else:
                self._file(path.split("/resolve/")[1].split("/", 1)[1])

        def _listing(self) -> bytes:
            siblings = []
            for name, data in does.files.items():
                entry: dict[str, object] = {"rfilename": name, "size": len(data)}
                if does.git_only:
                    entry["blobId"] = sha1(b"blob %d\0" % len(data) + data).hexdigest()
                elif does.tells_digests:
                    entry["lfs"] = {"sha256": sha256(data).hexdigest(), "size": len(data)}
                siblings.append(entry)
            return json.dumps({"sha": "c0ffee", "siblings": siblings}).encode()

        def _file(self, name: str) -> None:
            status = does.statuses.pop(0) if does.statuses else 0
            if status:
                self._send(status, b"no", {"Retry-After": "0"})
                return
            data, start = does.files[name], 0
            if does.wrong:
                data = bytes(byte ^ 1 for byte in data)
            if query := self.headers.get("Range"):
                does.ranges.append(query)
                start = int(query.removeprefix("bytes=").removesuffix("-")) if does.resumes else 0
            headers = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
            self.send_response(206 if start else 200)
            for key, value in headers.items() if start else ():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            data, model = data[start:], name.endswith(".onnx")
            if model and does.stall_at:
                self.wfile.write(data[: does.stall_at.pop(0)])
                self.wfile.flush()
                time.sleep(2)
                return
            self.wfile.write(data[: does.cut_at.pop(0)] if model and does.cut_at else data)

        def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
