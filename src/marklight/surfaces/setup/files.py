"""A person's own file, replaced in one step and never lost: links followed, rights kept, a copy beside it."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

KEPT = ".before-marklight"
"""The end of the copy's name: what the file was before its last change by us."""


class Changed(Exception):
    """Somebody else wrote the file since it was read."""


def load(file: Path) -> bytes | None:
    """What the file holds; None where there is none."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def kept(file: Path) -> bytes | None:
    """What the file was before our last change of it; None where there was none, or it is not kept."""
    return load(_copy_of(Path(os.path.realpath(file))))


def replace(file: Path, before: bytes | None, after: bytes) -> Path | None:
    """Put one content in place of another, which is kept in the file that is returned."""
    # A configuration under version control is often a link to its place there, which must stay one.
    real = Path(os.path.realpath(file))
    real.parent.mkdir(parents=True, exist_ok=True)
    if before is None:
        _write(real, after, None, None)
        return None
    found = real.stat()
    if not stat.S_IMODE(found.st_mode) & 0o222:
        # Could be replaced all the same, but whoever took the right away meant it.
        raise PermissionError(None, "it is read-only", str(real))
    backup = _copy_of(real)
    _write(backup, before, found, None)
    _write(real, after, found, before)
    return backup


def _copy_of(real: Path) -> Path:
    return real.with_name(real.name + KEPT)


def _write(real: Path, data: bytes, like: os.stat_result | None, before: bytes | None) -> None:
    aside = real.with_name(f".{real.name}.{os.getpid()}.marklight")
    # Closed to others until it has the rights of the file it replaces: there may be secrets in it.
    opened = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if like else 0o666)
    try:
        with open(opened, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if like:
            _give_rights(aside, like)
        if before is not None and load(real) != before:
            raise Changed
        os.replace(aside, real)
    finally:
        with suppress(FileNotFoundError):
            aside.unlink()


def _give_rights(file: Path, like: os.stat_result) -> None:
    if hasattr(os, "chown"):
        with suppress(PermissionError):  # only root may give a file away
            os.chown(file, like.st_uid, like.st_gid)
    file.chmod(stat.S_IMODE(like.st_mode))
