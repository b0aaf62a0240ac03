"""Which library a folder belongs to; light, so that a command finds its daemon before it loads anything."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import NamedTuple

from marklight import ownership
from marklight.errors import UsageError
from marklight.ownership import Origin
from marklight.private_files import is_own

INDEX_FOLDER = ".marklight"
PROJECT_FILE = "marklight.toml"


class Place(NamedTuple):
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
        if is_library(folder):
            return Place(folder, None if asked is None or start == folder else start)
    return Place(start)


def around(folder: Path | None, name: str) -> Path | None:
    """Which folder to locate from: the one that is given; else, where the current one is in no library, that of the file that is named."""
    if folder is not None or is_library(locate(None).folder):
        return folder
    # `path`, `path#heading` or `path:10-40`, of which a file may be called as well.
    for written in (name, name.rpartition("#")[0], name.rpartition(":")[0]):
        file = Path(written)
        if written and _exists(file) and file.is_file():
            return locate(file.absolute().parent).folder
    return None


def is_library(folder: Path) -> bool:
    """Return true for a folder with a settings file or an index that this user made, complete or not."""
    if _is_own_file(folder / PROJECT_FILE):
        return True
    # A foreign index in a parent folder must not turn everything below it into one library.
    places = (folder / INDEX_FOLDER, ownership.place_away(folder))
    return any(ownership.origin(each) not in (Origin.NONE, Origin.FOREIGN) for each in places)


def _is_own_file(path: Path) -> bool:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and is_own(status)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or a NUL in it
        return False
