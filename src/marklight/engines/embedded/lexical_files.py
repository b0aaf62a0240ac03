"""Files of the lexical index: safe to open, private to this user, and verified by their checksums.

tantivy deletes files by a list that is kept beside them, follows symbolic links, and creates files by the umask. It ends
each data file with a CRC-32 of what comes before, which it does not verify itself.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marklight.errors import StoreError
from marklight.private_files import (
    FILE_MODE,
    is_plain_folder,
    open_private,
    read_private,
    write_private,
)

if TYPE_CHECKING:
    import tantivy

META = "meta.json"
_MANAGED = ".managed.json"
_DATA = re.compile(r"[0-9a-f]{32}(\.\d+)?\.[a-z]+")
"""Names of the data files that tantivy makes and may delete."""
MOST_BYTES = 64_000_000
"""Limit of the size of a JSON file of the index."""
HEAP_BYTES = 64_000_000
"""One thread: a second one gains nothing while Python makes the words."""
_FOOTER_MAGIC = 1337
_BLOCK = 1 << 20


class Unfit(Exception):
    """The index on disk is missing, foreign, damaged or behind."""


class Outdated(Unfit):
    """It is well, but its words are made in the way of an earlier version."""


@contextmanager
def sound() -> Iterator[None]:
    """Raise Unfit for whatever tantivy raises inside: the index cannot be used as it is."""
    try:
        yield
    except (Unfit, StoreError):
        raise
    except BaseException as error:
        # A panic in Rust arrives outside of Exception.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise Unfit(str(error)) from error
        raise


def demand_safe(folder: Path) -> None:
    """Raise Unfit where the index is no plain folder of plain files, or lists other files for deletion than its own."""
    try:
        safe = is_plain_folder(folder)
        with os.scandir(folder) as entries:
            safe = safe and all(entry.is_file(follow_symlinks=False) for entry in entries)
        if not safe:
            raise Unfit("it holds links or folders")
        names = json.loads(read_private(folder / _MANAGED, MOST_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise Unfit(str(error)) from error
    if not isinstance(names, list) or not all(
        isinstance(name, str) and (name == META or _DATA.fullmatch(name)) for name in names
    ):
        raise Unfit("its list of files names others than its own")


def demand_sound(folder: Path, schema: tantivy.Schema) -> None:
    """Raise Unfit where a data file does not match its checksum, or the description of the index is not ours."""
    demand_safe(folder)
    for name in os.listdir(folder):
        if _DATA.fullmatch(name) and not _matches_checksum(folder / name):
            raise Unfit(f"{name} is damaged")
    if _description(folder) != _description_of(schema):
        raise Unfit(f"{META} is damaged")


def _matches_checksum(path: Path) -> bool:
    """Compare the CRC-32 in the footer of a data file with its content: body, JSON, its length, a magic number."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        with open(open_private(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(-8, os.SEEK_END)
            length = int.from_bytes(file.read(4), "little")
            magic = int.from_bytes(file.read(4), "little")
            left = size - 8 - length
            file.seek(left)
            footer = json.loads(file.read(length))
            file.seek(0)
            found = 0
            while left and (block := file.read(min(_BLOCK, left))):
                found, left = zlib.crc32(block, found), left - len(block)
        return magic == _FOOTER_MAGIC and bool(footer["crc"] == found) and not left
    return False


def _description(folder: Path) -> Any:
    """Return the part of the description that all indexes of a schema share."""
    try:
        meta = json.loads(read_private(folder / META, MOST_BYTES))
        return meta["schema"], meta["index_settings"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unfit(str(error)) from error


def _description_of(schema: tantivy.Schema) -> Any:
    import tantivy

    with tempfile.TemporaryDirectory() as folder:
        tantivy.Index(schema, path=folder)
        return _description(Path(folder))


def open_writer(folder: Path) -> tantivy.IndexWriter:
    """Open the index for writing; first rewrite the list by which tantivy deletes files from the directory listing."""
    import tantivy

    demand_safe(folder)
    names = [name for name in os.listdir(folder) if name == META or _DATA.fullmatch(name)]
    write_private(folder / _MANAGED, json.dumps(names).encode())
    return tantivy.Index.open(str(folder)).writer(heap_size=HEAP_BYTES, num_threads=1)


def make_private(folder: Path) -> None:
    """Let this user alone read the files of an index."""
    if os.name == "nt":
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # merged away
                if entry.stat(follow_symlinks=False).st_mode & 0o077 and not entry.is_symlink():
                    os.chmod(entry.path, FILE_MODE)
