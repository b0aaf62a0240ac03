"""Which library a folder belongs to, and where that library's index lives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from marklight.errors import SettingsError, UsageError
from marklight.settings import PROJECT_FILE, data_folder
from marklight.text import digest

INDEX_FOLDER = ".marklight"


@dataclass(frozen=True, slots=True)
class Place:
    """A library's folder, and the folder inside it that was asked for, if only a part was."""

    folder: Path
    part: Path | None = None


def locate(asked: Path | None) -> Place:
    """The nearest folder upward with an index or a settings file; else the folder itself."""
    try:
        start = (asked or Path.cwd()).expanduser()
    except FileNotFoundError:
        raise UsageError("the current folder is gone", "Change to one that exists") from None
    except RuntimeError as error:
        raise UsageError(f"{asked}: {error}", "Name the folder in full") from None
    if not _exists(start):
        raise UsageError(f"there is no folder {start}", "Give the folder that holds the documents")
    if not start.is_dir():
        raise UsageError(f"{start} is not a folder", "Give the folder that holds the file")
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / INDEX_FOLDER / "library.db").is_file() or (folder / PROJECT_FILE).is_file():
            return Place(folder, None if asked is None or start == folder else start)
    return Place(start)


def standing(collections: Mapping[str, Path], folder: Path) -> str:
    """The deepest collection that holds a folder; empty if none does."""
    holding = [name for name, root in collections.items() if folder.is_relative_to(root)]
    return max(holding, key=lambda name: len(collections[name].parts), default="")


def scope_of(collections: Mapping[str, Path], part: Path) -> tuple[tuple[str, str], ...]:
    """The documents below a folder: all of some collections, or a folder of one."""
    below = tuple((name, "") for name, root in collections.items() if root.is_relative_to(part))
    owner = standing(collections, part)
    if owner and collections[owner] != part:
        below += ((owner, part.relative_to(collections[owner]).as_posix()),)
    if not below:
        raise UsageError(
            f"{part} is in no collection of its library",
            f"The library has: {', '.join(str(root) for root in collections.values())}",
        )
    return below


def path_of(written: str, folder: Path, key: str) -> Path:
    """A path in the settings, relative to the library's folder."""
    try:
        return (folder / Path(written).expanduser()).resolve()
    except (RuntimeError, ValueError, OSError) as error:
        raise SettingsError(f"{key} = {written!r} is no path: {error}") from None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or a NUL in it
        return False


def index_address(folder: Path, engine: str) -> tuple[str, str]:
    """Where the index of a folder lives, and a notice when that is not the usual place."""
    if engine.startswith("file:"):
        named = path_of(engine.removeprefix("file:"), folder, "engine")
        if folder.is_relative_to(named):
            raise SettingsError(
                f"engine = {engine!r} would put the index among the documents",
                "Name a folder for it alone",
            )
        return f"file:{named}", ""
    if engine not in ("", "memory:"):
        raise SettingsError(f"engine cannot be {engine!r}", "It is file:PATH or memory:")
    if engine:
        return engine, ""
    beside = folder / INDEX_FOLDER
    if (beside / "library.db").is_file() or os.access(folder, os.W_OK):
        return f"file:{beside}", ""
    away = data_folder() / "libraries" / digest(str(folder))
    return f"file:{away}", f"{folder} cannot be written, so its index lives in {away}"
