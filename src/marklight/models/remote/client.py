"""JSON client of a model server: bounded in time and size, with retries, kept connections and readable errors.

The standard library instead of httpx: httpx limits the wait for each read but not the time of a whole response,
and importing it takes 150 ms, a fifth of a cold search; `http.client` takes 7 ms.
"""

from __future__ import annotations

import base64
import io
import json
import random
import re
import selectors
import time
import weakref
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import socket
from threading import Lock
from typing import Any, NamedTuple, TypeVar
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

from marklight.errors import Message, ModelServerError
from marklight.lazy import dataclass
from marklight.models.remote import Key, Server, is_loopback

Decoded = TypeVar("Decoded")

RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504, 529})
"""Statuses of failures that may be temporary."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
MAX_REDIRECTS = 3
PAUSE_STEP_SECONDS = 0.1
MAX_ERROR_BYTES = 1_000_000
HINT = Message(
    "Is the server running? Without it, --mode keyword still works",
    "The mode keyword works without it",
)

_TOO_LONG = re.compile(
    r"too (long|large|many)|exceed|maximum (context|sequence|input)|must have less than|batch[ _]size"
    r"|context (length|size|window)|\bNaN\b",
    re.IGNORECASE,
)
"""Error messages of servers about input that is too long; each server has its own, one with status
500. Ollama cannot serialise a vector with NaN, which for some texts has the same cause."""
CONNECT_SECONDS = 5.0
"""Time limit for connecting; computing the response may take longer."""
IDLE_CONNECTIONS = 4
"""Connections kept between requests: as many as there are search threads."""
POLL_SECONDS = 0.1
"""Interval at which a wait for streamed data checks whether it was cancelled."""

Check = Callable[[], None]
"""Raises an error once the caller has gone away."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Time limits and number of retries of a request."""

    seconds: float
    """Time limit of one attempt."""
    retries: int
    total_seconds: float

    def limited(self, seconds: float) -> RetryPolicy:
        """Return a policy with at most this many seconds in total and one retry."""
        return RetryPolicy(min(self.seconds, seconds), min(self.retries, 1), seconds)


class RequestRejected(ModelServerError):
    """The server returned an error status."""

    def __init__(self, message: str, hint: str, status: int, reason: str) -> None:
        super().__init__(message, hint)
        self.status, self.reason = status, reason

    @property
    def is_too_long(self) -> bool:
        """Return whether a shorter input may be accepted."""
        return self.status in (400, 413, 422, 500) and bool(_TOO_LONG.search(self.reason))


