"""A model server on loopback with several APIs that can be slow, fail and return invalid responses."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from marklight.models.fake import FakeEmbedder
from marklight.text.analyzer import analyze

Wrong = Callable[[dict[str, Any]], Any]


@dataclass
class Behaviour:
    """What the server is, and what it does wrong."""

    dimension: int = 64
    key: str = ""
    """What it wants as a bearer token."""
    digest: str = "sha256:one"
    context_length: int = 2048
    shuffled: bool = False
    """Results are returned in another order, with their index."""
    longest: int = 0
    """Characters of a text beyond which it is refused, and how: any status."""
    too_long: tuple[int, str] = (400, "the input length exceeds the context length")
    statuses: list[int] = field(default_factory=list)
    """Answered next instead, each used once; 0 means answer as usual."""
    retry_after: str = ""
    body: bytes | None = None
    """Answered with status 200 in place of everything."""
    wrong: Wrong | None = None
    """What to make of the right answer before it is sent."""
    cut_at: list[int] = field(default_factory=list)
    """Bytes of the body after which the connection is closed, for the next answers."""
    drip_seconds: float = 0.0
    """Between two bytes."""
    waits: threading.Event | None = None
    """Answers only when this is set."""
    redirect: str = ""
    says_key: bool = False
    """Refuses every key, and repeats it."""
    reranks_at: tuple[str, ...] = ("/v1/rerank", "/rerank")
    texts_only: bool = False
    """Reranks as TEI does: other names, another shape."""
    logits: bool = False
    a_passage_seconds: float = 0.0
    """Reranking takes so long for each passage."""
    requests: list[tuple[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    connections: int = 0

    def query(self, path: str) -> list[Any]:
        return [given for at, given in self.requests if at == path]


@contextmanager
def serving(does: Behaviour) -> Iterator[str]:
    """The address of a server that behaves so."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # Else each answer, in two pieces, takes 40 ms.

        def log_message(self, *_: object) -> None:
            pass

        def setup(self) -> None:
            does.connections += 1
            super().setup()

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                self.close_connection = True  # the client has disconnected

        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, given: Any) -> None:
            does.requests.append((self.path, given))
            does.keys.append(self.headers.get("Authorization", ""))
            if does.waits is not None:
                does.waits.wait(30)
            if does.redirect:
                self._send(307, b"", {"Location": does.redirect})
                return
            status = does.statuses.pop(0) if does.statuses else 0
            if status:
                headers = {"Retry-After": does.retry_after} if does.retry_after else {}
                self._json(status, {"error": {"message": "not now"}}, headers)
            elif does.says_key or (does.key and does.keys[-1] != f"Bearer {does.key}"):
                self._json(401, {"error": {"message": f"wrong key: {does.keys[-1]}"}})
            elif does.body is not None:
                self._send(200, does.body)
            else:
                self._json(*self._told(given))

        def _told(self, given: Any) -> tuple[int, Any]:
            if self.path == "/v1/models":
                return 200, {"data": [{"id": "m", "max_model_len": does.context_length}]}
            if self.path == "/api/tags":
                return 200, {"models": [{"name": "m:latest", "digest": does.digest}]}
            if self.path == "/api/show":
                reported = {
                    "general.architecture": "bert",
                    "bert.context_length": does.context_length,
                }
                return 200, {"model_info": reported}
            if self.path in ("/v1/embeddings", "/api/embed"):
                return self._embeddings(given)
            if self.path in does.reranks_at:
                return self._scores(given)
            return 404, {"error": f"no such path {self.path}"}

        def _embeddings(self, given: Any) -> tuple[int, Any]:
            if does.longest and any(len(text) > does.longest for text in given["input"]):
                return does.too_long[0], {"error": {"message": does.too_long[1]}}
            dimension = given.get("dimensions", does.dimension)
            # Not of length one: that is for us to do.
            rows = 3.0 * FakeEmbedder(dimension=dimension).embed_passages(given["input"])
            if self.path == "/api/embed":
                return 200, {"model": given["model"], "embeddings": rows.tolist()}
            items = [{"index": at, "embedding": row.tolist()} for at, row in enumerate(rows)]
            return 200, {"object": "list", "data": items[::-1] if does.shuffled else items}

        def _scores(self, given: Any) -> tuple[int, Any]:
            if does.texts_only and "texts" not in given:
                return 422, {"error": "missing field `texts`", "error_type": "Validation"}
            texts = given["texts"] if does.texts_only else given["documents"]
            time.sleep(does.a_passage_seconds * len(texts))
            scores = [shared(given["query"], text) for text in texts]
            if does.logits:
                scores = [20 * score - 10 for score in scores]
            name = "score" if does.texts_only else "relevance_score"
            found = [{"index": at, name: score} for at, score in enumerate(scores)]
            found.sort(key=lambda one: -float(one[name]))
            return 200, found if does.texts_only else {"results": found}

        def _json(self, status: int, reported: Any, headers: dict[str, str] | None = None) -> None:
            if does.wrong is not None and status == 200:
                reported = does.wrong(reported)
            self._send(status, json.dumps(reported).encode(), headers)

        def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if does.cut_at:
                self.wfile.write(body[: does.cut_at.pop(0)])
                self.close_connection = True
            elif does.drip_seconds:
                for byte in body:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    time.sleep(does.drip_seconds)
            else:
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        if does.waits is not None:
            does.waits.set()
        server.shutdown()
        thread.join()
        server.server_close()


def shared(question: str, text: str) -> float:
    """The share of a question's words that a text has."""
    query = set(analyze(question))
    return len(query & set(analyze(text))) / max(1, len(query))


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)
