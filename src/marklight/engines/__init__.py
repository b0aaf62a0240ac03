"""Where the index lives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from marklight.errors import SettingsError

if TYPE_CHECKING:
    from marklight.ports import Engine


def open(address: str | os.PathLike[str]) -> Engine:
    """The engine at this address: `memory:`, `file:PATH`, or the path of a folder."""
    where = os.fspath(address)
    if where == "memory:":
        from marklight.engines.memory import MemoryEngine

        return MemoryEngine()
    if where.startswith(("postgresql:", "postgres:")):
        raise SettingsError(f"{where!r} is not an engine yet", "Use `file:PATH` or `memory:`")
    from marklight.engines.embedded.engine import EmbeddedEngine

    return EmbeddedEngine(Path(where.removeprefix("file:")).expanduser())
