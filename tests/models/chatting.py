"""A chat server on loopback, by OpenAI's and Ollama's API, that misbehaves on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Chat:
    """Define what the model writes, and what its server does wrong."""

    reply: str | Callable[[str], str] = "Yes [1]."
    """The response; a function gets the message of the user."""
    piece: int = 7
    """Characters of an event."""
    statuses: list[int] = field(default_factory=list)
    """Returned next instead, each used once."""
    retry_after: str = ""
    error: str = "not now"
    rejects: tuple[str, ...] = ()
    """Parameters that are rejected with status 400."""
    body: bytes | None = None
    """Sent in place of the events."""
    content_type: str = ""
    streams: bool = True
    cut_after: int | None = None
    """Events after which the connection is closed."""
    broken_after: int | None = None
    """Events after which one is not JSON."""
    error_after: int | None = None
    """Events after which one reports an error."""
    endless: bool = False
    """Repeats the reply for ever."""
    finish: str = "stop"
    pause_seconds: float = 0.0
    """Before each event."""
    key: str = ""
    requests: list[tuple[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    """Set when the client disconnects before the end."""

    @property
    def prompts(self) -> list[str]:
        """The messages of the user, in order."""
        return [given["messages"][1]["content"] for _, given in self.requests]


@contextmanager
def chatting(does: Chat) -> Iterator[str]:
    """The address of a server that behaves so."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                does.left.set()
                self.close_connection = True

        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            does.requests.append((self.path, given))
            does.keys.append(self.headers.get("Authorization", ""))
            refused = next((name for name in does.rejects if name in given), "")
            if does.statuses:
                self._json(does.statuses.pop(0), {"error": {"message": does.error}})
            elif refused:
                message = f"Unsupported parameter: '{refused}'"
                self._json(400, {"error": {"message": message}})
            elif does.key and does.keys[-1] != f"Bearer {does.key}":
                self._json(401, {"error": {"message": f"wrong key {does.keys[-1]}"}})
            elif does.body is not None:
                self._send(200, does.body, does.content_type or "text/event-stream")
            elif not does.streams:
                reply = {"role": "assistant", "content": self._reply(given)}
                choice = {"message": reply, "finish_reason": does.finish}
                self._json(200, {"choices": [choice], "message": reply, "done": True})
            else:
                self._stream(self._reply(given))

        def _reply(self, given: Any) -> str:
            user = given["messages"][1]["content"]
            return does.reply(user) if callable(does.reply) else does.reply

        def _stream(self, reply: str) -> None:
            ollama = self.path == "/api/chat"
            kind = "application/x-ndjson" if ollama else "text/event-stream; charset=utf-8"
            self.send_response(200)
            self.send_header("Content-Type", does.content_type or kind)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            count = 0
            while True:
                for start in range(0, len(reply), does.piece):
                    if over.wait(does.pause_seconds):
                        return
                    if count == does.cut_after:
                        self.close_connection = True
                        return
                    if count == does.broken_after:
                        self._chunk(b"{nonsense\n" if ollama else b"data: {nonsense\n\n")
                        return
                    if count == does.error_after:
                        failed = json.dumps({"error": {"message": "out of memory"}}).encode()
                        self._chunk(failed + b"\n" if ollama else b"data: " + failed + b"\n\n")
                        return
                    self._event(ollama, reply[start : start + does.piece], "")
                    count += 1
                if not does.endless:
                    break
            self._event(ollama, "", does.finish)
            if not ollama:
                self._chunk(b"data: [DONE]\n\n")
            self._chunk(b"")

        def _event(self, ollama: bool, text: str, finish: str) -> None:
            if ollama:
                event = {"message": {"role": "assistant", "content": text}, "done": bool(finish)}
                line = json.dumps({**event, **({"done_reason": finish} if finish else {})}) + "\n"
            else:
                choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish or None}
                line = f": a comment\ndata: {json.dumps({'choices': [choice]})}\n\n"
            self._chunk(line.encode())

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

        def _json(self, status: int, value: Any) -> None:
            self._send(status, json.dumps(value).encode(), "application/json")

        def _send(self, status: int, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            if does.retry_after:
                self.send_header("Retry-After", does.retry_after)
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()
