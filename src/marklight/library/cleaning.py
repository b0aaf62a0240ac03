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
from marklight.ownership import Provenance
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


def library_data(library: Library) -> DataPlace:
    """Return the index of a library, to be removed; raise an error if it is not one of this user on this machine."""
    index = library.address.folder
    if index is None:
        raise UsageError(
            f"The index of {library.place.folder} is {library.address}, not a folder",
            "Delete it on its server",
        )
    origin = ownership.origin(index)
    if origin is Provenance.NONE:
        raise NotFound(f"{library.place.folder} has no index on this machine")
    if origin is Provenance.FOREIGN:
        raise UsageError(
            f"{index} was not made by you on this machine", "Delete the folder by hand"
        )
    return DataPlace.of("index", index)


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


def all_indexes() -> list[Path]:
    """Return all indexes of this user on this machine."""
    return sorted(set(ownership.recorded_folders()))


def all_data() -> list[DataPlace]:
    """Return all indexes of this user, then the folders of data, cached files and state; not the settings."""
    found = [DataPlace.of("index", index) for index in all_indexes()]
    data = data_folder()
    outside = [each for each in found if data not in each.path.parents]
    return [*outside, *(DataPlace.of(*each) for each in _user_folders() if each[1].is_dir())]


def delete(place: DataPlace) -> None:
    """Delete an index or a folder of this user; of an index, files that are not ours are kept."""
    if not is_plain_folder(place.path):
        raise StoreError(f"{place.path} is not a folder of yours", "Delete it by hand")
    if place.what != "index":
        remove(place.path)
    else:
        id = ownership.owner_id(place.path)
        for name in os.listdir(place.path):
            if ownership.is_part(name):
                remove(place.path / name)
        if not os.listdir(place.path):
            os.rmdir(place.path)
        ownership.release(id)
    left = place.path.is_dir() and (
        place.what != "index" or any(map(ownership.is_part, os.listdir(place.path)))
    )
    if left:
        raise StoreError(f"{place.path} could not be deleted completely", "Delete it by hand")


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
