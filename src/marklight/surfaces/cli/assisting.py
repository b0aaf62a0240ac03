"""The command for assistants: mcp."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from marklight.surfaces.cli.options import IN_LIBRARY, SET, note, open_own


@click.command(short_help="Serve a library to an assistant, over MCP.")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@IN_LIBRARY
@SET
def mcp(path: Path | None, folder: Path | None, assignments: tuple[str, ...]) -> int:
    """Serve a library to an assistant, by the Model Context Protocol on standard input and output."""
    from marklight.surfaces.daemon.mcp_proxy import make_proxy

    asked = folder or path
    if proxy := make_proxy(asked, assignments, note):
        return proxy.run(sys.stdin.buffer, sys.stdout.buffer)
    library = open_own(asked, assignments)
    from marklight.surfaces.mcp.stdio import serve_stdio

    return serve_stdio(library)
