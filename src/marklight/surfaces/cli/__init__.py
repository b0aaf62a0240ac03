"""The command line: text for people, JSON for programs, one clear line for an error."""

from __future__ import annotations

import sys


def main() -> None:
    """The `marklight` command."""
    from marklight.surfaces.cli.app import run

    sys.exit(run(sys.argv[1:]))
