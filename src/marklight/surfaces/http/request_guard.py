"""Request guard (ASGI middleware): rejects foreign Host, Origin and Sec-Fetch-Site headers; checks the bearer token.

Also here: the security headers of every response, and the size and time limits of request bodies.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable
from urllib.parse import parse_qsl, urlencode

import anyio
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marklight.surfaces.http import Address
from marklight.surfaces.http.errors import BadRequest, Forbidden, TooLarge, Unauthorized

SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}
"""Defaults; a response that sets a header itself, as the web page does, keeps its own value."""
CORS_HEADERS = {
    "access-control-allow-methods": "GET, HEAD, POST, DELETE",
    "access-control-allow-headers": "Accept, Authorization, Content-Type, Last-Event-ID, Mcp-Protocol-Version, Mcp-Session-Id",
    "access-control-max-age": "600",
    "access-control-allow-private-network": "true",
}
"""Answer to a browser's preflight request from one of `serve.allow_origins`; cookies are not allowed, only the token."""
EXPOSED_HEADERS = "Mcp-Session-Id, Retry-After, WWW-Authenticate"
HEALTH = "/health"
"""Needs no token, so that monitoring can check whether the server runs."""
PAGE = "/"
"""May be opened by a link from another site, or with the token in the URL."""
SAME_SITE_VALUES = ("same-origin", "none")
"""Accepted Sec-Fetch-Site values: our page, or the user. `same-site` is another port of this machine."""
MAX_BODY_BYTES = 1_000_000
"""Ten times the longest query."""
MAX_TARGET_BYTES = 65_536
"""Path and query string; longer queries need POST."""
MAX_HEAD_BYTES = 131_072
"""Request line and headers."""
DRAIN_BYTES, DRAIN_SECONDS = 8_000_000, 1.0
"""Read from a body that is too large: a client that is cut off while it sends cannot read the error."""
CLOSE = {"connection": "close"}
FOREIGN = (
    "Requests from other websites are not allowed",
    "To allow one, add its origin to serve.allow_origins",
)


class SecurityHeaders:
    """Adds the security headers to every response, and those of CORS for the allowed origins."""

    def __init__(self, app: ASGIApp, allow_origins: Collection[str]) -> None:
        self.app = app
        self.allow_origins = allow_origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if self.allow_origins:
                    headers.add_vary_header("Origin")
                for origin in _header_values(scope, b"origin"):
                    if origin in self.allow_origins:
                        headers["access-control-allow-origin"] = origin
                        headers["access-control-expose-headers"] = EXPOSED_HEADERS
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers if scope["type"] == "http" else send)


class RequestGuard:
    """Rejects requests of other sites and, if a token is set, requests without it; on every path."""

    def __init__(self, app: ASGIApp, address: Address) -> None:
        self.app = app
        self.address = address
        self._cookie = f"marklight-{address.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self._check_target(scope)
        self._check_host_and_origin(scope)
        if self._is_preflight(scope):
            await Response(status_code=204, headers=CORS_HEADERS)(scope, receive, send)
            return
        if self.address.token and scope["path"] != HEALTH:
            if login := self._login(scope):
                await login(scope, receive, send)
                return
            self._check_token(scope)
        await self.app(scope, receive, send)

    def _check_target(self, scope: Scope) -> None:
        """Reject targets with a host of their own (as sent to a proxy), and other HTTP versions."""
        if scope["http_version"] not in ("1.0", "1.1"):
            raise BadRequest("Unsupported HTTP version", "Use HTTP/1.1")
        if not scope["raw_path"].startswith(b"/"):
            raise BadRequest("The request target must be a path such as /api/search")

    def _check_host_and_origin(self, scope: Scope) -> None:
        """Reject foreign Host headers (DNS rebinding) and requests of other sites' pages (CSRF)."""
        hosts = _header_values(scope, b"host")
        allowed = self._host_names(scope)
        if len(hosts) != 1 or hosts[0].lower() not in allowed:
            raise Forbidden(
                "The Host header does not name this server",
                f"Use the URL {self.address.url}, or add the name to serve.allow_hosts",
            )
        foreign = self._foreign_origins(scope)
        if any(origin not in self.address.allow_origins for origin in foreign):
            raise Forbidden(*FOREIGN)
        if foreign:
            return
        sites = _header_values(scope, b"sec-fetch-site")
        if any(site not in SAME_SITE_VALUES for site in sites) and not _is_page_visit(scope):
            raise Forbidden(*FOREIGN)

    def _foreign_origins(self, scope: Scope) -> list[str]:
        """Return the origins of a request that are not this server."""
        ours = {f"{scope['scheme']}://{name}" for name in self._host_names(scope)}
        return [origin for origin in _header_values(scope, b"origin") if origin not in ours]

    def _is_preflight(self, scope: Scope) -> bool:
        """Return true if a browser checks whether a page of an allowed origin may send a request."""
        origins = _header_values(scope, b"origin")
        return (
            scope["method"] == "OPTIONS"
            and bool(_header_values(scope, b"access-control-request-method"))
            and bool(origins)
            and all(origin in self.address.allow_origins for origin in origins)
        )

    def _host_names(self, scope: Scope) -> frozenset[str]:
        server = scope.get("server")
        if not self.address.is_wildcard or not server:
            return self.address.host_names
        # The IP address of this very connection, which no DNS record can redirect.
        return self.address.host_names | set(
            self.address.with_port(server[0].removeprefix("::ffff:"))
        )

    def _check_token(self, scope: Scope) -> None:
        tokens = [
            value[7:]
            for value in _header_values(scope, b"authorization")
            if value[:7].lower() == "bearer "
        ]
        if any(_is_equal(token, self.address.token) for token in tokens):
            return
        cookies = [] if self._foreign_origins(scope) else _cookies(scope, self._cookie)
        if any(_is_equal(cookie, self.address.cookie_key) for cookie in cookies):
            return
        raise Unauthorized(
            "This server requires a token",
            "Send it as `Authorization: Bearer …`, or open the page once with /?token=…",
            {"www-authenticate": 'Bearer realm="marklight"'},
        )

    def _login(self, scope: Scope) -> Response | None:
        """Exchange a token in the page's URL for a session cookie, and redirect to the URL without it."""
        if scope["method"] != "GET" or scope["path"] != PAGE:
            return None
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in pairs if name == "token"]
        if not any(_is_equal(token, self.address.token) for token in tokens):
            return None
        rest = urlencode([pair for pair in pairs if pair[0] != "token"])
        cookie = f"{self._cookie}={self.address.cookie_key}; Path=/; HttpOnly; SameSite=Strict"
        return Response(
            status_code=303,
            headers={"location": f"{PAGE}?{rest}" if rest else PAGE, "set-cookie": cookie},
        )


