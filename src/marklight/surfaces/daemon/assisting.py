"""An assistant at the door: the same MCP server as everywhere, over a connection in place of standard streams."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from marklight.surfaces.daemon.lines import BROKEN, Lines

if TYPE_CHECKING:
    from marklight.surfaces.host import Host


async def assist(host: Host, lines: Lines) -> None:
    """Serve one assistant until it hangs up."""
    from mcp.server.stdio import (
        stdio_server,  # takes a second to load, and many daemons never need it
    )

    from marklight.surfaces.mcp.server import make_server
    from marklight.surfaces.mcp.stdio import serve_streams

    text: Any = Text(lines)
    async with stdio_server(text, text) as (read, write):
        await serve_streams(make_server(host), read, write)


class Text:
    """A connection as the SDK reads a file and writes one."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def __aiter__(self) -> Text:
        return self

    async def __anext__(self) -> str:
        try:
            return (await self._lines.receive_raw()).decode("utf-8", "replace")
        except (*BROKEN, ValueError):
            raise StopAsyncIteration from None

    async def write(self, text: str) -> None:
        """A line with its end."""
        # Whoever has hung up is noticed by who reads.
        with suppress(*BROKEN, TimeoutError):
            await self._lines.send_raw(text.removesuffix("\n").encode())

    async def flush(self) -> None:
        """What is written is sent."""
