"""MCP over streamable HTTP: the ASGI application, its sessions, and middleware that escapes its JSON."""

from __future__ import annotations

from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marklight.formatting import escape_json
from marklight.surfaces.mcp.server import LibraryServer

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
