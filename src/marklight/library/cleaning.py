"""Places of all data of Marklight on this machine, and their removal: the index of one library, or everything."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from marklight import engines, ownership
from marklight.errors import Busy, NotFound, StoreError, UsageError
from marklight.models.store import cache_folder
from marklight.private_files import data_folder, is_plain_folder, remove, state_folder
from marklight.settings import user_file

if TYPE_CHECKING:
    from marklight.library import Library


WAIT_SECONDS = 1.0
"""Time for another process to finish its commit."""


class DataPlace(NamedTuple):
    """A folder with data of Marklight."""

    what: str
    path: Path
    size: int

    @classmethod
    def of(cls, what: str, path: Path) -> DataPlace:
        """Measure a folder."""
        return cls(what, path, _size(path))


def places(library: Library | None = None) -> list[DataPlace]:
    """Return the folders with data of this user that exist, and the index of a library."""
    folders = [("settings", user_file().parent), *_user_folders()]
    found = [DataPlace.of(what, path) for what, path in folders if path.is_dir()]
    index = library.address.folder if library else None
    return [*([DataPlace.of("index", index)] if index and index.is_dir() else []), *found]


def library_data(library: Library) -> list[DataPlace]:
    """Return the folders with the index of a library, to be removed."""
    index = library.address.folder
    if index is None:
        raise UsageError(
            f"The index of {library.place.folder} is {library.address}, not a folder",
            "Delete it on its server",
        )
    folders = {index, ownership.index_folder(library.place.folder)}
    places = [DataPlace.of("index", folder) for folder in sorted(folders) if is_index(folder)]
    if not places:
        raise NotFound(f"{library.place.folder} has no index on this machine")
    return places


def is_index(folder: Path) -> bool:
    """Return true for the folder of an index; raise UsageError if this user did not make it on this machine."""
    if not os.path.lexists(folder):
        return False
    if not is_plain_folder(folder) or (
        ownership.needs_record(folder) and ownership.own_record(folder) is None
    ):
        raise UsageError(
            f"{folder} was not made by you on this machine", "Delete the folder by hand"
        )
    return True


def orphans() -> list[DataPlace]:
    """Return the indexes of folders that no longer exist."""
    return [DataPlace.of(f"index of {record.path}", index) for index, record in ownership.orphans()]


def check_unused(indexes: Iterable[Path]) -> None:
    """Raise `Busy` if another process writes into one of these indexes; a damaged one is not in use."""
    for index in indexes:
        try:
            with closing(engines.open(f"file:{index}")) as engine, engine.writing(WAIT_SECONDS):
                pass
        except Busy as error:
            raise Busy(
                f"Nothing was removed: another process is writing to {index}",
                "Wait until it has finished, or end it",
            ) from error
        except StoreError:
            continue


def all_data() -> list[DataPlace]:
    """Return all indexes of this user, then the folders of data, cached files and state; not the settings."""
    indexes = [DataPlace.of("index", index) for index in ownership.recorded_indexes()]
    return [*indexes, *(DataPlace.of(*each) for each in _user_folders() if each[1].is_dir())]


def all_indexes() -> list[Path]:
    """Return all indexes of this user on this machine."""
    libraries = (index for index, _ in ownership.library_records())
    return sorted({*libraries, *ownership.recorded_indexes()})


def delete(place: DataPlace) -> None:
    """Delete an index or a folder of this user; outside the data directory, files that are not ours are kept."""
    if not is_plain_folder(place.path):
        raise StoreError(f"{place.path} is not a folder of yours", "Delete it by hand")
    if place.what != "index" or not ownership.needs_record(place.path):
        remove(place.path)
    else:
        for name in filter(_is_ours, os.listdir(place.path)):
            remove(place.path / name)
        if not os.listdir(place.path):
            os.rmdir(place.path)
        ownership.release(place.path)
        ownership.release(place.path / "history")
    if place.path.is_dir() and any(map(_is_ours, os.listdir(place.path))):
        raise StoreError(f"{place.path} could not be deleted completely", "Delete it by hand")


def _is_ours(name: str) -> bool:
    return ownership.is_part(name) or name in (".gitignore", ownership.RECORD)


def _user_folders() -> Iterator[tuple[str, Path]]:
    yield "data", data_folder()
    yield "cached models and evaluations", cache_folder()
    yield "state of daemons", state_folder()


def _size(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except OSError:  # deleted meanwhile
                continue
    return total
