"""The ASGI application: middleware, API routes, MCP over streamable HTTP, and the web page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marklight.formatting import escape_json
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.http import Address
from marklight.surfaces.http.errors import ErrorResponses, error_response, json_response
from marklight.surfaces.http.openapi import Description
from marklight.surfaces.http.page import BrowserCompression, page_routes
from marklight.surfaces.http.request_guard import RequestGuard, RequestLimits, SecurityHeaders
from marklight.surfaces.http.routes import Api, parse_query
from marklight.surfaces.mcp.server import LibraryServer, make_server


def make_app(
    host: LibraryHost,
    address: Address,
    server: LibraryServer | None = None,
) -> Starlette:
    """Create the application for a host that the caller has opened."""
    mcp, sessions = make_streamable(server or make_server(host))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with sessions.run():
            yield

    app = Starlette(
        routes=[
            *Api(host).routes(),
            Route("/openapi.json", _openapi_endpoint(host, address)),
            Route("/mcp", mcp, methods=["POST", "GET", "DELETE"]),
            *page_routes(host),
        ],
        lifespan=lifespan,
        middleware=[
            Middleware(SecurityHeaders, allow_origins=address.allow_origins),
            Middleware(ErrorResponses),
            Middleware(RequestGuard, address=address),
            Middleware(RequestLimits, timeout_seconds=host.library.serve.timeout_seconds),
            Middleware(BrowserCompression),
        ],
        exception_handlers={HTTPException: _handle_http_exception},
    )
    # A URL with an additional slash is another URL.
    app.router.redirect_slashes = False
    return app


def _openapi_endpoint(
    host: LibraryHost, address: Address
) -> Callable[[Request], Awaitable[Response]]:
    async def openapi(request: Request) -> Response:
        parse_query(request, ())
        description = Description(list(host.library.collections), bool(address.token))
        return json_response(description.document())

    return openapi


async def _handle_http_exception(_: Request, error: Exception) -> Response:
    return error_response(error)


IDLE_SECONDS = 1800.0
"""Idle time after which a session of an older protocol version is closed; its client starts another."""
MAX_SESSIONS = 1000
"""Each session holds a task and its streams."""
MAX_BODY_BYTES = 4_000_000
"""A thousand times the size of a usual request."""


def make_streamable(
    server: LibraryServer,
) -> tuple[EscapedJson, StreamableHTTPSessionManager]:
    """Return the ASGI application and its sessions, which must run (`sessions.run()`) while it serves."""
    sessions = StreamableHTTPSessionManager(
        server,
        session_idle_timeout=IDLE_SECONDS,
        max_sessions=MAX_SESSIONS,
        max_request_body_size=MAX_BODY_BYTES,
        # The request guard checks Host and Origin on every route.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return EscapedJson(StreamableHTTPASGIApp(sessions)), sessions


class EscapedJson:
    """ASGI middleware: escapes control characters in JSON bodies and events.

    The SDK sends every JSON body and every event as one message, so no character is split between two.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message | None = None

        async def escaped(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _has_length(message):
                start = message  # sent with the new length, once the body is known
                return
            if message["type"] == "http.response.body":
                body = message.get("body", b"").decode("utf-8", "surrogateescape")
                safe = escape_json(body).encode("utf-8", "surrogateescape")
                message = {**message, "body": safe}
                if start is not None:
                    await send(_with_length(start, len(safe)))
                    start = None
            await send(message)

        await self.app(scope, receive, escaped)


def _has_length(start: Message) -> bool:
    return any(name.lower() == b"content-length" for name, _ in start.get("headers", ()))


def _with_length(start: Message, length: int) -> Message:
    """Replace the Content-Length of a response whose body is a single message."""
    headers = [
        (name, str(length).encode() if name.lower() == b"content-length" else value)
        for name, value in start.get("headers", ())
    ]
    return {**start, "headers": headers}
