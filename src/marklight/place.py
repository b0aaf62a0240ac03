"""Locate libraries: the library of a folder, the address of its index, and the records of this user's indexes.

The index of a folder is in `libraries/NAME-ID` of the data directory; both parts follow from the folder's real path. `library.json`
in it contains the path, device and inode of the folder, so that a moved folder keeps its index. An index in another place, such as
`.marklight/` beside the documents, may have come with a clone, an archive or a sync. It is used only if a record in `indexes`
contains the inode of its database, and the random id that the database contains.

Imports little, so that a command finds its daemon before it loads anything else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from marklight.errors import Message, SettingsError, StoreError, UsageError
from marklight.private_files import (
    data_folder,
    is_own,
    is_plain_folder,
    make_private_folder,
    read_private,
    write_private,
)

STORE = "library.db"
RECORD = "library.json"
_MAX_NAME = 40
"""Characters of a folder's name in that of its index."""
_MAX_ENTRIES = 8
"""Entries of a folder in its record."""


class FolderRecord(NamedTuple):
    """A folder of documents, as it was when its index was last opened there."""

    path: str
    device: int
    inode: int
    entries: Mapping[str, int]
    """Inodes of some files and folders in it, by name: a new folder may get the inode of a deleted one."""

    @classmethod
    def of(cls, folder: Path) -> FolderRecord:
        """Return the record of a folder as it is now."""
        status = os.stat(folder)
        with os.scandir(folder) as entries:
            inodes = {entry.name: entry.inode() for entry in islice(entries, _MAX_ENTRIES)}
        return cls(str(folder), status.st_dev, status.st_ino, inodes)

    def is_of(self, folder: Path | str) -> bool:
        """Return true if a folder is the recorded one, whatever its path is now."""
        try:
            status = os.stat(folder)
        except (OSError, ValueError):
            return False
        return (status.st_dev, status.st_ino) == (self.device, self.inode) and any(
            _inode(os.path.join(folder, name)) == inode for name, inode in self.entries.items()
        )

    def is_also_at(self, folder: Path | str) -> bool:
        """Return true if the path of the record and another one lead to one folder, as with a bind mount."""
        try:
            return os.path.samefile(self.path, folder)
        except (OSError, ValueError):
            return False

    @property
    def is_orphaned(self) -> bool:
        """Return true if there is no folder at the path."""
        return not os.path.isdir(self.path)


def index_folder(folder: Path) -> Path:
    """Return the folder of the index of a folder, by its path alone."""
    digest = hashlib.blake2b(os.fsencode(folder), digest_size=8).hexdigest()
    return _libraries() / f"{readable_name(folder.name)}-{digest}"


def readable_name(name: str) -> str:
    """Return the name of a folder without characters that some file systems do not accept."""
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)[:_MAX_NAME]


def find_index(folder: Path) -> Path:
    """Return the folder of the index of a folder, which may have been moved here or have another path too."""
    place = index_folder(folder)
    if os.path.lexists(place):
        record = _read_record(place)
        if record is None or record.path != str(folder) or not record.is_of(folder):
            with suppress(OSError):
                remember(folder)
        return place
    for index, record in library_records():
        if record.is_also_at(folder):
            return index
        if record.is_of(folder):
            with suppress(OSError):  # another process may have moved it
                os.rename(index, place)
                remember(folder)
            break
    return place


def is_recorded(folder: Path) -> bool:
    """Return true for a folder that this user has indexed, completely or not."""
    return is_plain_folder(index_folder(folder))


def library_names() -> frozenset[str]:
    """Return the names of the index folders of all libraries of this user."""
    try:
        return frozenset(os.listdir(_libraries()))
    except OSError:
        return frozenset()


def library_records() -> Iterator[tuple[Path, FolderRecord]]:
    """Yield the index folder and the record of each library of this user."""
    for name in sorted(library_names()):
        if record := _read_record(_libraries() / name):
            yield _libraries() / name, record


def remember(folder: Path) -> None:
    """Write the record of a folder into the folder of its index."""
    place = index_folder(folder)
    for path in (place.parent, place):
        make_private_folder(path)
    _write(place / RECORD, FolderRecord.of(folder)._asdict())


def orphaned_records() -> list[tuple[Path, FolderRecord]]:
    """Return the indexes of folders that no longer exist."""
    return [(index, record) for index, record in library_records() if record.is_orphaned]


def needs_record(index: Path) -> bool:
    """Return true for an index outside the data directory."""
    return data_folder() not in Path(os.path.realpath(index)).parents


def record_database(index: Path, database: Path, id: str) -> None:
    """Record the file that becomes the database of an index outside the data directory."""
    make_private_folder(_indexes())
    inode = os.lstat(database).st_ino  # a record without it would make the index foreign for ever
    fields = {"folder": os.path.realpath(index), "database": inode, "id": id}
    _write(_indexes() / f"{id}-{inode}.json", fields)


