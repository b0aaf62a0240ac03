"""The command for assistants: mcp."""

from __future__ import annotations

from pathlib import Path

import click

from marklight.surfaces.cli.options import IN_LIBRARY, SET, open_library


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@IN_LIBRARY
@SET
def mcp(path: Path | None, folder: Path | None, assignments: tuple[str, ...]) -> int:
    """Serve a library to an assistant, by the Model Context Protocol on standard input and output."""
    library = open_library(folder or path, assignments)
    from marklight.surfaces.mcp.stdio import serve_stdio

    return serve_stdio(library)