def _is_page_visit(scope: Scope) -> bool:
    """Return true for a link to the page, which contains nothing before its own requests."""
    return (
        scope["method"] == "GET"
        and scope["path"] == PAGE
        and _header_values(scope, b"sec-fetch-mode") == ["navigate"]
        and _header_values(scope, b"sec-fetch-dest") == ["document"]
    )


def _header_values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _cookies(scope: Scope, name: str) -> Iterable[str]:
    for header in _header_values(scope, b"cookie"):
        for pair in header.split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name:
                yield value


def _is_equal(received: str, expected: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(received.encode("latin-1", "replace"), expected.encode())


class RequestLimits:
    """Limits the size of requests, and reads the whole body within the time limit before the app runs."""

    def __init__(self, app: ASGIApp, timeout_seconds: float) -> None:
        self.app = app
        self.timeout_seconds = timeout_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        size = len(scope["raw_path"]) + len(scope["query_string"])
        if size > MAX_TARGET_BYTES:
            raise BadRequest(
                f"The URL is too long: at most {MAX_TARGET_BYTES:,} bytes", "Use POST instead"
            )
        size += len(scope["method"]) + sum(
            len(name) + len(value) for name, value in scope["headers"]
        )
        if size > MAX_HEAD_BYTES:
            raise BadRequest(
                f"The request headers are too large: at most {MAX_HEAD_BYTES:,} bytes",
                headers=CLOSE,
            )
        body = await self._read_body(scope, receive)
        body_sent = False

        async def receive_body() -> Message:
            nonlocal body_sent
            if body_sent:
                return await receive()
            body_sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, receive_body, send)

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes:
        headers = dict(scope["headers"])
        length, encoding = headers.get(b"content-length"), headers.get(b"transfer-encoding")
        if encoding is not None and length is not None:
            # Request smuggling: two servers would disagree where the body ends.
            raise BadRequest(
                "Send either Content-Length or Transfer-Encoding, not both", headers=CLOSE
            )
        if encoding is None and length is None:
            return b""
        if length is not None and int(length) > MAX_BODY_BYTES:
            if b"expect" not in headers:
                await _drain(receive)
            raise _too_large()
        body = bytearray()
        with anyio.move_on_after(self.timeout_seconds) as timeout:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    break
                body += message.get("body", b"")
                if len(body) > MAX_BODY_BYTES:
                    await _drain(receive)
                    raise _too_large()
                if not message.get("more_body", False):
                    return bytes(body)
        if timeout.cancelled_caught:
            raise BadRequest(
                "The request body was not received in time", "Send it in one go", CLOSE
            )
        raise BadRequest("The request body is incomplete", headers=CLOSE)


def _too_large() -> TooLarge:
    return TooLarge(f"The request body is too large: at most {MAX_BODY_BYTES:,} bytes", "", CLOSE)


async def _drain(receive: Receive) -> None:
    left = DRAIN_BYTES
    with anyio.move_on_after(DRAIN_SECONDS):
        while left > 0:
            message = await receive()
            left -= len(message.get("body", b"")) or 1
            if not message.get("more_body", False):
                return
