"""HTTP requests to one host over kept connections, each bounded in total time and in size.

The standard library instead of httpx: httpx limits the wait for each read but not the time of a whole response,
and importing it takes 150 ms, a fifth of a cold search; `http.client` takes 7 ms.
"""

from __future__ import annotations

import base64
import io
import selectors
import time
import weakref
from collections.abc import Callable
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from socket import socket
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from marklight.models.remote.server import is_loopback

CONNECT_SECONDS = 5.0
"""Time limit for connecting; computing the response may take longer."""
IDLE_CONNECTIONS = 4
"""Connections kept between requests: as many as there are search threads."""
POLL_SECONDS = 0.1
"""Interval at which a wait for streamed data checks whether it was cancelled."""

Check = Callable[[], None]
"""Raises an error once the caller has gone away."""


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
        self._idle: list[HTTPConnection] = []
        self._lock = Lock()
        # Models are never closed explicitly; connections are closed when the pool is garbage-collected.
        weakref.finalize(self, _close, self._idle)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        *,
        seconds: float,
        max_bytes: int,
        check: Check | None = None,
    ) -> Response:
        """Send one request; raise OSError or HTTPException if there is no complete response in time.

        With `check`, which is called several times a second, the body of a successful response is left
        unread, for the caller to read as a stream within the same time.
        """
        deadline = time.monotonic() + seconds
        with self._lock:
            idle = self._idle.pop() if self._idle and check is None else None
        if idle is not None:
            try:
                return self._send(idle, method, path, body, headers, deadline, max_bytes)
            except ConnectionError:
                pass  # The server closed the idle connection, which is normal.
        fresh = self._open(deadline)
        return self._send(fresh, method, path, body, headers, deadline, max_bytes, check)

    def _send(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        deadline: float,
        max_bytes: int,
        check: Check | None = None,
    ) -> Response:
        def respond(sock: socket, *arguments: Any, **options: Any) -> HTTPResponse:
            return HTTPResponse(_DeadlineSocket(sock, deadline, check), *arguments, **options)  # type: ignore[arg-type]

        connection.response_class = respond  # type: ignore[assignment]
        connection.timeout = max(0.001, min(CONNECT_SECONDS, deadline - time.monotonic()))
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(max(0.001, deadline - time.monotonic()))
            target = self._origin + path if self._through_proxy(connection) else path
            connection.request(method, target, body, headers | self._proxy_headers(connection))
            raw = connection.getresponse()
            if check is not None and raw.status == 200:
                return Response(raw.status, raw.headers, b"", Stream(connection, raw))
            response = Response(raw.status, raw.headers, _read_body(raw, max_bytes))
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
        proxy = self._proxy()
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
                connection.set_tunnel(self._host, self._port, _proxy_authorization(proxy))
        return connection

    def _proxy(self) -> Any:
        """Return the proxy that the environment names for this host; None for a loopback address."""
        address = getproxies().get("https" if self._secure else "http")
        if not address or is_loopback(self._origin) or proxy_bypass(self._host):
            return None
        return urlsplit(address if "//" in address else f"http://{address}")

    def _through_proxy(self, connection: HTTPConnection) -> bool:
        return not self._secure and (connection.host, connection.port) != (self._host, self._port)

    def _proxy_headers(self, connection: HTTPConnection) -> dict[str, str]:
        proxy = self._proxy() if self._through_proxy(connection) else None
        return _proxy_authorization(proxy) if proxy else {}


def _close(connections: list[HTTPConnection]) -> None:
    for connection in connections:
        connection.close()


def _proxy_authorization(proxy: Any) -> dict[str, str]:
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


class _DeadlineSocket:
    """A socket whose response must be read by a deadline, however slowly it arrives."""

    def __init__(self, sock: socket, deadline: float, check: Check | None) -> None:
        self._sock, self._deadline, self._check = sock, deadline, check

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(_DeadlineReader(self._sock, self._deadline, self._check))


class _DeadlineReader(io.RawIOBase):
    def __init__(self, sock: socket, deadline: float, check: Check | None) -> None:
        self._sock, self._deadline, self._check = sock, deadline, check
        self._raw = sock.makefile("rb", buffering=0)

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
