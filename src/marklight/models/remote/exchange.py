"""One request and its answer over a connection that is kept: bounded in time and size, sent to no other host."""

from __future__ import annotations

import base64
import io
import time
import weakref
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from socket import socket
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from marklight.models.remote.server import is_loopback

CONNECT_SECONDS = 5.0
"""To reach a server or know that it is not there; what it then computes may take longer."""
IDLE = 4
"""Connections kept between requests: as many as there are threads that search."""


class Reply(NamedTuple):
    """What came back, whatever it is."""

    status: int
    headers: Any
    body: bytes


class TooLarge(OSError):
    """An answer that cannot be one."""


class Exchange:
    """Requests to one host; safe to use from several threads."""

    def __init__(self, base: str) -> None:
        parts = urlsplit(base)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._idle: list[HTTPConnection] = []
        self._guard = Lock()
        # Nobody closes a model; what it holds is closed when it is no longer used.
        weakref.finalize(self, _close, self._idle)

    def __call__(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        *,
        seconds: float,
        most: int,
    ) -> Reply:
        """One request; raises OSError or HTTPException when there is no whole answer in time."""
        until = time.monotonic() + seconds
        with self._guard:
            kept = self._idle.pop() if self._idle else None
        if kept is not None:
            try:
                return self._ask(kept, method, path, body, headers, until, most)
            except ConnectionError:
                pass  # The server closed it while it was idle, which says nothing about the server.
        fresh = self._open(until)
        return self._ask(fresh, method, path, body, headers, until, most)

    def _ask(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        until: float,
        most: int,
    ) -> Reply:
        def respond(sock: socket, *given: Any, **more: Any) -> HTTPResponse:
            return HTTPResponse(_Timed(sock, until), *given, **more)  # type: ignore[arg-type]

        connection.response_class = respond  # type: ignore[assignment]
        connection.timeout = max(0.001, min(CONNECT_SECONDS, until - time.monotonic()))
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(max(0.001, until - time.monotonic()))
            target = self._origin + path if self._by_proxy(connection) else path
            connection.request(method, target, body, headers | self._proxy_headers(connection))
            response = connection.getresponse()
            reply = Reply(response.status, response.headers, _whole(response, most))
        except BaseException:
            connection.close()
            raise
        with self._guard:
            if not response.will_close and len(self._idle) < IDLE:
                self._idle.append(connection)
                return reply
        connection.close()
        return reply

    def _open(self, until: float) -> HTTPConnection:
        seconds = max(0.001, min(CONNECT_SECONDS, until - time.monotonic()))
        proxy = self._proxy()
        host, port = (
            (proxy.hostname or "", proxy.port or 8080) if proxy else (self._host, self._port)
        )
        if not self._secure:
            connection = HTTPConnection(host, port, timeout=seconds)
        else:
            import ssl

            secure = ssl.create_default_context()
            connection = HTTPSConnection(host, port, timeout=seconds, context=secure)
            if proxy:
                connection.set_tunnel(self._host, self._port, _authorised(proxy))
        return connection

    def _proxy(self) -> Any:
        """The proxy that the environment names for this host; none for this machine itself."""
        found = getproxies().get("https" if self._secure else "http")
        if not found or is_loopback(self._origin) or proxy_bypass(self._host):
            return None
        return urlsplit(found if "//" in found else f"http://{found}")

    def _by_proxy(self, connection: HTTPConnection) -> bool:
        return not self._secure and (connection.host, connection.port) != (self._host, self._port)

    def _proxy_headers(self, connection: HTTPConnection) -> dict[str, str]:
        proxy = self._proxy() if self._by_proxy(connection) else None
        return _authorised(proxy) if proxy else {}


def _close(connections: list[HTTPConnection]) -> None:
    for connection in connections:
        connection.close()


def _authorised(proxy: Any) -> dict[str, str]:
    if not proxy.username:
        return {}
    name = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(name.encode()).decode()}"}


def _whole(response: HTTPResponse, most: int) -> bytes:
    if response.length is not None and response.length > most:
        raise TooLarge(f"its answer has {response.length} bytes, more than {most}")
    body = response.read(most + 1)
    if len(body) > most:
        raise TooLarge(f"its answer has more than {most} bytes")
    if response.length:
        raise ConnectionError("its answer breaks off")
    return body


class _Timed:
    """A socket whose answer must be read by a certain time, however slowly it drips."""

    def __init__(self, sock: socket, until: float) -> None:
        self._sock, self._until = sock, until

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(_Drip(self._sock, self._until))


class _Drip(io.RawIOBase):
    def __init__(self, sock: socket, until: float) -> None:
        self._sock, self._until = sock, until
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
