"""Watch the folders of a library for file-system events; return changes in debounced batches, as path ranges to scan."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from marklight.ingest.discover import AFTER_SLASH, Discover
from marklight.ingest.path_filter import inside, is_document, is_unicode
from marklight.ports import PathRange

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

STEP_MS, WAKE_MS = 50, 200
"""Intervals at which a waiting thread polls for events, and for its end: a thousandth of one core."""
MAX_DEBOUNCES = 10
"""A batch is returned after so many debounce intervals, even if events never pause."""
MAX_RANGES = 500
"""With more changes in a batch everything is scanned: that is faster than so many parts."""
REMOTE = frozenset(
    ("9p", "afs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "nfs", "nfs4", "smb3", "smbfs", "vboxsf")
)  # fmt: skip
"""Network file systems, where changes by other machines cause no events."""
MODIFIED = 2
"""The number of watchfiles for a modified file; others are added and deleted ones."""

Change = tuple[int, str]


class Watch:
    """Watches the scanned folders one by one, not recursively: ignored folders cost nothing."""

    def __init__(
        self, discover: Discover, collections: Mapping[str, Path], debounce_ms: float
    ) -> None:
        self.discover = discover
        self.roots = {name: os.path.realpath(path) for name, path in collections.items()}
        self.debounce_seconds = debounce_ms / 1000
        self.problem = ""
        """Why the folders cannot be watched; empty if they are."""
        self._folders: set[str] = set()
        self._changes: set[Change] = set()
        self._rescan: list[PathRange] = []
        self._notify: RustNotify | None = None
        self._is_document = is_document(discover.parsers)

    def add_folders(self, folders: Iterable[str], rescan: Sequence[PathRange] = ()) -> None:
        """Watch these folders too. If one is new, `rescan` is part of the next batch: files in it may have changed before."""
        fresh = set(folders) - self._folders
        self._folders |= fresh
        if fresh and not self.problem:
            self.restart()
            self._rescan += rescan

    def restart(self) -> None:
        """Register the folders again."""
        before, self._notify = self._notify, None
        self.problem = self._network_problem()
        if not self.problem:
            self._notify = self._register()
        if before:
            # Events until the new one was registered.
            self._add_events(before.watch(1, 1, 20, None))
            before.close()

    def wait(self, seconds: float, wake: Event) -> list[PathRange]:
        """Wait for changes and return them once events pause; empty after `seconds` or when `wake` is set."""
        until = time.monotonic() + seconds
        if self._notify is None:
            wake.wait(max(0.0, seconds))
            return []
        quiet_at = latest = 0.0
        while True:
            now = time.monotonic()
            if self._changes or self._rescan:
                latest = latest or now + MAX_DEBOUNCES * self.debounce_seconds
                quiet_at = quiet_at or now + self.debounce_seconds
                if now >= min(quiet_at, latest):
                    return self._ranges()
            elif now >= until:
                return []
            if wake.is_set():
                return []
            end = min(quiet_at, latest) if latest else until
            left_ms = max(1, min(WAKE_MS, int((end - now) * 1000)))
            # Without a stop event: with one, watchfiles drops the events that it has collected.
            events = self._notify.watch(STEP_MS, min(STEP_MS, left_ms), left_ms, None)
            if self._add_events(events):
                quiet_at = 0.0

    def close(self) -> None:
        """Stop watching."""
        if self._notify:
            self._notify.close()
            self._notify = None

    def _register(self) -> RustNotify | None:
        from watchfiles._rust_notify import RustNotify

        for _ in range(3):
            folders = sorted(folder for folder in self._folders if os.access(folder, os.R_OK))
            try:
                return RustNotify(folders, False, False, 0, False, False)
            except (FileNotFoundError, PermissionError):  # removed since it was listed
                continue
            except (OSError, RuntimeError) as error:
                self.problem = f"{len(folders):,} folders cannot be watched ({error})"
                return None
        self.problem = "folders cannot be watched because they are created and deleted too quickly"
        return None

    def _network_problem(self) -> str:
        for root in self.roots.values():
            if (kind := file_system(root)) in REMOTE:
                return f"{root} is on a network file system ({kind}), which does not report all changes"
        return ""

    def _add_events(self, events: set[Change] | str) -> bool:
        """Keep the relevant events; return true if there are any."""
        before = len(self._changes)
        for change, path in events if isinstance(events, set) else ():
            if not self._is_relevant(path):
                continue
            self._changes.add((change, path))
            if path in self._folders and change != MODIFIED:
                # A new folder of this name is not the one that is watched.
                self._folders = {folder for folder in self._folders if not inside(folder, path)}
        return len(self._changes) > before

    def _is_relevant(self, path: str) -> bool:
        """Return true for documents, folders and ignore files, false for temporary files of editors."""
        name = os.path.basename(path)
        if name in self.discover.ignore_files or path in self._folders:
            return True
        owner = self._owner(path)
        if owner is None or (name.startswith(".") and not self.discover.hidden):
            return False
        return self._is_document(owner[1][: -len(name)], name) or os.path.isdir(path)

    def _ranges(self) -> list[PathRange]:
        """Return the ranges to scan, ascending and disjoint."""
        changes, self._changes = self._changes, set()
        rescan, self._rescan = self._rescan, []
        ranges = [*rescan, *(changed for _, path in changes if (changed := self._range(path)))]
        if len(ranges) > MAX_RANGES:
            return [PathRange(name) for name in sorted(self.roots)]
        return merged(ranges)

    def _range(self, path: str) -> PathRange | None:
        if not (owner := self._owner(path)):
            return None
        collection, relative = owner
        if os.path.basename(path) in self.discover.ignore_files:
            relative = os.path.dirname(relative)
        if not relative:
            return PathRange(collection)
        return PathRange(collection, relative, relative + AFTER_SLASH)

    def _owner(self, path: str) -> tuple[str, str] | None:
        """Return the collection that owns a path, and the path in it; None for a path that cannot be stored."""
        owners = [name for name, root in self.roots.items() if inside(path, root)]
        if not owners or not is_unicode(path):
            return None
        owner = max(owners, key=lambda name: len(self.roots[name]))
        return owner, path[len(self.roots[owner]) :].replace(os.sep, "/").strip("/")


def merged(ranges: Iterable[PathRange]) -> list[PathRange]:
    """Return the same paths as ascending, disjoint ranges."""
    result: list[PathRange] = []
    for path_range in sorted(ranges, key=lambda part: part[:2]):
        last = result[-1] if result else None
        if (
            last
            and last.collection == path_range.collection
            and (last.end is None or path_range.first <= last.end)
        ):
            ends = (last.end, path_range.end)
            end = None if None in ends else max(part for part in ends if part is not None)
            result[-1] = last._replace(end=end)
        else:
            result.append(path_range)
    return result


def file_system(path: str, mounts: str = "/proc/self/mounts") -> str:
    """Return the type of the file system of a path; empty if unknown."""
    try:
        with open(mounts, encoding="utf-8", errors="replace") as lines:
            mounted = [line.split()[1:3] for line in lines if len(line.split()) > 2]
    except OSError:
        return ""
    # Spaces in a path are written as \040.
    places = [(place.replace("\\040", " "), kind) for place, kind in mounted]
    over = [(len(place), kind) for place, kind in places if inside(path, place)]
    return max(over)[1] if over else ""
