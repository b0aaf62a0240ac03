"""Locate libraries: the library of a folder, and the address of its index.

Imports little, so that a command finds its daemon before it loads anything else.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from marklight import ownership
from marklight.errors import SettingsError, UsageError
from marklight.private_files import is_own

INDEX_FOLDER = ".marklight"
PLACES = ("data", "folder")
"""Values of `index.place`: the data directory of the user, or `INDEX_FOLDER` beside the documents."""
PROJECT_FILE = "marklight.toml"
MAX_NAMED = 3
"""Libraries or similar names that one message names."""
_COMMAND = re.compile("`marklight (index|status|doctor|serve(?: --stop)?)`")
"""Commands as messages name them that are written where the folder of the library is not known."""
MIN_SIMILARITY = 0.75
"""Share of matching characters of names that are suggested, as in `text.suggestions`."""


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
    if not _stat(start):
        hint = did_you_mean(start)
        raise UsageError(
            f"No such folder: {start}", hint or "Give the folder that contains the documents"
        )
    if not start.is_dir():
        raise UsageError(f"{start} is not a folder", "Give the folder that contains the file")
    start = start.resolve()
    folders = (start, *start.parents)
    folder = next(filter(is_library, folders), None) or next(filter(_was_moved(), folders), start)
    return Place(folder, None if given is None or start == folder else start)


def _was_moved() -> Callable[[Path], bool]:
    """Return a test for folders whose index is recorded under another path."""
    records = [record for _, record in ownership.library_records()]
    return lambda folder: any(record.is_of(folder) for record in records)


def did_you_mean(path: Path) -> str:
    """Return a question with the paths most similar to one that does not exist; empty if there are none."""
    similar = similar_entries(path)
    return f"Did you mean {' or '.join(similar)}?" if similar else ""


def similar_entries(path: Path) -> list[str]:
    """Return the paths most similar to one that does not exist: the first part of it that is wrong is corrected."""
    from difflib import get_close_matches  # only needed for an error

    missing = [part for part in (path, *path.parents) if not _stat(part)]
    try:
        wrong = missing[-1]
        names = {name.casefold(): name for name in os.listdir(wrong.parent)}
    except (OSError, IndexError):
        return []
    similar = get_close_matches(wrong.name.casefold(), names, MAX_NAMED, MIN_SIMILARITY)
    corrected = (wrong.with_name(names[name]) / path.relative_to(wrong) for name in similar)
    return [str(candidate) for candidate in corrected if _stat(candidate)]


def is_home(folder: Path) -> bool:
    """Return true for the home folder of this user, or a folder above it."""
    home = Path(os.path.expanduser("~")).resolve()
    return folder in (home, *home.parents)


def is_library(folder: Path) -> bool:
    """Return true for a folder with a settings file or an index that this user made, complete or not."""
    status = _stat(folder / PROJECT_FILE)
    return ownership.is_recorded(folder) or (
        status is not None and stat.S_ISREG(status.st_mode) and is_own(status)
    )


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):  # too long, or a NUL in it
        return None


def resolve_path(written: str, folder: Path, key: str) -> Path:
    """Return a path from the settings, relative to the library's folder."""
    try:
        return (folder / Path(written).expanduser()).resolve()
    except (RuntimeError, ValueError, OSError) as error:
        raise SettingsError(f"{key} = {written!r} is not a valid path: {error}") from None


def index_address(folder: Path, engine: str, place: str) -> str:
    """Return the address of a library's index."""
    if engine.startswith("file:"):
        path = resolve_path(engine.removeprefix("file:"), folder, "engine")
        if folder.is_relative_to(path):
            raise SettingsError(
                f"engine = {engine!r} would put the index among the documents",
                "Use a separate folder for the index",
            )
        return f"file:{path}"
    if engine:  # an engine that keeps no files
        return engine
    if place not in PLACES:
        raise SettingsError(f"index.place must be {' or '.join(PLACES)}, but is {place!r}")
    index = ownership.find_index(folder)
    return f"file:{folder / INDEX_FOLDER if place == 'folder' else index}"


def complete_commands(text: str, folder: Path) -> str:
    """Add the folder of a library to the commands in a message: without it, they use the current folder."""
    import shlex

    return _COMMAND.sub(lambda found: f"`marklight {found[1]} {shlex.quote(str(folder))}`", text)


def nested_test() -> Callable[[str], bool]:
    """Return a test for folders with an index of this user; the library around one does not index its documents."""
    names = ownership.library_names()
    beginnings = {name.rpartition("-")[0] for name in names}

    def is_nested(folder: str) -> bool:
        # Most folders of a tree differ by name from all libraries, so that no digest is computed.
        name = ownership.readable_name(os.path.basename(folder))
        return name in beginnings and ownership.index_folder(Path(folder)).name in names

    return is_nested


def nested_libraries(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the libraries of this user above and below a folder."""
    records = (record for _, record in ownership.library_records() if not record.is_orphaned)
    others = [Path(record.path) for record in records]
    above = [other for other in others if other in folder.parents]
    return sorted(above), sorted(other for other in others if folder in other.parents)


def nested_notices(folder: Path) -> list[str]:
    """Return notices about the libraries of this user that are above and below a folder."""
    above, below = nested_libraries(folder)
    notices = []
    if above:
        notices.append(
            f"{folder} is inside the library {above[-1]}, which leaves it out from now on"
        )
    if below:
        more = f" and {len(below) - MAX_NAMED} more" if len(below) > MAX_NAMED else ""
        names = ", ".join(map(str, below[:MAX_NAMED]))
        notices.append(
            f"{folder} contains other libraries, which keep their own index and are left out: {names}{more}."
            " To search them here too, list them under [collections] in marklight.toml"
        )
    return notices
