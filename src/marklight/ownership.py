"""Records of this user's indexes, in the data directory.

The index of a folder is in `libraries/NAME-ID`; both parts follow from the folder's real path. `library.json` in it contains the path,
device and inode of the folder, so that a moved folder keeps its index. An index in another place, such as `.marklight/` beside the
documents, may have come with a clone, an archive or a sync. It is used only if a record in `indexes` contains the inodes of its
folder and its database, and the random id that the database contains.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from marklight.errors import StoreError
from marklight.private_files import (
    data_folder,
    is_plain_folder,
    make_private_folder,
    read_private,
    write_private,
)

STORE = "library.db"
RECORD = "library.json"
_INDEXES = "indexes"
_MACHINE = "machine"
_SHARED = "shared"
_ID = re.compile(r"[0-9a-f]{32}")
_PARTS = re.compile(r"library\.db.*|lock|words.*|vectors|(looked|refresh|progress)\.json.*|history")
"""Names of files and folders that Marklight makes in the folder of an index."""
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
        if (status.st_dev, status.st_ino) != (self.device, self.inode):
            return False
        return any(
            _inode(os.path.join(folder, name)) == inode for name, inode in self.entries.items()
        )

    @property
    def is_orphaned(self) -> bool:
        """Return true if there is no folder at the path."""
        return not os.path.isdir(self.path)


class IndexRecord(NamedTuple):
    """An index outside the data directory that this user made."""

    folder: str
    inode: int
    database: int
    """Inode of the database; 0 until it is made."""
    id: str
    """Random id that the database contains."""


def index_folder(folder: Path) -> Path:
    """Return the folder of the index of a folder, by its path alone."""
    return data_folder() / "libraries" / _folder_name(folder)


def find_index(folder: Path) -> Path:
    """Return the folder of the index of a folder, which may have been moved here or have another path too."""
    place = index_folder(folder)
    if os.path.lexists(place):
        record = read_record(place)
        if record is None or record.path != str(folder) or not record.is_of(folder):
            with suppress(OSError):
                remember(folder)
        return place
    for index, record in library_records():
        if record.is_of(folder):
            if record.is_of(record.path):  # one folder with two paths
                return index
            with suppress(OSError):  # another process may have moved it
                os.rename(index, place)
                remember(folder)
            return place
    return place


def is_library(folder: Path) -> bool:
    """Return true for a folder with an index in files of this user, complete or not."""
    return is_plain_folder(index_folder(folder))


def library_names() -> frozenset[str]:
    """Return the names of the index folders of all libraries of this user."""
    try:
        return frozenset(os.listdir(data_folder() / "libraries"))
    except OSError:
        return frozenset()


def remember(folder: Path) -> None:
    """Write the record of a folder into the folder of its index."""
    place = index_folder(folder)
    for path in (place.parent, place):
        make_private_folder(path)
    record = FolderRecord.of(folder)._asdict()
    write_private(place / RECORD, json.dumps(record).encode(), durable=True)


def library_records() -> Iterator[tuple[Path, FolderRecord]]:
    """Yield the index folder and the record of each library of this user."""
    for name in sorted(library_names()):
        index = data_folder() / "libraries" / name
        if record := read_record(index):
            yield index, record


def read_record(index: Path) -> FolderRecord | None:
    """Return the record in the folder of an index; None if there is none."""
    fields = _read_fields(index / RECORD)
    try:
        return FolderRecord(**fields) if isinstance(fields.get("entries"), dict) else None
    except TypeError:
        return None


def orphans() -> list[tuple[Path, FolderRecord]]:
    """Return the indexes of folders that no longer exist."""
    return [(index, record) for index, record in library_records() if record.is_orphaned]


def remember_shared(folder: Path) -> None:
    """Record that the documents of a folder are in an index on a server."""
    records = data_folder() / _SHARED
    with suppress(OSError):  # then commands must be run in the folder itself
        make_private_folder(records)
        write_private(
            records / _folder_name(folder), f"{folder}\n".encode("utf-8", "surrogateescape")
        )


def is_shared(folder: Path) -> bool:
    """Return true if this user indexed the folder in an index on a server."""
    return os.path.isfile(data_folder() / _SHARED / _folder_name(folder))


def needs_record(index: Path) -> bool:
    """Return true for an index outside the data directory."""
    return data_folder() not in Path(os.path.realpath(index)).parents


def claim(index: Path) -> None:
    """Record that this user made the folder of an index outside the data directory, before anything is written to it."""
    if own_record(index) is not None:
        return
    record = IndexRecord(os.path.realpath(index), _inode(index), 0, "")
    file = _index_file(record.folder)
    if _read_fields(file).get("inode") != record.inode:  # of a folder that was deleted
        file.unlink(missing_ok=True)
    with suppress(FileExistsError):  # another process was first
        _write_index(record, replace=False)


def record_database(index: Path, database: Path, id: str) -> None:
    """Record the file that becomes the database of an index outside the data directory."""
    _write_index(IndexRecord(os.path.realpath(index), _inode(index), _inode(database), id))


def own_record(index: Path) -> IndexRecord | None:
    """Return the record of an index outside the data directory; None if this user did not make it, or not these files."""
    inode, database = _inode(index), _inode(index / STORE)
    for path, record in _index_records():
        if record.inode == inode and database in (0, record.database):
            if record.folder != os.path.realpath(index) and not os.path.exists(record.folder):
                with suppress(StoreError):  # moved together with its documents
                    record = record._replace(folder=os.path.realpath(index))
                    _write_index(record)
                    path.unlink(missing_ok=True)
            return record
    return None


def recorded_indexes() -> list[Path]:
    """Return the indexes outside the data directory that this user made and that still exist."""
    folders = (Path(record.folder) for _, record in _index_records())
    return [folder for folder in folders if own_record(folder) and is_plain_folder(folder)]


def release(index: Path) -> None:
    """Remove the record of an index outside the data directory."""
    with suppress(OSError):
        _index_file(os.path.realpath(index)).unlink()


def is_part(name: str) -> bool:
    """Return true for the name of a file or folder that Marklight makes in the folder of an index."""
    return _PARTS.fullmatch(name) is not None


def machine_id() -> str:
    """Return the random id of this user on this machine; the first call stores it in the data directory.

    Several machines with one index each compare its documents with their own files.
    """
    file = data_folder() / _MACHINE
    for _ in range(2):
        with suppress(OSError):
            id = read_private(file, limit_bytes=64).decode("ascii", "replace").strip()
            if _ID.fullmatch(id):
                return id
        try:
            make_private_folder(file.parent)
            write_private(file, f"{secrets.token_hex(16)}\n".encode(), durable=True, replace=False)
        except FileExistsError:  # another process was first
            continue
        except OSError as error:
            raise _cannot_write(file, error) from error
    raise StoreError(f"{file} does not contain the id of this machine", "Delete the file")


def _index_records() -> Iterator[tuple[Path, IndexRecord]]:
    with suppress(OSError):
        for name in sorted(os.listdir(data_folder() / _INDEXES)):
            path = data_folder() / _INDEXES / name
            with suppress(TypeError):
                yield path, IndexRecord(**_read_fields(path))


def _write_index(record: IndexRecord, *, replace: bool = True) -> None:
    file, content = _index_file(record.folder), json.dumps(record._asdict()).encode()
    try:
        make_private_folder(file.parent)
        write_private(file, content, durable=True, replace=replace)
    except FileExistsError:
        raise
    except OSError as error:
        raise _cannot_write(file, error) from error


def _index_file(index: str) -> Path:
    return data_folder() / _INDEXES / f"{_folder_name(Path(index))}.json"


def _read_fields(path: Path) -> dict[str, Any]:
    """Return the fields of a record; empty for a file that is missing, foreign or damaged."""
    try:
        fields = json.loads(read_private(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _folder_name(folder: Path) -> str:
    """Return a readable name that is different for each path."""
    digest = hashlib.blake2b(os.fsencode(folder), digest_size=8).hexdigest()
    return f"{readable_name(folder.name)}-{digest}"


def readable_name(name: str) -> str:
    """Return the name of a folder without characters that some file systems do not accept."""
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)[:_MAX_NAME] or "root"


def _inode(path: Path | str) -> int:
    """Return the inode of a file or folder; 0 if there is none, -1 for a link."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):  # a name that the locale cannot encode
        return 0
    return -1 if stat.S_ISLNK(status.st_mode) else status.st_ino


def _cannot_write(file: Path, error: OSError) -> StoreError:
    return StoreError(
        f"{file} cannot be written ({error.strerror})",
        "Set the variable MARKLIGHT_DATA_DIR to another folder",
    )
