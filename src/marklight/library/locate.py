"""Where in a library a folder stands, and where that library's index lives."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from marklight import engines, ownership
from marklight.engines import EngineAddress
from marklight.errors import SettingsError, UsageError
from marklight.ownership import Origin
from marklight.place import INDEX_FOLDER
from marklight.private_files import is_own

_NAMED = 3
"""Libraries that one notice names."""


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


def index_address(folder: Path, engine: str) -> tuple[str, str]:
    """Where the index of a folder lives, and a notice when that is not the usual place."""
    if engine:
        address = engines.parse_address(engine)
        if address.folder is None:
            return engine, ""
        named = path_of(str(address.folder), folder, "engine")
        if folder.is_relative_to(named):
            raise SettingsError(
                f"engine = {engine!r} would put the index among the documents",
                "Name a folder for it alone",
            )
        return str(address._replace(folder=named)), ""
    beside = folder / INDEX_FOLDER
    away = ownership.place_away(folder)
    if reason := _why_not_beside(folder, beside):
        return str(EngineAddress("file", away)), f"{reason}; the index of {folder} is in {away}"
    return str(EngineAddress("file", beside)), ""


def _why_not_beside(folder: Path, beside: Path) -> str:
    """Return why the index cannot be kept beside the documents; empty where it can."""
    origin = ownership.origin(beside)
    if origin is Origin.FOREIGN:
        return f"{beside} was not made by you on this machine and is not used (delete it to keep the index there)"
    if origin is not Origin.NONE:
        return ""
    if not os.access(folder, os.W_OK):
        return f"{folder} cannot be written"
    # A user who may rename entries of the folder could replace the index.
    status = os.stat(folder)
    if not is_own(status):
        return f"{folder} belongs to another user"
    everybody = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
    return f"{folder} can be written by everybody" if everybody else ""


def nested_libraries(folder: Path) -> list[str]:
    """Return notices about the libraries of this user that are above and below a folder."""
    others = [each.parent for each in ownership.recorded_folders() if each.name == INDEX_FOLDER]
    above = [str(each) for each in others if each in folder.parents]
    below = sorted(str(each) for each in others if folder in each.parents)
    notices = []
    if above:
        notices.append(f"{folder} is inside the library {max(above, key=len)}, which has it too")
    if below:
        more = f" and {len(below) - _NAMED} more" if len(below) > _NAMED else ""
        named = ", ".join(below[:_NAMED])
        notices.append(
            f"{folder} contains other libraries: {named}{more}. Commands in those folders use their own index"
        )
    return notices
