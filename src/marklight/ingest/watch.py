"""Watch the folders of a library for file-system events.

On Linux, inotify is used directly: its queue can be read at any moment, so that a search is sure of all earlier changes
(watchfiles delivers them later, from a thread, and drops the report of an overflow). Changes of a file through
memory cause an event when it is closed. Elsewhere events arrive with a delay: they wake the watcher, and each search compares all
files. The same holds where not all changes cause events, as on network and FUSE file systems.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from threading import Event, Lock

from marklight.ingest.discover import Discover, file_system, is_local
from marklight.ingest.path_filter import may_be_document
from marklight.ingest.scan_record import EVERYTHING
from marklight.platforms import CLOEXEC, NONBLOCK

STEP_MS, WAKE_SECONDS = 50, 0.2
"""Intervals at which a waiting thread polls for events, and for its end: a thousandth of one core."""
MAX_DEBOUNCES = 10
"""A batch is returned after so many debounce intervals, even if events never pause."""


class Watch:
    """Collects the folders in which something has changed. Folders are added one by one: ignored ones cost nothing."""

    def __init__(self, discover: Discover, debounce_ms: float) -> None:
        self.problem = ""
        """Why the folders cannot be watched; empty if they are."""
        self._discover, self._debounce_seconds = discover, debounce_ms / 1000
        self._may_be_document = may_be_document(discover.parsers)
        self._changed: set[str] = set()
        self._lock = Lock()

    def add(self, folder: str) -> None:
        """Watch a folder, without those below it; to be called before it is listed."""
        raise NotImplementedError

    def take(self) -> set[str]:
        """Return the folders in which something has changed until now, once.

        With a separator at the end, all folders below may have changed; `EVERYTHING` if that is not known.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Stop watching."""
        raise NotImplementedError

    def _poll(self, seconds: float) -> bool:
        """Wait for events; return true if there were relevant ones."""
        raise NotImplementedError

    def wait(self, seconds: float, wake: Event) -> bool:
        """Wait for a change and until events pause; return false after `seconds` or when `wake` is set."""
        if self.problem:
            wake.wait(max(0.0, seconds))
            return False
        now = time.monotonic()
        until = now + seconds
        quiet_at = latest = now + self._debounce_seconds
        is_changed = bool(self._changed)
        while now < (min(quiet_at, latest) if is_changed else until):
            if wake.is_set():
                return False
            end = min(quiet_at, latest) if is_changed else until
            if self._poll(min(WAKE_SECONDS, end - now)):
                quiet_at = time.monotonic() + self._debounce_seconds
                if not is_changed:
                    latest = quiet_at + (MAX_DEBOUNCES - 1) * self._debounce_seconds
                is_changed = True
            now = time.monotonic()
        return is_changed

    def _is_relevant(self, name: str) -> bool:
        """Return true for the names of documents and ignore files, false for temporary files of editors."""
        if name in self._discover.ignore_files:
            return True
        if name.startswith(".") and not self._discover.hidden:
            return False
        return self._may_be_document(name)


class InotifyWatch(Watch):
    """Reads the queue of inotify, to which the system call that makes a change has added its event."""

    MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
    MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
    DELETE_SELF, MOVE_SELF = 0x400, 0x800
    UNMOUNT, OVERFLOW, IGNORED = 0x2000, 0x4000, 0x8000
    ONLY_FOLDERS, IS_FOLDER = 0x01000000, 0x40000000
    MASK = (
        MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE
        | DELETE_SELF | MOVE_SELF | ONLY_FOLDERS
    )  # fmt: skip
    EVENT = struct.Struct("iIII")
    BUFFER_BYTES = 65_536

    def __init__(self, discover: Discover, debounce_ms: float) -> None:
        super().__init__(discover, debounce_ms)
        self._system = ctypes.CDLL(None, use_errno=True)
        self._queue: int = self._system.inotify_init1(NONBLOCK | CLOEXEC)
        if self._queue < 0:
            self.problem = f"Folders cannot be watched ({os.strerror(ctypes.get_errno())})"
        self._folders: dict[int, str] = {}

    def add(self, folder: str) -> None:
        """Watch a folder; one that does not exist any more is left out."""
        with self._lock:
            if self.problem:
                return
            number = self._add_watch(folder)
            if number >= 0:
                self._folders[number] = folder
            elif (error := ctypes.get_errno()) not in (errno.ENOENT, errno.EACCES, errno.ENOTDIR):
                count = f"{len(self._folders):,} of the folders are watched, more are not possible"
                self.problem = f"{count} ({os.strerror(error)})"
            try:
                if not is_local(os.stat(folder).st_dev, folder):
                    kind = file_system(folder) or "unknown"
                    self.problem = (
                        f"{folder} is on a file system ({kind}) that may not report all changes"
                    )
            except OSError:
                pass  # it is gone

    def _add_watch(self, folder: str) -> int:
        number: int = self._system.inotify_add_watch(self._queue, os.fsencode(folder), self.MASK)
        return number

    def take(self) -> set[str]:
        with self._lock:
            self._read()
            changed, self._changed = self._changed, set()
        return changed

    def close(self) -> None:
        with self._lock:
            if self._queue >= 0:
                os.close(self._queue)
            self._queue, self.problem = -1, "The folders are not watched any more"

    def _poll(self, seconds: float) -> bool:
        if sys.platform != "win32":
            waiting = select.poll()
            waiting.register(self._queue, select.POLLIN)
            waiting.poll(max(0.0, seconds) * 1000)
        with self._lock:
            return self._read()

    def _read(self) -> bool:
        """Read all events in the queue; return true if there were relevant ones."""
        changed: set[str] = set()
        while self._queue >= 0:
            try:
                data = os.read(self._queue, self.BUFFER_BYTES)
            except BlockingIOError:
                break
            start = 0
            while start < len(data):
                number, mask, _, length = self.EVENT.unpack_from(data, start)
                start += self.EVENT.size
                name = data[start : start + length].rstrip(b"\0")
                start += length
                changed.update(self._changed_by(number, mask, os.fsdecode(name)))
        self._changed |= changed
        return bool(changed)

    def _changed_by(self, number: int, mask: int, name: str) -> Iterator[str]:
        """Yield the folders that an event of a watched folder concerns."""
        if mask & (self.OVERFLOW | self.UNMOUNT):
            yield EVERYTHING
        folder = self._folders.get(number)
        if mask & self.IGNORED:
            self._folders.pop(number, None)
        elif folder is None:
            return
        elif mask & (self.DELETE_SELF | self.MOVE_SELF):
            yield folder + os.sep
        elif mask & self.IS_FOLDER and name:
            yield from (folder, os.path.join(folder, name) + os.sep)
        elif not name or self._is_relevant(name):
            yield folder
        elif mask & (self.CREATE | self.MOVED_TO) and os.path.islink(os.path.join(folder, name)):
            yield folder  # the link may lead to a folder


class NotifyWatch(Watch):
    """Receives events of FSEvents or ReadDirectoryChangesW from watchfiles. They only wake the watcher."""

    def __init__(self, discover: Discover, debounce_ms: float, roots: Iterable[str]) -> None:
        from watchfiles._rust_notify import RustNotify

        super().__init__(discover, debounce_ms)
        self._folders: set[str] = set()
        try:
            self._notify = RustNotify(list(roots), False, False, 0, True, True)
        except (OSError, RuntimeError) as error:
            self.problem = f"Folders cannot be watched ({error})"

    def add(self, folder: str) -> None:
        """Note a folder whose events are relevant; the roots are watched with all below them."""
        self._folders.add(folder)

    def take(self) -> set[str]:
        """Return `EVERYTHING`: changes may not have been delivered yet."""
        self._changed.clear()
        return {EVERYTHING}

    def close(self) -> None:
        if not self.problem:
            self._notify.close()
        self.problem = "The folders are not watched any more"

    def _poll(self, seconds: float) -> bool:
        # Without a stop event: with one, watchfiles drops the events that it has collected.
        events = self._notify.watch(STEP_MS, STEP_MS, max(1, int(seconds * 1000)), None)
        for _, path in events if isinstance(events, set) else ():
            folder, name = os.path.split(path)
            is_folder = path in self._folders or os.path.isdir(path)
            if folder in self._folders and (is_folder or self._is_relevant(name)):
                self._changed.add(folder)
        return bool(self._changed)


def open_watch(discover: Discover, debounce_ms: float, roots: Iterable[str]) -> Watch:
    """Return the watch of this platform."""
    is_linux = sys.platform == "linux"
    if is_linux:
        return InotifyWatch(discover, debounce_ms)
    return NotifyWatch(discover, debounce_ms, roots)
