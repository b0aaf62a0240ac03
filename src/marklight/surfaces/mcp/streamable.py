"""MCP over HTTP: an application for one path, and what must run as long as it is served."""

from __future__ import annotations

from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from marklight.surfaces.mcp.server import LibraryServer

IDLE_SECONDS = 1800.0
"""A session of the older protocol that nobody uses for so long is closed; its client begins another."""
MOST_SESSIONS = 1000
"""At once; each holds a task and its streams."""
MOST_BYTES = 4_000_000
"""Of a request; what anybody asks is a thousandth of it."""


def make_streamable(
    server: LibraryServer,
) -> tuple[StreamableHTTPASGIApp, StreamableHTTPSessionManager]:
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
    return StreamableHTTPASGIApp(sessions), sessions
