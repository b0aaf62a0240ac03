"""Which library a folder belongs to, and where that library's index lives."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from marklight.errors import UsageError
from marklight.settings import PROJECT_FILE, data_folder
from marklight.text import digest

INDEX_FOLDER = ".marklight"


@dataclass(frozen=True, slots=True)
class Place:
    """A library's folder, and the part of it that was asked for (empty: all of it)."""

    folder: Path
    within: str = ""


def locate(asked: Path | None) -> Place:
    """The nearest folder upward with an index or a settings file; else the folder itself."""
    start = (asked or Path()).expanduser()
    if not start.exists():
        raise UsageError(f"there is no folder {start}", "Give the folder that holds the documents")
    if not start.is_dir():
        raise UsageError(f"{start} is not a folder", "Give the folder that holds the file")
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / INDEX_FOLDER / "library.db").is_file() or (folder / PROJECT_FILE).is_file():
            within = "" if asked is None else start.relative_to(folder).as_posix()
            return Place(folder, "" if within == "." else within)
    return Place(start)


def index_address(folder: Path, engine: str) -> tuple[str, str]:
    """Where the index of a folder lives, and a notice when that is not the usual place."""
    if engine.startswith("file:"):
        named = Path(engine.removeprefix("file:")).expanduser()
        return f"file:{named if named.is_absolute() else folder / named}", ""
    if engine:
        return engine, ""
    beside = folder / INDEX_FOLDER
    if (beside / "library.db").is_file() or os.access(folder, os.W_OK):
        return f"file:{beside}", ""
    away = data_folder() / "libraries" / digest(str(folder))
    return f"file:{away}", f"{folder} cannot be written, so its index lives in {away}"