def recorded_ids(index: Path) -> set[str]:
    """Return the ids of databases that this user made outside the data directory and that have the inode of this one."""
    database, ids = _inode(index / STORE), set()
    for id, folder, inode in _index_records():
        if inode == database > 0:
            ids.add(id)
            if folder != os.path.realpath(index) and not os.path.exists(folder):
                with suppress(OSError):  # moved together with its documents
                    record_database(index, index / STORE, id)
    return ids


def recorded_indexes() -> list[Path]:
    """Return the indexes outside the data directory that this user made and that still exist."""
    folders = {Path(folder) for _, folder, _ in _index_records()}
    return [folder for folder in sorted(folders) if recorded_ids(folder)]


def release(index: Path) -> None:
    """Remove the records of an index outside the data directory."""
    for id, folder, inode in list(_index_records()):
        if folder == os.path.realpath(index):
            with suppress(OSError):
                (_indexes() / f"{id}-{inode}.json").unlink()


def machine_id() -> str:
    """Return the random id of this user on this machine; the first call stores it in the data directory.

    Several machines with one index each compare its documents with their own files.
    """
    file = data_folder() / "machine"
    for _ in range(2):
        with suppress(OSError):
            id = read_private(file, limit_bytes=64).decode("ascii", "replace").strip()
            if re.fullmatch(r"[0-9a-f]{32}", id):
                return id
        try:
            make_private_folder(file.parent)
            write_private(file, f"{os.urandom(16).hex()}\n".encode(), durable=True, replace=False)
        except FileExistsError:  # another process was first
            continue
        except OSError as error:
            raise StoreError(
                f"{file} cannot be written ({error.strerror}); it contains the id of this machine",
                "Set the variable MARKLIGHT_DATA_DIR to another folder",
            ) from error
    raise StoreError(f"{file} does not contain the id of this machine", "Delete the file")


def _libraries() -> Path:
    return data_folder() / "libraries"


def _indexes() -> Path:
    return data_folder() / "indexes"


def _read_record(index: Path) -> FolderRecord | None:
    fields = _read(index / RECORD)
    try:
        return FolderRecord(**fields) if isinstance(fields.get("entries"), dict) else None
    except TypeError:
        return None


def _index_records() -> Iterator[tuple[str, str, int]]:
    """Yield the id, the folder and the inode of the database of each index outside the data directory."""
    with suppress(OSError):
        for name in sorted(os.listdir(_indexes())):
            with suppress(KeyError):
                fields = _read(_indexes() / name)
                yield fields["id"], fields["folder"], fields["database"]


def _read(path: Path) -> dict[str, Any]:
    """Return the fields of a record; empty for a file that is missing, foreign or damaged."""
    try:
        fields = json.loads(read_private(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _write(path: Path, fields: Mapping[str, Any]) -> None:
    write_private(path, json.dumps(fields).encode(), durable=True)


def _inode(path: Path | str) -> int:
    """Return the inode of a file or folder; 0 if there is none, -1 for a link."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):  # a name that the locale cannot encode
        return 0
    return -1 if stat.S_ISLNK(status.st_mode) else status.st_ino


INDEX_FOLDER = ".marklight"
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
    records = [record for _, record in library_records()]
    return lambda folder: any(
        record.is_also_at(folder) or record.is_of(folder) for record in records
    )


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
    return is_recorded(folder) or (
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
    index = find_index(folder)
    return f"file:{folder / INDEX_FOLDER if place == 'folder' else index}"


def complete_commands(text: str, folder: Path) -> str:
    """Add the folder of a library to the commands in a message: without it, they use the current folder."""
    import shlex

    new = _COMMAND.sub(lambda command: f"`marklight {command[1]} {shlex.quote(str(folder))}`", text)
    if isinstance(text, Message):
        return Message(new, text.for_assistant, kind=text.kind, refs=text.refs)
    return new


def nested_test() -> Callable[[str], bool]:
    """Return a test for folders with an index of this user; the library around one does not index its documents."""
    names = library_names()
    beginnings = {name.rpartition("-")[0] for name in names}

    def is_nested(folder: str) -> bool:
        # Most folders of a tree differ by name from all libraries, so that no digest is computed.
        name = readable_name(os.path.basename(folder))
        return name in beginnings and index_folder(Path(folder)).name in names

    return is_nested


def nested_libraries(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the libraries of this user above and below a folder."""
    records = (record for _, record in library_records() if not record.is_orphaned)
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
        statement = f"{folder} contains other libraries, which keep their own index and are left out: {names}{more}"
        advice = "To search them here too, list them under [collections] in marklight.toml"
        notices.append(Message(f"{statement}. {advice}", statement))
    return notices