class Client:
    """Sends JSON requests to one server."""

    def __init__(self, server: Server, hint: str = HINT) -> None:
        self.server = server
        self.hint = hint
        """Hint for a server that cannot be reached."""
        self._connections = ConnectionPool(server.base)

    def request(
        self,
        path: str,
        expected: type[Decoded],
        payload: object = None,
        *,
        policy: RetryPolicy,
        max_bytes: int = 1_000_000,
    ) -> Decoded:
        """Send a request and return the response, decoded as a type; GET without a payload, else POST.

        The path is appended to the server's base URL; one with two slashes, to the part before `/v1`.
        """
        response = self._with_retries(self._prepared(path, payload, max_bytes), policy)
        if response.status != 200:
            raise self._rejected(response)
        try:
            return msgspec.json.decode(response.body, type=expected)
        except msgspec.ValidationError as error:
            raise self.other_api(error) from None
        except (ValueError, RecursionError):
            raise self.not_json(response.body) from None

    def stream(
        self, path: str, payload: object, *, policy: RetryPolicy, check: Check
    ) -> tuple[Stream, str]:
        """Send a request; return the unread body and its content type.

        The time limit of the policy includes reading the body. `check` is called several times a second.
        """
        request = self._prepared(path, payload, MAX_ERROR_BYTES, check)
        request.headers["Accept"] = "text/event-stream, application/x-ndjson, application/json"
        response = self._with_retries(request, policy)
        if response.stream is None:
            raise self._rejected(response)
        content_type = response.headers.get("Content-Type") or ""
        return response.stream, content_type.partition(";")[0].strip().lower()

    def other_api(self, error: object) -> ModelServerError:
        """Return the error for JSON that is not of this API."""
        return ModelServerError(
            f"The response of {self.server} is not of this API: {error}",
            "Check the address, and that the model is of this kind",
        )

    def not_json(self, body: bytes) -> ModelServerError:
        """Return the error for a response that is not JSON."""
        return ModelServerError(
            f"{self.server} returned {_content_kind(body)} instead of JSON",
            "Check the address: it must be that of the API, not of a web page",
        )

    def _prepared(
        self, path: str, payload: object, max_bytes: int, check: Check | None = None
    ) -> Request:
        body = None if payload is None else json.dumps(payload).encode()
        key = self.server.key.read()
        headers = {
            "User-Agent": "marklight",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            **({"Content-Type": "application/json"} if body is not None else {}),
            **({"Authorization": f"Bearer {key}"} if key else {}),
        }
        base = self.server.base
        url = base.removesuffix("/v1") + path[1:] if path.startswith("//") else base + path
        return Request(url, body, headers, max_bytes, check)

    def _with_retries(self, request: Request, policy: RetryPolicy) -> Response:
        deadline = time.monotonic() + policy.total_seconds
        for attempt in range(policy.retries + 1):
            seconds = min(policy.seconds, deadline - time.monotonic())
            retry_after: float | None = None
            try:
                response = self._send(request, seconds)
                if response.status not in RETRIED_STATUSES or _TOO_LONG.search(
                    _error_message(response, self.server.key)
                ):
                    return response
                failure: ModelServerError = self._rejected(response)
                retry_after = _retry_after(response)
            except (OSError, HTTPException, ValueError) as error:
                failure = self.connection_failed(error)
                if (
                    isinstance(error, ResponseTooLarge)
                    or type(error).__name__ == "SSLCertVerificationError"
                ):
                    raise failure from None
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**attempt)
            # Jitter, so that clients that were rejected together do not return together.
            pause = retry_after if retry_after is not None else pause * random.uniform(0.5, 1.0)
            if attempt == policy.retries or time.monotonic() + pause >= deadline:
                # From None: chained socket errors are long and add nothing.
                raise failure from None
            _sleep(pause, request.check)
        raise AssertionError("the last attempt returns or raises")

    def _send(self, request: Request, seconds: float) -> Response:
        """Send a request and follow redirects within the same host; the key is for that host only."""
        deadline = time.monotonic() + seconds
        for _ in range(MAX_REDIRECTS + 1):
            parts = urlsplit(request.url)
            response = self._connections.request(request, deadline)
            if response.status not in (301, 302, 303, 307, 308):
                return response
            target = urlsplit(urljoin(request.url, response.headers.get("Location", "")))
            if (target.scheme, target.netloc) != (parts.scheme, parts.netloc):
                other = f"{target.scheme}://{target.hostname}"
                raise ModelServerError(
                    f"{self.server} redirects to {other}, which is not followed",
                    "If that is the right server, use it as the address",
                )
            request = request._replace(url=target.geturl())
        raise ModelServerError(
            f"{self.server} redirects more than {MAX_REDIRECTS} times", "Check the address"
        )

    def _rejected(self, response: Response) -> RequestRejected:
        reason = _error_message(response, self.server.key)
        suffix = f" (status {response.status})" + (f": {reason}" if reason else "")
        if response.status in (401, 403):
            message = f"{self.server} requires a valid API key{suffix}"
            hint = (
                "Set key_variable to the name of the environment variable that contains it, or"
                " key_command to a command that prints it"
            )
            return RequestRejected(message, hint, response.status, reason)
        hint = {
            404: f"Check that the server has this model. With Ollama: ollama pull {self.server.model}"
            if self.server.kind == "ollama"
            else "Check that the server has this model, and the address",
            429: "It is overloaded, or the account's limit is reached; try again later",
        }.get(response.status, "See the server's log" if response.status >= 500 else "")
        message = f"{self.server} rejected the request{suffix}"
        return RequestRejected(message, hint, response.status, reason)

    def connection_failed(self, error: Exception) -> ModelServerError:
        """Return the error for a request that got no complete response."""
        if isinstance(error, ResponseTooLarge):
            return ModelServerError(f"{self.server}: {error}", "Check the address")
        if isinstance(error, TimeoutError):
            return ModelServerError(f"{self.server} does not respond in time", self.hint)
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        line = readable_reason(reason, self.server.key)
        return ModelServerError(f"{self.server} cannot be reached: {line}", self.hint)


