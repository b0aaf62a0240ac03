"""Ownership of indexes: which ones this user made, on this machine and in this place.

Every index contains a random id in the file `owner`. The record with that id in the user's data folder names the folder of the index
and the inodes of the folder and its database. An index without a record came from elsewhere, with a clone, an archive or a sync:
nothing in it is read or written. One whose record names another place was moved, copied or restored, and is verified first.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from marklight.errors import StoreError
from marklight.private_files import (
    data_folder,
    is_own,
    make_private_folder,
    read_private,
    write_private,
)

MARKER = "owner"
STORE = "library.db"
_RECORDS = "indexes"
_MACHINE = "machine"
_SHARED = "shared"
_ID = re.compile(r"[0-9a-f]{32}")
_PARTS = re.compile(r"library\.db.*|lock|words.*|vectors|owner|(looked|refresh)\.json.*|history")
"""Names that make a folder an index, whole or not."""


_EXTRAS = frozenset({".gitignore", "progress.json"})
"""Names in the folder of an index that do not make it one."""


class Provenance(StrEnum):
    """Relation of an index to this user."""

    NONE = "none"
    """There is no index."""
    OWN = "own"
    """This user made it in this place."""
    RESTORED = "restored"
    """This user made it in this place, but its files are other ones now."""
    MOVED = "moved"
    """This user made it, in another place."""
    FOREIGN = "foreign"
    """This user did not make it on this machine."""


class Record(NamedTuple):
    """Place and owner of an index."""

    folder: str
    device: int
    inode: int
    store_inode: int
    """Inode of the database; 0 if there is none yet."""
    owner: int

    def matches(self, here: Record) -> bool:
        """Compare with an index as it is now; the device is not compared, as its number may change when the machine restarts."""
        return self._replace(device=0) == here._replace(device=0)


def new_id() -> str:
    """Return a random id; it is a secret of this user."""
    return secrets.token_hex(16)


def is_id(text: object) -> bool:
    """Return true for a valid id of an index."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def machine_id() -> str:
    """Return the random id of this user on this machine; the first call stores it in the user's data folder.

    Several machines with one index each compare its documents with their own files.
    """
    file = data_folder() / _MACHINE
    for _ in range(2):
        with suppress(OSError):
            id = read_private(file, limit_bytes=64).decode("ascii", "replace").strip()
            if is_id(id):
                return id
        try:
            make_private_folder(file.parent)
            write_private(file, f"{new_id()}\n".encode(), durable=True, replace=False)
        except FileExistsError:  # another process was first
            continue
        except OSError as error:
            raise StoreError(
                f"{file} cannot be written ({error.strerror}); it contains the id of this machine",
                "Set the variable MARKLIGHT_DATA_DIR to another folder",
            ) from error
    raise StoreError(f"{file} does not contain the id of this machine", "Delete the file")


def origin(folder: Path) -> Provenance:
    """Return where the index in a folder comes from; nothing in it is opened but its marker."""
    try:
        status = os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return Provenance.NONE
    except OSError:
        return Provenance.FOREIGN
    if not stat.S_ISDIR(status.st_mode) or not is_own(status):
        return Provenance.FOREIGN
    record = _read_record(owner_id(folder))
    if record is None and _holds_parts(folder):
        record = _read_record(owner_id(folder))  # another process may have claimed it meanwhile
        if record is None:
            return Provenance.FOREIGN
    if record is None:
        return Provenance.NONE
    here = _place(folder)
    if record.folder != here.folder:
        return Provenance.MOVED
    if not here.store_inode:  # not made yet: its inode is recorded before it gets its name
        here = here._replace(store_inode=record.store_inode)
    return Provenance.OWN if record.matches(here) else Provenance.RESTORED


def place_away(folder: Path) -> Path:
    """Return the folder of the index of a folder in which it cannot be stored."""
    return data_folder() / "libraries" / _folder_name(folder)


def remember_shared(folder: Path) -> None:
    """Record that the documents of a folder are in an index on a server, which leaves no files beside them."""
    records = data_folder() / _SHARED
    with suppress(OSError):  # then commands must be run in the folder itself
        make_private_folder(records)
        write_private(
            records / _folder_name(folder), f"{folder}\n".encode("utf-8", "surrogateescape")
        )


def is_shared(folder: Path) -> bool:
    """Return true if this user indexed the folder in an index on a server."""
    return os.path.isfile(data_folder() / _SHARED / _folder_name(folder))


def _folder_name(folder: Path) -> str:
    return hashlib.blake2b(os.fsencode(folder), digest_size=8).hexdigest()


def owner_id(folder: Path) -> str:
    """Return the id in the marker of an index; empty where there is none."""
    try:
        id = read_private(folder / MARKER, limit_bytes=64).decode("ascii", "replace").strip()
    except OSError:
        return ""
    return id if is_id(id) else ""


def claim(folder: Path) -> str:
    """Record that this user made the index in a folder, and return its id; the record comes first, then the marker."""
    id = new_id()
    record(folder, id)
    try:
        write_private(folder / MARKER, f"{id}\n".encode(), durable=True, replace=False)
    except FileExistsError:  # another process was first
        release(id)
        return owner_id(folder)
    return id


def mark(folder: Path, id: str) -> None:
    """Replace the marker of an index."""
    write_private(folder / MARKER, f"{id}\n".encode(), durable=True)


def record(folder: Path, id: str, store: Path | None = None) -> None:
    """Write the record of an index, as it is now or with the file that will be its database."""
    records = data_folder() / _RECORDS
    here = _place(folder, store)
    try:
        make_private_folder(records)
        write_private(records / f"{id}.json", json.dumps(here._asdict()).encode(), durable=True)
    except OSError as error:
        raise StoreError(
            f"{records} cannot be written ({error.strerror}); it contains the records of your indexes",
            "Set the variable MARKLIGHT_DATA_DIR to another folder",
        ) from error


def release(id: str) -> None:
    """Remove the record of an index that no longer exists."""
    with suppress(OSError):
        (data_folder() / _RECORDS / f"{id}.json").unlink()


def place_of(id: str) -> Path | None:
    """Return the folder that the record of an index names."""
    record = _read_record(id)
    return Path(record.folder) if record else None


def recorded_folders() -> Iterator[Path]:
    """Return the folders of all indexes that this user made and that are still there."""
    with suppress(OSError), os.scandir(data_folder() / _RECORDS) as entries:
        for entry in entries:
            record = _read_record(entry.name.removesuffix(".json"))
            if record and origin(Path(record.folder)) in (Provenance.OWN, Provenance.RESTORED):
                yield Path(record.folder)


def _read_record(id: str) -> Record | None:
    if not is_id(id):
        return None
    try:
        return Record(**json.loads(read_private(data_folder() / _RECORDS / f"{id}.json")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _place(folder: Path, store: Path | None = None) -> Record:
    status = os.lstat(folder)
    store_inode = 0
    with suppress(FileNotFoundError):
        found = os.lstat(store or folder / STORE)
        # A new file, or a link, may get the number of one that was deleted; what it contains is compared with the id.
        store_inode = found.st_ino if stat.S_ISREG(found.st_mode) else -1
    path = os.path.realpath(folder)
    return Record(path, status.st_dev, status.st_ino, store_inode, status.st_uid)


def is_part(name: str) -> bool:
    """Return true for the name of a file or folder that Marklight makes in the folder of an index."""
    return name in _EXTRAS or _PARTS.fullmatch(name) is not None


def _holds_parts(folder: Path) -> bool:
    try:
        return any(_PARTS.fullmatch(name) for name in os.listdir(folder))
    except OSError:
        return True
