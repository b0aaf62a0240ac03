"""Files for this user alone: mode 0600, replaced atomically, opened without following a symbolic link.

Everything Marklight writes into a folder that others may have prepared goes through here, and so does everything it
believes without a further check.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path

FILE_MODE, FOLDER_MODE = 0o600, 0o700

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # opening a FIFO must not wait for a writer
_BINARY = getattr(os, "O_BINARY", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)


def is_own(status: os.stat_result) -> bool:
    """Return true for what this user or the administrator owns; true where files have no owner."""
    return not hasattr(os, "geteuid") or status.st_uid in (os.geteuid(), 0)


def make_private_folder(folder: Path) -> None:
    """Create a folder, and those above it that are missing, for this user alone.

    Raises NotADirectoryError where something else stands at the path, a symbolic link included.
    """
    if not os.path.isdir(folder.parent):
        make_private_folder(folder.parent)
    with suppress(FileExistsError):
        os.mkdir(folder, FOLDER_MODE)
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def open_private(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file and return its descriptor; a symbolic link, FIFO or device raises OSError."""
    descriptor = os.open(path, flags | _NOFOLLOW | _NONBLOCK | _BINARY | _CLOEXEC, FILE_MODE)
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


def write_private(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write a file whole or not at all; whatever stands at the path is replaced, never written through."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        with open(create_private(draft), "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def data_folder() -> Path:
    """Return the folder for what this user keeps on this machine: ownership records, trust, indexes kept elsewhere."""
    if named := os.environ.get("MARKLIGHT_DATA_DIR"):
        return Path(named)
    if sys.platform in ("win32", "darwin"):
        import platformdirs

        return Path(platformdirs.user_data_dir("marklight", appauthor=False))
    # The same folder as platformdirs returns, without importing it: this runs before a command finds its daemon.
    home = os.environ.get("XDG_DATA_HOME", "").strip() or os.path.expanduser("~/.local/share")
    return Path(home, "marklight")
