"""Files for this user alone: mode 0600, replaced atomically, opened without following a symbolic link.

Use this module for all files that Marklight writes into a folder which others may have prepared, and for all files that it
trusts without another check.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from marklight.platforms import (
    BINARY,
    CLOEXEC,
    DIRECTORY,
    HAS_DIR_FD,
    NOFOLLOW,
    NONBLOCK,
    replace_file,
)

if TYPE_CHECKING:
    import sqlite3

FILE_MODE, FOLDER_MODE = 0o600, 0o700


def is_own(status: os.stat_result) -> bool:
    """Return true for what this user or the administrator owns; true where files have no owner."""
    return not hasattr(os, "geteuid") or status.st_uid in (os.geteuid(), 0)


def make_private_folder(folder: Path) -> None:
    """Create a folder, and those above it that are missing, for this user alone.

    Raises NotADirectoryError if something else exists at the path, such as a symbolic link.
    """
    if not os.path.isdir(folder.parent):
        make_private_folder(folder.parent)
    with suppress(FileExistsError):
        os.mkdir(folder, FOLDER_MODE)
    if not is_plain_folder(folder):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def is_plain_folder(folder: Path) -> bool:
    """Return true for a folder of this user that is no symbolic link."""
    return _is_plain(folder, stat.S_ISDIR)


def is_plain_file(path: Path) -> bool:
    """Return true for a regular file of this user that is no symbolic link."""
    return _is_plain(path, stat.S_ISREG)


def _is_plain(path: Path, is_kind: Callable[[int], bool]) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return is_kind(status.st_mode) and is_own(status)


def remove_foreign(path: Path, is_kind: Callable[[int], bool]) -> None:
    """Delete what exists at a path unless it is of a kind, such as `stat.S_ISREG`, and this user's.

    What is missing stays missing: another process may create it meanwhile. OSError if it cannot be found out.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not (is_kind(status.st_mode) and is_own(status)):
        remove(path)


def remove(path: Path) -> None:
    """Delete whatever exists at a path, a folder with its content; no symbolic link is followed."""
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            import shutil  # 8 ms, and most commands delete nothing

            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    except FileNotFoundError:
        return


def open_private(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file and return its descriptor; a symbolic link, FIFO or device raises OSError.

    Neither the file nor its folder may be a symbolic link.
    """
    flags |= NOFOLLOW | NONBLOCK | BINARY | CLOEXEC
    with _open_folder(path.parent) as folder:
        descriptor = os.open(
            path.name if folder is not None else path, flags, FILE_MODE, dir_fd=folder
        )
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def create_private(path: Path) -> int:
    """Create a file that must not exist, and return its descriptor."""
    return open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)


def read_private(path: Path, limit_bytes: int = 65_536) -> bytes:
    """Return the content of a small file of this user; OSError for a link, a foreign or a larger one."""
    with open(open_private(path), "rb") as file:
        if not is_own(os.fstat(file.fileno())):
            raise PermissionError(errno.EPERM, "belongs to another user", str(path))
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise OSError(errno.EFBIG, "is larger than expected", str(path))
    return data


def write_private(path: Path, data: bytes, *, durable: bool = False, replace: bool = True) -> None:
    """Write a file whole or not at all; whatever exists at the path is replaced, never written through.

    Without `replace`, raise FileExistsError if anything exists at the path.
    """
    draft = path.with_name(f"{path.name}.{os.urandom(4).hex()}.new")
    try:
        with open(create_private(draft), "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        with _open_folder(path.parent) as folder:
            source, target = (
                (draft.name, path.name) if folder is not None else (str(draft), str(path))
            )
            if not replace:
                try:
                    os.link(source, target, src_dir_fd=folder, dst_dir_fd=folder)
                    return
                except FileExistsError:
                    raise
                except OSError:  # a file system without hard links
                    if os.path.lexists(path):
                        raise FileExistsError(errno.EEXIST, "exists", str(path)) from None
            replace_file(source, target, folder)
    finally:
        with suppress(OSError):
            draft.unlink()


def lock_file(path: Path, wait_seconds: float) -> sqlite3.Connection:
    """Lock a file until the returned value is closed or this process ends; raise TimeoutError if it is not free in time.

    An empty SQLite file is locked: SQLite knows the locks of all systems, and is loaded for the index in any case.
    """
    import sqlite3

    with suppress(FileExistsError):
        os.close(create_private(path))
    status = os.lstat(path)
    if not (stat.S_ISREG(status.st_mode) and is_own(status)) or status.st_size:
        remove(path)
        with suppress(FileExistsError):
            os.close(create_private(path))
    remove(path.with_name(f"{path.name}-journal"))
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(
            path, timeout=max(0.0, wait_seconds), isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = MEMORY")  # no file beside the lock
        connection.execute("BEGIN EXCLUSIVE")
        return connection
    except sqlite3.Error as error:
        if connection:
            connection.close()
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            raise TimeoutError(errno.ETIMEDOUT, "is locked", str(path)) from None
        raise OSError(errno.EIO, str(error), str(path)) from error


@contextmanager
def _open_folder(folder: Path) -> Iterator[int | None]:
    """Open a folder that is no symbolic link, for calls relative to it; None where the system has no such calls."""
    if not HAS_DIR_FD:
        yield None
        return
    descriptor = os.open(folder, os.O_RDONLY | DIRECTORY | NOFOLLOW | CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Let the names of the files in a folder survive a loss of power, where the system has a call for it."""
    with _open_folder(folder) as descriptor:
        if descriptor is not None:
            os.fsync(descriptor)


def data_folder() -> Path:
    """Return the data directory of this user on this machine: indexes, their records, trust."""
    return _user_folder("data", ".local/share")


def state_folder() -> Path:
    """Return the folder for the state of running processes."""
    return _user_folder("state", ".local/state")


def cache_folder() -> Path:
    """Return the folder for what can be downloaded again."""
    return _user_folder("cache", ".cache", "Library/Caches", "Cache")


def config_folder() -> Path:
    """Return the folder of the user's own settings."""
    return _user_folder("config", ".config")


def _user_folder(
    kind: str, linux: str, mac: str = "Library/Application Support", windows: str = ""
) -> Path:
    """Return a folder of this user: named by a variable, or where the platform has it; links to it are resolved."""
    folder = os.environ.get(f"MARKLIGHT_{kind.upper()}_DIR")
    if folder:
        return Path(os.path.realpath(folder))
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/AppData/Local")
        return Path(os.path.realpath(os.path.join(home, "marklight", windows)))
    base = mac if sys.platform == "darwin" else linux
    home = os.environ.get(f"XDG_{kind.upper()}_HOME", "").strip() or os.path.expanduser(f"~/{base}")
    return Path(os.path.realpath(os.path.join(home, "marklight")))
