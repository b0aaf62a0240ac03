"""What the system tells of changes in the folders of a library, in batches, as spans of paths to look at."""

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
"""How often a thread that waits looks for changes, and whether it shall stop: a thousandth of one core."""
STORM = 10
"""Times the quiet that is waited for, after which a batch is read though there was none."""
MANY = 500
"""Paths of one batch, from which on everything is looked at: it costs less than so many parts."""
REMOTE = frozenset(
    ("9p", "afs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "nfs", "nfs4", "smb3", "smbfs", "vboxsf")
)  # fmt: skip
"""File systems that others may write to without this machine's knowledge."""
MODIFIED = 2
"""What watchfiles calls a change of something that was there before and is there after."""

Change = tuple[int, str]


class Watch:
    """The folders that were walked, each by itself: ignored ones are none of them and cost nothing."""

    def __init__(
        self, discover: Discover, collections: Mapping[str, Path], debounce_ms: float
    ) -> None:
        self.discover = discover
        self.roots = {name: os.path.realpath(path) for name, path in collections.items()}
        self.debounce_seconds = debounce_ms / 1000
        self.problem = ""
        """Why the system does not tell what changes; empty while it does."""
        self._folders: set[str] = set()
        self._changes: set[Change] = set()
        self._again: list[PathRange] = []
        self._notify: RustNotify | None = None
        self._is_document = is_document(discover.parsers)

    def cover(self, folders: Iterable[str], again: Sequence[PathRange] = ()) -> None:
        """Watch these folders too. What happened in a new one before that is in spans to look at `again`."""
        fresh = set(folders) - self._folders
        self._folders |= fresh
        if fresh and not self.problem:
            self.renew()
            self._again += again

    def renew(self) -> None:
        """Tell the system anew which folders are meant."""
        before, self._notify = self._notify, None
        self.problem = self._unfit()
        if not self.problem:
            self._notify = self._told()
        if before:
            # What it heard until the new one listened.
            self._hear(before.watch(1, 1, 20, None))
            before.close()

    def wait(self, seconds: float, wake: Event) -> list[PathRange]:
        """What may have changed, once it is quiet; nothing when the time is over, or somebody wakes us."""
        until = time.monotonic() + seconds
        if self._notify is None:
            wake.wait(max(0.0, seconds))
            return []
        quiet_at = latest = 0.0
        while True:
            now = time.monotonic()
            if self._changes or self._again:
                latest = latest or now + STORM * self.debounce_seconds
                quiet_at = quiet_at or now + self.debounce_seconds
                if now >= min(quiet_at, latest):
                    return self._spans()
            elif now >= until:
                return []
            if wake.is_set():
                return []
            end = min(quiet_at, latest) if latest else until
            left_ms = max(1, min(WAKE_MS, int((end - now) * 1000)))
            # Told of an event to stop by, it would forget what it has heard.
            heard = self._notify.watch(STEP_MS, min(STEP_MS, left_ms), left_ms, None)
            if self._hear(heard):
                quiet_at = 0.0

    def close(self) -> None:
        """Listen no more."""
        if self._notify:
            self._notify.close()
            self._notify = None

    def _told(self) -> RustNotify | None:
        from watchfiles._rust_notify import RustNotify

        for _ in range(3):
            folders = sorted(each for each in self._folders if os.access(each, os.R_OK))
            try:
                return RustNotify(folders, False, False, 0, False, False)
            except (FileNotFoundError, PermissionError):  # gone since
                continue
            except (OSError, RuntimeError) as error:
                self.problem = (
                    f"the system cannot tell what changes in {len(folders):,} folders ({error})"
                )
                return None
        self.problem = "folders come and go too quickly to be watched"
        return None

    def _unfit(self) -> str:
        for root in self.roots.values():
            if (kind := file_system(root)) in REMOTE:
                return (
                    f"{root} is on a network file system ({kind}), which does not tell all changes"
                )
        return ""

    def _hear(self, heard: set[Change] | str) -> bool:
        """Keep what matters; whether anything does."""
        before = len(self._changes)
        for change, path in heard if isinstance(heard, set) else ():
            if not self._matters(path):
                continue
            self._changes.add((change, path))
            if path in self._folders and change != MODIFIED:
                # Another folder of this name is not the one that is watched.
                self._folders = {each for each in self._folders if not inside(each, path)}
        return len(self._changes) > before

    def _matters(self, path: str) -> bool:
        """Whether a name is one of a document, a folder or of rules: editors' own files wake nobody."""
        name = os.path.basename(path)
        if name in self.discover.ignore_files or path in self._folders:
            return True
        place = self._place(path)
        if place is None or (name.startswith(".") and not self.discover.hidden):
            return False
        return self._is_document(place[1][: -len(name)], name) or os.path.isdir(path)

    def _spans(self) -> list[PathRange]:
        """Where to look, in order and none twice."""
        changes, self._changes = self._changes, set()
        again, self._again = self._again, []
        found = [*again, *(span for _, path in changes if (span := self._span(path)))]
        if len(found) > MANY:
            return [PathRange(name) for name in sorted(self.roots)]
        return merged(found)

    def _span(self, path: str) -> PathRange | None:
        if not (place := self._place(path)):
            return None
        owner, below = place
        if os.path.basename(path) in self.discover.ignore_files:
            below = os.path.dirname(below)
        return PathRange(owner, below, below + AFTER_SLASH) if below else PathRange(owner)

    def _place(self, path: str) -> tuple[str, str] | None:
        """The collection that owns a path, and the path in it; none for what no index can hold."""
        owners = [name for name, root in self.roots.items() if inside(path, root)]
        if not owners or not is_unicode(path):
            return None
        owner = max(owners, key=lambda name: len(self.roots[name]))
        return owner, path[len(self.roots[owner]) :].replace(os.sep, "/").strip("/")


def merged(spans: Iterable[PathRange]) -> list[PathRange]:
    """The same paths in spans that ascend and do not overlap."""
    found: list[PathRange] = []
    for span in sorted(spans, key=lambda each: each[:2]):
        last = found[-1] if found else None
        if (
            last
            and last.collection == span.collection
            and (last.end is None or span.first <= last.end)
        ):
            ends = (last.end, span.end)
            end = None if None in ends else max(each for each in ends if each is not None)
            found[-1] = last._replace(end=end)
        else:
            found.append(span)
    return found


def file_system(path: str, mounts: str = "/proc/self/mounts") -> str:
    """What kind of file system a path is on, where the system tells it."""
    try:
        with open(mounts, encoding="utf-8", errors="replace") as lines:
            known = [line.split()[1:3] for line in lines if len(line.split()) > 2]
    except OSError:
        return ""
    # Spaces in a path are written as \040.
    places = [(place.replace("\\040", " "), kind) for place, kind in known]
    over = [(len(place), kind) for place, kind in places if inside(path, place)]
    return max(over)[1] if over else ""