def _sleep(seconds: float, check: Check | None) -> None:
    """Sleep; `check` may raise to end it early."""
    if check is None:
        time.sleep(seconds)
        return
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        check()
        time.sleep(min(left, PAUSE_STEP_SECONDS))


def _error_message(response: Response, key: Key) -> str:
    """Return the error message of a response as one short line; every server puts it elsewhere."""
    try:
        content = json.loads(response.body)
    except (ValueError, RecursionError):
        text = response.body[:2000].decode("utf-8", "replace")
        return _content_kind(response.body) if "<" in text else readable_reason(text, key)
    for name in ("error", "message", "detail"):
        if isinstance(content, dict) and content.get(name):
            content = content[name]
    return readable_reason(content if isinstance(content, str) else json.dumps(content), key)


def readable_reason(text: str, key: Key) -> str:
    """Return a text of the server as one short line without the key."""
    # The key is removed before truncation: half a key is a leak too.
    printable = "".join(char if char.isprintable() else " " for char in key.redact(text))
    return " ".join(printable.split())[:200]


def _content_kind(body: bytes) -> str:
    start = body[:200].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "a web page"
    return "something else" if start else "nothing"


def _retry_after(response: Response) -> float | None:
    """Return the Retry-After header in seconds, given as a number or a date."""
    value = (response.headers.get("Retry-After") or "").strip()
    try:
        seconds = float(value) if value.isdecimal() else parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError):
        return None
    return seconds if value.isdecimal() else max(0.0, seconds - time.time())


class Stream:
    """Body of a response that is read line by line while it arrives; the connection is not reused."""

    def __init__(self, connection: HTTPConnection, raw: HTTPResponse) -> None:
        self._connection, self._raw = connection, raw

    def line(self, max_bytes: int) -> bytes:
        """Return the next line with its line break; empty at the end."""
        line = self._raw.readline(max_bytes + 1)
        if len(line) > max_bytes:
            raise ResponseTooLarge(f"a line of the response has more than {max_bytes} bytes")
        return line

    def read(self, max_bytes: int) -> bytes:
        """Return the rest of the body."""
        return _read_body(self._raw, max_bytes)

    def close(self) -> None:
        """Close the connection, which cancels what the server has not sent yet."""
        self._raw.close()
        self._connection.close()


class Request(NamedTuple):
    """A request: POST with a body, else GET."""

    url: str
    body: bytes | None
    headers: dict[str, str]
    max_bytes: int
    """Limit of the response."""
    check: Check | None = None
    """Called several times a second; then the body of a successful response is left unread."""

    @property
    def target(self) -> str:
        """Return the path and the query."""
        parts = urlsplit(self.url)
        return parts.path + (f"?{parts.query}" if parts.query else "")


class Response(NamedTuple):
    """A response, whatever its status."""

    status: int
    headers: Any
    body: bytes
    stream: Stream | None = None
    """Unread body of a successful response, if the caller requested it."""


class ResponseTooLarge(OSError):
    """A response with more bytes than any valid one."""


