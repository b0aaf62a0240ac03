"""MCP over HTTP: the ASGI application for one path, its sessions, and middleware that escapes its JSON."""

from __future__ import annotations

from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marklight.escaping import escape_json
from marklight.surfaces.mcp.server import LibraryServer

IDLE_SECONDS = 1800.0
"""A session of the older protocol that nobody uses for so long is closed; its client begins another."""
MOST_SESSIONS = 1000
"""At once; each holds a task and its streams."""
MOST_BYTES = 4_000_000
"""Of a request; what anybody asks is a thousandth of it."""


def make_streamable(
    server: LibraryServer,
) -> tuple[EscapedJson, StreamableHTTPSessionManager]:
    """The ASGI application, and its sessions: `async with sessions.run()` around all serving.

    Answers come as JSON or as a stream of events, as the client accepts and the call needs.
    """
    sessions = StreamableHTTPSessionManager(
        server,
        session_idle_timeout=IDLE_SECONDS,
        max_sessions=MOST_SESSIONS,
        max_request_body_size=MOST_BYTES,
        # Host and Origin are checked before every route of ours, by the address that we are bound to.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return EscapedJson(StreamableHTTPASGIApp(sessions)), sessions


class EscapedJson:
    """ASGI middleware: escapes in JSON bodies and in events what is not safe to print.

    The SDK sends every JSON body and every event as one message, so no character is split between two.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun: Message | None = None

        async def escaped(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start" and _has_length(message):
                begun = message  # the length is that of the body, which comes next
                return
            if message["type"] == "http.response.body":
                body = message.get("body", b"").decode("utf-8", "surrogateescape")
                safe = escape_json(body).encode("utf-8", "surrogateescape")
                message = {**message, "body": safe}
                if begun is not None:
                    await send(_with_length(begun, len(safe)))
                    begun = None
            await send(message)

        await self.app(scope, receive, escaped)


def _has_length(begun: Message) -> bool:
    return any(name.lower() == b"content-length" for name, _ in begun.get("headers", ()))


def _with_length(begun: Message, length: int) -> Message:
    """Correct the length in the head of a response that has one: its body is a single message."""
    headers = [
        (name, str(length).encode() if name.lower() == b"content-length" else value)
        for name, value in begun.get("headers", ())
    ]
    return {**begun, "headers": headers}
