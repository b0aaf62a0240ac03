"""Engines by address: parse `file:PATH` and `memory:`, and open the engine that it names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from marklight.errors import SettingsError

if TYPE_CHECKING:
    from marklight.ports import Engine

SCHEMES = ("file", "memory")
PLANNED_SCHEMES = ("postgresql", "postgres")


class EngineAddress(NamedTuple):
    """Scheme and location of an index."""

    scheme: str
    folder: Path | None = None
    """Folder of the index; None if the engine does not keep it in files."""

    def __str__(self) -> str:
        return f"{self.scheme}:{self.folder or ''}"


def parse_address(address: str) -> EngineAddress:
    """Parse an address with a scheme; raise SettingsError for an unknown one."""
    scheme, _, location = address.partition(":")
    if scheme == "file" and location:
        return EngineAddress(scheme, Path(location))
    if address == "memory:":
        return EngineAddress(scheme)
    reason = "is not supported yet" if scheme in PLANNED_SCHEMES else "is not an engine"
    raise SettingsError(f"engine = {address!r} {reason}", "Use file:PATH or memory:")


def open(address: str | os.PathLike[str]) -> Engine:
    """Open the engine at an address; one without a scheme is the path of a folder."""
    schemes = tuple(f"{scheme}:" for scheme in (*SCHEMES, *PLANNED_SCHEMES))
    has_scheme = isinstance(address, str) and address.startswith(schemes)
    folder = parse_address(str(address)).folder if has_scheme else Path(address)
    if folder is None:
        from marklight.engines.memory import MemoryEngine

        return MemoryEngine()
    from marklight.engines.embedded.engine import EmbeddedEngine

    return EmbeddedEngine(folder.expanduser())
