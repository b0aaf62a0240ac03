"""Trust in the settings file of a folder: read the file safely, and record that the user trusts it.

As with direnv, trust is a record outside the folder: the folder's real path and a digest of the file. A file that
changed is no longer trusted.
"""

from __future__ import annotations

import json
import os
import stat
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from marklight.errors import SettingsError
from marklight.model import digest
from marklight.place import PROJECT_FILE
from marklight.private_files import (
    data_folder,
    is_own,
    make_private_folder,
    open_private,
    read_private,
    write_private,
)
from marklight.settings import SHARED_FILE, SHARED_TABLE, Layer, layer_of

LIMIT_BYTES = 1_000_000
"""Maximum size of a settings file: a `pyproject.toml` of 100 kB is a large one."""


class FolderFile(NamedTuple):
    """The settings file of a folder and its values; `layer` is None for a file that is ignored as a whole."""

    folder: Path
    path: Path
    layer: Layer | None
    digest: str = ""
    problem: str = ""
    """Reason why the file is ignored, and a remedy."""


class Record(NamedTuple):
    """A trusted folder, and the digest of its settings file at that time."""

    folder: str
    file: str
    digest: str
    trusted: str


def read_folder_file(folder: Path) -> FolderFile | None:
    """Read `marklight.toml`, else `pyproject.toml`; return None if there is neither."""
    folder = Path(os.path.realpath(folder))
    path, shared = folder / PROJECT_FILE, folder / SHARED_FILE
    if os.path.lexists(path):
        return _read(folder, path)
    return _read(folder, shared, *SHARED_TABLE) if os.path.lexists(shared) else None


def is_trusted(file: FolderFile) -> bool:
    """Return true if the user trusts this folder with exactly this content of the file."""
    record = record_of(file.folder)
    return bool(file.digest) and record is not None and record.digest == file.digest


def record_of(folder: Path) -> Record | None:
    """Return the record of a folder, even if its file has changed since."""
    record = _read_record(record_path(folder))
    return record if record and record.folder == os.path.realpath(folder) else None


def record_path(folder: Path) -> Path:
    """Return the path of the record of a folder."""
    return _records_folder() / f"{digest(os.path.realpath(folder))}.json"


def records() -> list[Record]:
    """Return all trusted folders, sorted by path."""
    return sorted(filter(None, map(_read_record, _records_folder().glob("*.json"))))


def trust(file: FolderFile) -> Record:
    """Record that the user trusts a folder with its settings file as it is now."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    record = Record(str(file.folder), file.path.name, file.digest, now)
    make_private_folder(_records_folder())
    write_private(record_path(file.folder), json.dumps(record._asdict()).encode())
    return record


def revoke(folder: Path) -> bool:
    """Remove the record of a folder; return false if there is none."""
    try:
        record_path(folder).unlink()
    except FileNotFoundError:
        return False
    return True


def _records_folder() -> Path:
    return data_folder() / "trust"


def _read_record(path: Path) -> Record | None:
    """Return a record, or None for a file that is missing, foreign or damaged: then nothing is trusted."""
    try:
        record = Record(**json.loads(read_private(path)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return record if all(isinstance(value, str) for value in record) else None


def _read(folder: Path, path: Path, *table: str) -> FolderFile | None:
    """Read a settings file; return None for one that is to be ignored and does not have our table anyway."""
    real, data, problem = Path(os.path.realpath(path)), b"", ""
    try:
        status = os.stat(path)
        problem = _problem(status, os.lstat(path))
        if not problem and not real.is_relative_to(folder):
            problem = "is a symbolic link that leads out of the folder"
        if stat.S_ISREG(status.st_mode):  # opening a device or a FIFO may have side effects
            with open(open_private(real), "rb") as file:
                problem = problem or _problem(os.fstat(file.fileno()))
                data = file.read(LIMIT_BYTES)
    except FileNotFoundError:
        problem = "is a broken symbolic link"
    except OSError as error:
        if not problem:
            raise SettingsError(f"Cannot read {path}: {error.strerror}") from error
    if problem and table and b"marklight" not in data:
        return None
    if problem:
        return FolderFile(folder, path, None, problem=problem)
    return FolderFile(folder, path, layer_of(data, path, *table), sha256(data).hexdigest())


def _problem(status: os.stat_result, link: os.stat_result | None = None) -> str:
    """Return why a settings file with this status is ignored; empty if it is not."""
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if not is_own(status) or (link and not is_own(link)):
        return "belongs to another user"
    # Systems without owners report every file that is not read-only as writable by everybody.
    if hasattr(os, "geteuid") and status.st_mode & stat.S_IWOTH:
        return "can be written by every user of this machine; run `chmod o-w` on it"
    if status.st_size > LIMIT_BYTES:
        return f"is larger than {LIMIT_BYTES // 1_000_000} MB"
    return ""
