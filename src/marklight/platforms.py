"""System calls that only some platforms have, with a fallback for the others.

Each function takes the platform and the call as parameters, so that tests run the fallback of one platform on another.
`scripts/check` checks the types for Windows and macOS too.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marklight.errors import MarklightError

WINDOWS = sys.platform == "win32"
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # opening a FIFO must not wait for a writer
BINARY = getattr(os, "O_BINARY", 0)
CLOEXEC = getattr(os, "O_CLOEXEC", 0)
DIRECTORY = getattr(os, "O_DIRECTORY", 0)
HAS_DIR_FD = os.open in os.supports_dir_fd
"""Calls can be relative to an open folder."""
REPLACE_SECONDS = 2.0
"""Time limit for replacing a file that another process has open, on Windows."""
PAUSE_SECONDS = 0.02
MIN_ADDRESS_SPACE = 1_000_000_000
"""Bytes that suffice for an index run with the default model on two cores; with 800 MB it fails. Most of it is never used."""
_M_ARENA_MAX = -8
_STILL_ACTIVE, _ACCESS_DENIED, _QUERY_LIMITED_INFORMATION = 259, 5, 0x1000


def replace_file(
    source: str | Path,
    target: str | Path,
    folder: int | None = None,
    *,
    windows: bool = WINDOWS,
    call: Callable[..., None] = os.replace,
) -> None:
    """Replace a file atomically, by names in an open folder if one is given.

    Windows refuses while another process has the file open, as readers and virus scanners do for a moment.
    """
    folders = {} if folder is None else {"src_dir_fd": folder, "dst_dir_fd": folder}
    until = time.monotonic() + REPLACE_SECONDS
    while True:
        try:
            call(source, target, **folders)
            return
        except PermissionError:
            if not windows or time.monotonic() >= until:
                raise
        time.sleep(PAUSE_SECONDS)


def is_running(
    pid: int,
    *,
    windows: bool = WINDOWS,
    kill: Callable[[int, int], None] = os.kill,
    kernel: Any = None,
) -> bool:
    """Return true if a process exists, of whatever user. On Windows, signal 0 would end it."""
    if windows:
        return _is_running_on_windows(pid, kernel)
    try:
        kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _is_running_on_windows(pid: int, kernel: Any = None) -> bool:
    import ctypes

    kernel = kernel or getattr(ctypes, "windll").kernel32  # noqa: B009 - unknown to type checkers elsewhere
    kernel.OpenProcess.restype = ctypes.c_void_p
    handle = kernel.OpenProcess(_QUERY_LIMITED_INFORMATION, False, pid)
    if not handle:
        return int(kernel.GetLastError()) == _ACCESS_DENIED
    code = ctypes.c_ulong()
    known = kernel.GetExitCodeProcess(ctypes.c_void_p(handle), ctypes.byref(code))
    kernel.CloseHandle(ctypes.c_void_p(handle))
    return not known or code.value == _STILL_ACTIVE


def on_termination(handle: Callable[[int, Any], None]) -> Callable[[], None]:
    """Call a function at SIGINT and SIGTERM, in the main thread; return a function that restores the handlers.

    `loop.add_signal_handler`, and anyio's receiver that needs it, do not exist on Windows.
    """
    import signal

    before = {each: signal.signal(each, handle) for each in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore


def kill_command(pid: int, *, windows: bool = WINDOWS) -> str:
    """Return the command by which a user ends a process that does not answer."""
    return f"taskkill /F /PID {pid}" if windows else f"kill -9 {pid}"


def posix_path(text: str, *, windows: bool = WINDOWS) -> str:
    """Return a path or glob that a user typed with slashes; elsewhere a backslash is part of a name."""
    return text.replace("\\", "/") if windows else text


def limit_heaps(platform: str = sys.platform) -> bool:
    """Let the threads of a server share two heaps; return false where the C library cannot.

    glibc gives each thread a heap of its own, which keeps what the thread has freed: after 80 queries of up to 8,000 words in
    16 threads a process holds 480 MB, with two heaps 270.
    """
    if platform != "linux":
        return False
    import ctypes

    try:
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2))
    except (OSError, AttributeError):  # another C library
        return False


def resource_limit(name: str) -> int | None:
    """Return a soft limit of this process, such as `RLIMIT_NOFILE`; None without one."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft: int = getattr(resource, "getrlimit")(getattr(resource, name))[0]  # noqa: B009 - unknown to type checkers there
    return None if soft in (-1, getattr(resource, "RLIM_INFINITY")) else soft  # noqa: B009


def check_address_space(error: type[MarklightError]) -> None:
    """Raise an error if the address space is limited too much for libraries that abort where memory is lacking."""
    limit = resource_limit("RLIMIT_AS")
    if limit is not None and limit < MIN_ADDRESS_SPACE:
        raise error(
            f"This process may use {limit // 10**6:,} MB of address space; it needs {MIN_ADDRESS_SPACE // 10**6:,}",
            "Raise the limit with `ulimit -v`",
        )
