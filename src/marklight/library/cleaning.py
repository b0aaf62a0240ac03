"""Places of all data of Marklight on this machine, and their removal: the index of one library, or everything."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from marklight import engines
from marklight.errors import Busy, NotFound, StoreError, UsageError
from marklight.models.store import cache_folder
from marklight.place import (
    STORE,
    index_folder,
    needs_record,
    orphaned_records,
    recorded_ids,
    recorded_indexes,
    release,
)
from marklight.private_files import data_folder, is_plain_folder, remove, state_folder
from marklight.settings import user_file

if TYPE_CHECKING:
    from marklight.library import Library

HISTORY = "history"
WAIT_SECONDS = 1.0
"""Time for another process to finish its commit."""
_PARTS = re.compile(
    r"library\.db.*|lock|lexical.*|vectors|(refresh|progress)\.json.*|history|\.gitignore"
)
"""Names of files and folders that Marklight makes in the folder of an index."""


class DataPlace(NamedTuple):
    """A folder with data of Marklight."""

    what: str
    path: Path
    size: int

    @classmethod
    def of(cls, what: str, path: Path) -> DataPlace:
        """Measure a folder."""
        total = 0
        for root, _, names in os.walk(path):
            for name in names:
                with suppress(OSError):  # deleted meanwhile
                    total += os.lstat(os.path.join(root, name)).st_size
        return cls(what, path, total)


def places(library: Library) -> list[DataPlace]:
    """Return the index of a library and the folders with other data of this user, as far as they exist."""
    index = [("index", library.address.folder)] if library.address.folder else []
    folders = [*index, ("settings", user_file().parent), *_user_folders()]
    return [DataPlace.of(what, path) for what, path in folders if path.is_dir()]


def library_data(library: Library) -> list[DataPlace]:
    """Return the index of a library, to be removed; raise UsageError if this user did not make it on this machine."""
    index = library.address.folder
    if index is None:
        raise UsageError(
            f"The index of {library.place.folder} is {library.address}, not a folder",
            "Delete it on its server",
        )
    folders = {index, index_folder(library.place.folder)}
    present = [folder for folder in sorted(folders) if os.path.lexists(folder)]
    for folder in present:
        recorded = not needs_record(folder) or recorded_ids(folder)
        if not is_plain_folder(folder) or not recorded:
            raise UsageError(
                f"{folder} was not made by you on this machine", "Delete the folder by hand"
            )
    if not present:
        raise NotFound(f"{library.place.folder} has no index on this machine")
    return [DataPlace.of("index", folder) for folder in present]


def orphans() -> list[DataPlace]:
    """Return the indexes of folders that no longer exist."""
    return [DataPlace.of(f"index of {record.path}", index) for index, record in orphaned_records()]


def all_data() -> list[DataPlace]:
    """Return all indexes of this user, then the folders of data, cached files and state; not the settings."""
    indexes = [("index", index) for index in recorded_indexes()]
    folders = [(what, path) for what, path in _user_folders() if path.is_dir()]
    return [DataPlace.of(what, path) for what, path in (*indexes, *folders)]


def delete(places: Sequence[DataPlace]) -> None:
    """Delete folders of this user, unless another process writes to an index there; files of the user beside an index are kept."""
    for place in places:
        for store in (place.path / STORE, *place.path.glob(f"libraries/*/{STORE}")):
            if store.exists():
                _check_unused(store.parent)
    for place in places:
        if not is_plain_folder(place.path):
            raise StoreError(f"{place.path} is not a folder of yours", "Delete it by hand")
        for index in (place.path, *place.path.glob("libraries/*")):
            # First: derived parts without a database would be reported as damage if this is interrupted.
            for part in ("lexical", "vectors"):
                remove(index / part)
        if not (place.path / STORE).exists() or not needs_record(place.path):
            remove(place.path)
        else:
            for name in filter(_PARTS.fullmatch, os.listdir(place.path)):
                remove(place.path / name)
            with suppress(OSError):  # other files of the user are there
                os.rmdir(place.path)
            for index in (place.path, place.path / HISTORY):
                release(index)
        if place.path.is_dir() and any(map(_PARTS.fullmatch, os.listdir(place.path))):
            raise StoreError(f"{place.path} could not be deleted completely", "Delete it by hand")


def _check_unused(index: Path) -> None:
    """Raise `Busy` if another process writes to an index; a damaged one is not in use."""
    try:
        with closing(engines.open(f"file:{index}")) as engine, engine.writing(WAIT_SECONDS):
            pass
    except Busy as error:
        raise Busy(
            f"Nothing was removed: another process is writing to {index}",
            "Wait until it has finished, or end it",
        ) from error
    except StoreError:
        pass


def _user_folders() -> list[tuple[str, Path]]:
    return [
        ("data", data_folder()),
        ("cached models and evaluations", cache_folder()),
        ("state of daemons", state_folder()),
    ]
