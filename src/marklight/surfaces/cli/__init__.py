"""The command line: text for people, JSON for programs, one clear line for an error."""

from __future__ import annotations

import io
import sys


def main() -> None:
    """The `marklight` command."""
    from marklight.surfaces.cli.app import run

    # Whatever the terminal or pipe says it can show: a passage holds any sign there is.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))
