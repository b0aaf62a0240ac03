"""Local-first hybrid search for Markdown."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 11):  # noqa: UP036 - a checkout can be imported by any version
    # `python -m marklight` prints this line alone; a program gets an error that it can catch.
    raise (SystemExit if sys.argv[:1] == ["-m"] else ImportError)(
        "Marklight needs Python 3.11 or later; this is Python "
        + ".".join(map(str, sys.version_info[:3]))
    )

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from marklight.answer import Answer, Hit
    from marklight.errors import (
        Busy,
        HistoryError,
        MarklightError,
        ModelError,
        NotFound,
        Refused,
        SettingsError,
        StoreError,
        UsageError,
    )
    from marklight.library import Library
    from marklight.library.transfer import MoveReport, copy_index, export_index, import_index
    from marklight.model import Chunk, Document
    from marklight.query import Filters, Query
    from marklight.report import Extract, Links, Outline, Related, Report
    from marklight.results import Commit, Commits

__version__ = "0.1.0"

_MODULES = {
    "marklight.library": ("Library",),
    "marklight.library.transfer": ("MoveReport", "copy_index", "export_index", "import_index"),
    "marklight.answer": ("Answer", "Hit"),
    "marklight.query": ("Filters", "Query"),
    "marklight.results": ("Commit", "Commits"),
    "marklight.report": ("Extract", "Links", "Outline", "Related", "Report"),
    "marklight.model": ("Chunk", "Document"),
    "marklight.errors": (
        "Busy",
        "HistoryError",
        "MarklightError",
        "ModelError",
        "NotFound",
        "Refused",
        "SettingsError",
        "StoreError",
        "UsageError",
    ),
}

__all__ = [
    "Answer",
    "Busy",
    "Chunk",
    "Commit",
    "Commits",
    "Document",
    "Extract",
    "Filters",
    "HistoryError",
    "Hit",
    "Library",
    "Links",
    "MarklightError",
    "ModelError",
    "MoveReport",
    "NotFound",
    "Outline",
    "Query",
    "Refused",
    "Related",
    "Report",
    "SettingsError",
    "StoreError",
    "UsageError",
    "copy_index",
    "export_index",
    "import_index",
    "open",
]


def open(
    folder: Path | str | Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Library:
    """Open the library of a folder, default: the one around the current folder; or one described by settings only."""
    from collections.abc import Mapping

    from marklight.library import Library

    if isinstance(folder, Mapping):
        folder, settings = None, folder
    return Library(folder, settings)


def __getattr__(name: str) -> Any:
    # Names are imported on first use, so that `import marklight` is fast.
    from importlib import import_module

    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'marklight' has no attribute {name!r}")