class ConnectionPool:
    """Sends requests to one host; safe to use from several threads."""

    def __init__(self, base: str) -> None:
        parts = urlsplit(base)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._proxy = _proxy(parts)
        self._idle: list[HTTPConnection] = []
        self._lock = Lock()
        # Models are never closed explicitly; connections are closed when the pool is garbage-collected.
        weakref.finalize(self, _close, self._idle)

    def request(self, request: Request, deadline: float) -> Response:
        """Send one request; raise OSError or HTTPException if there is no complete response in time."""
        with self._lock:
            idle = self._idle.pop() if self._idle and request.check is None else None
        if idle is not None:
            try:
                return self._send(idle, request, deadline)
            except ConnectionError:
                pass  # The server closed the idle connection, which is normal.
        return self._send(self._open(deadline), request, deadline)

    def _send(self, connection: HTTPConnection, request: Request, deadline: float) -> Response:
        def respond(sock: socket, *arguments: Any, **options: Any) -> HTTPResponse:
            limited = _DeadlineReader(sock, deadline, request.check)
            return HTTPResponse(limited, *arguments, **options)  # type: ignore[arg-type]

        connection.response_class = respond  # type: ignore[assignment]
        connection.timeout = max(0.001, min(CONNECT_SECONDS, deadline - time.monotonic()))
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(max(0.001, deadline - time.monotonic()))
            target, headers = request.target, request.headers
            if self._proxy and not self._secure:
                target, headers = self._origin + target, headers | _authorization(self._proxy)
            method = "POST" if request.body else "GET"
            connection.request(method, target, request.body, headers)
            raw = connection.getresponse()
            if request.check is not None and raw.status == 200:
                return Response(raw.status, raw.headers, b"", Stream(connection, raw))
            response = Response(raw.status, raw.headers, _read_body(raw, request.max_bytes))
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if not raw.will_close and len(self._idle) < IDLE_CONNECTIONS:
                self._idle.append(connection)
                return response
        connection.close()
        return response

    def _open(self, deadline: float) -> HTTPConnection:
        seconds = max(0.001, min(CONNECT_SECONDS, deadline - time.monotonic()))
        proxy = self._proxy
        host, port = (
            (proxy.hostname or "", proxy.port or 8080) if proxy else (self._host, self._port)
        )
        if not self._secure:
            connection = HTTPConnection(host, port, timeout=seconds)
        else:
            import ssl

            context = ssl.create_default_context()
            connection = HTTPSConnection(host, port, timeout=seconds, context=context)
            if proxy:
                connection.set_tunnel(self._host, self._port, _authorization(proxy))
        return connection


def _proxy(parts: SplitResult) -> SplitResult | None:
    """Return the proxy that the environment names for an address; None for a loopback address."""
    address = getproxies().get(parts.scheme)
    if not address or is_loopback(parts.geturl()) or proxy_bypass(parts.hostname or ""):
        return None
    return urlsplit(address if "//" in address else f"http://{address}")


def _close(connections: list[HTTPConnection]) -> None:
    for connection in connections:
        connection.close()


def _authorization(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    credentials = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}"}


def _read_body(response: HTTPResponse, max_bytes: int) -> bytes:
    if response.length is not None and response.length > max_bytes:
        raise ResponseTooLarge(f"the response has {response.length} bytes, more than {max_bytes}")
    body = response.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise ResponseTooLarge(f"the response has more than {max_bytes} bytes")
    if response.length:
        raise ConnectionError("the response is incomplete")
    return body


class _DeadlineReader(io.RawIOBase):
    """A socket whose response must be read by a deadline, however slowly it arrives."""

    def __init__(self, sock: socket, deadline: float, check: Check | None) -> None:
        self._sock, self._deadline, self._check = sock, deadline, check
        self._raw = sock.makefile("rb", buffering=0)

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._check is not None:
            self._wait(self._check)
        self._sock.settimeout(self._left())
        return self._raw.readinto(buffer)

    def _wait(self, check: Check) -> None:
        """Wait for data without reading: a socket file cannot be read again after a timeout."""
        check()
        if getattr(self._sock, "pending", int)():  # TLS has decrypted some already
            return
        with selectors.DefaultSelector() as selector:
            selector.register(self._sock, selectors.EVENT_READ)
            while not selector.select(min(POLL_SECONDS, self._left())):
                check()

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def close(self) -> None:
        self._raw.close()
        super().close()
