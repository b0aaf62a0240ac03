"""Locate libraries: the library of a folder, and the address of its index.

Imports little, so that a command finds its daemon before it loads anything else.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from marklight import ownership
from marklight.errors import SettingsError, UsageError
from marklight.ownership import Provenance
from marklight.private_files import is_own

INDEX_FOLDER = ".marklight"
PROJECT_FILE = "marklight.toml"
MAX_NAMED = 3
"""Libraries that one notice names."""


class Place(NamedTuple):
    """The folder of a library, and the folder inside it that limits the search, if any."""

    folder: Path
    part: Path | None = None


def locate(given: Path | None) -> Place:
    """Return the nearest folder upward with an index or a settings file; else the folder itself."""
    try:
        start = (given or Path.cwd()).expanduser()
    except FileNotFoundError:
        raise UsageError(
            "The current folder no longer exists", "Change to another folder"
        ) from None
    except RuntimeError as error:
        raise UsageError(f"{given}: {error}", "Write the path of the folder in full") from None
    if not _exists(start):
        raise UsageError(f"No such folder: {start}", "Give the folder that contains the documents")
    if not start.is_dir():
        raise UsageError(f"{start} is not a folder", "Give the folder that contains the file")
    start = start.resolve()
    for folder in (start, *start.parents):
        if is_library(folder):
            return Place(folder, None if given is None or start == folder else start)
    return Place(start)


def around(folder: Path | None, name: str) -> Path | None:
    """Return the folder to locate a library from: the given one; else, outside any library, that of the named file."""
    if folder is not None or is_library(locate(None).folder):
        return folder
    # `path`, `path#heading` or `path:10-40`; a file name may contain `#` and `:` as well.
    for written in (name, name.rpartition("#")[0], name.rpartition(":")[0]):
        file = Path(written)
        if written and _exists(file) and file.is_file():
            return locate(file.absolute().parent).folder
    return None


def is_library(folder: Path) -> bool:
    """Return true for a folder with a settings file or an index that this user made, complete or not."""
    if _is_own_file(folder / PROJECT_FILE) or ownership.is_shared(folder):
        return True
    # A foreign index in a parent folder must not turn everything below it into one library.
    places = (folder / INDEX_FOLDER, ownership.place_away(folder))
    return any(
        ownership.origin(place) not in (Provenance.NONE, Provenance.FOREIGN) for place in places
    )


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


def resolve_path(written: str, folder: Path, key: str) -> Path:
    """Return a path from the settings, relative to the library's folder."""
    try:
        return (folder / Path(written).expanduser()).resolve()
    except (RuntimeError, ValueError, OSError) as error:
        raise SettingsError(f"{key} = {written!r} is not a valid path: {error}") from None


def index_address(folder: Path, engine: str) -> tuple[str, str]:
    """Return the address of a library's index, and a notice if it is not in the usual place."""
    if engine.startswith("file:"):
        path = resolve_path(engine.removeprefix("file:"), folder, "engine")
        if folder.is_relative_to(path):
            raise SettingsError(
                f"engine = {engine!r} would put the index among the documents",
                "Use a separate folder for the index",
            )
        return f"file:{path}", ""
    if engine:  # an engine that keeps no files
        return engine, ""
    beside = folder / INDEX_FOLDER
    away = ownership.place_away(folder)
    if reason := _why_not_beside(folder, beside):
        return f"file:{away}", f"{reason}; the index of {folder} is in {away}"
    return f"file:{beside}", ""


def _why_not_beside(folder: Path, beside: Path) -> str:
    """Return why the index cannot be kept beside the documents; empty if it can."""
    origin = ownership.origin(beside)
    if origin is Provenance.FOREIGN:
        return f"{beside} was not made by you on this machine and is not used (delete it to keep the index there)"
    if origin is not Provenance.NONE:
        return ""
    if not os.access(folder, os.W_OK):
        return f"{folder} is not writable"
    # A user who may rename entries of the folder could replace the index.
    status = os.stat(folder)
    if not is_own(status):
        return f"{folder} belongs to another user"
    everybody = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
    return f"{folder} can be written by everybody" if everybody else ""


def nested_libraries(folder: Path) -> list[str]:
    """Return notices about the libraries of this user that are above and below a folder."""
    others = [index.parent for index in ownership.recorded_folders() if index.name == INDEX_FOLDER]
    above = [str(other) for other in others if other in folder.parents]
    below = sorted(str(other) for other in others if folder in other.parents)
    notices = []
    if above:
        notices.append(
            f"{folder} is inside the library {max(above, key=len)}, which indexes it too"
        )
    if below:
        more = f" and {len(below) - MAX_NAMED} more" if len(below) > MAX_NAMED else ""
        names = ", ".join(below[:MAX_NAMED])
        notices.append(
            f"{folder} contains other libraries: {names}{more}. Commands in those folders use their own index"
        )
    return notices
