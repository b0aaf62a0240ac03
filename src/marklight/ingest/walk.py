"""One collection's documents in the order of their paths: all, or some spans of them, or as many as time allows."""

from __future__ import annotations

import os
import stat
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from marklight.ingest.bounds import NEVER, Bounds
from marklight.ingest.ignore import Rules, rules_in
from marklight.ingest.names import endings, inside, is_text
from marklight.ingest.read import Identity
from marklight.ingest.timestamps import state_of
from marklight.model import DocumentId, Failure, FileState
from marklight.ports import PathRange

if TYPE_CHECKING:
    from marklight.ingest.discover import Discover

AFTER_SLASH = chr(ord("/") + 1)
"""In place of a folder's slash: all that stands below the folder comes before."""
DENIED = "cannot be listed: Permission denied"
"""Reason why the documents of a folder are missing."""
_AT_ONCE = 256
"""Names that are looked at before the time is: a tree with fewer is always walked whole."""


class Found(NamedTuple):
    """A file of the library as a stat saw it."""

    id: DocumentId
    file: FileState
    path: str
    identity: Identity | None = None
    """Device and inode, so that only this file is read; None where files have none."""


class Folder(NamedTuple):
    """One that is being walked: its path in the collection, the rules in it, and what is left of it."""

    below: str
    rules: Rules
    left: Iterator[tuple[str, os.DirEntry[str]]]


class Walk:
    """One collection, in the order in which a store sorts its paths: a part of it is a span of them."""

    def __init__(
        self,
        options: Discover,
        name: str,
        root: str,
        others: frozenset[str],
        claimed: dict[str, str],
    ) -> None:
        self.name = name
        self.claimed = claimed
        """What symbolic links lead to, and the one that is followed: of several, the first."""
        self.bounds = Bounds(options, root, others)
        self.unreadable: list[Failure] = []
        self.folders: list[str] = []
        self.stopped: str | None = None
        """What was not looked at any more when the time was over, first path of it."""
        self.hidden = options.hidden
        self.ignore_files = frozenset(options.ignore_files)
        # Most files are told by their ending alone, and this is asked for each of them.
        self.endings = endings(options.parsers)
        self.is_document, self.picky = self.bounds.is_document, self.bounds.picky

    def files(
        self, spans: Sequence[PathRange] | None = None, until: float | None = None
    ) -> Iterator[Found]:
        """Every document once, without recursion: a path may be deeper than Python's stack.

        Of some spans only, which ascend and do not overlap; until a `time.monotonic`.
        """
        wanted = _within(spans) if spans is not None else None
        start = spans[0].first if spans else ""
        open_folders = [self._opened(self.bounds.root, "", self.bounds.outer)]
        looked = 0
        while open_folders:
            folder = open_folders[-1]
            for key, entry in folder.left:
                path = folder.below + key
                if wanted and not wanted(path):
                    continue
                if until and path >= start:  # a folder above the start was looked at before
                    if looked and looked % _AT_ONCE == 0 and self._over(until, path):
                        return
                    looked += 1
                found = self._taken(entry, path, folder)
                if isinstance(found, Found):
                    yield found
                elif found:
                    open_folders.append(found)
                    break
            else:
                open_folders.pop()

    def _taken(self, entry: os.DirEntry[str], path: str, folder: Folder) -> Found | Folder | None:
        """What an entry is to the library: a document, a folder to go down into, or nothing."""
        name = entry.name
        try:
            by_name = name.endswith(self.endings) or self.is_document(folder.below, name)
            if by_name and entry.is_file(follow_symlinks=False):
                if self._left_out(path, folder.rules):
                    return None
                return self._seen(entry.stat(follow_symlinks=False), entry, path)
            if entry.is_symlink():
                return self._linked(entry, path, folder)
            if entry.is_dir(follow_symlinks=False):
                if entry.path in self.bounds.others or self._left_out(path, folder.rules):
                    return None
                return self._opened(entry.path, path, folder.rules)
            if by_name and not self._left_out(path, folder.rules):
                self._unreadable(path, "is not a regular file")
        except OSError as error:
            self._unreadable(path, f"cannot be read: {error.strerror or error}")
        return None

    def _seen(self, status: os.stat_result, entry: os.DirEntry[str], path: str) -> Found | None:
        if not is_text(entry.name):
            self._unreadable(path, "its name is not valid Unicode")
            return None
        identity = (status.st_dev, status.st_ino) if status.st_ino else None
        return Found(DocumentId(self.name, path), state_of(status), entry.path, identity)

    def _linked(self, entry: os.DirEntry[str], path: str, folder: Folder) -> Found | Folder | None:
        """What a symbolic link leads to, where it is followed."""
        if not self._follows(os.path.realpath(entry.path), path):
            return None
        if path.endswith("/"):
            left_out = self._left_out(path, folder.rules)
            return None if left_out else self._opened(entry.path, path, folder.rules)
        if not self.is_document(folder.below, entry.name) or self._left_out(path, folder.rules):
            return None
        try:
            status = os.stat(entry.path)
        except OSError:
            self._unreadable(path, "is a symbolic link to nothing")
            return None
        if not stat.S_ISREG(status.st_mode):
            self._unreadable(path, "is not a regular file")
            return None
        return self._seen(status, entry, path)

    def _follows(self, target: str, below: str) -> bool:
        """Whether a symbolic link is followed: to what the walk does not come to, and by one link only."""
        if inside(target, self.bounds.root) and self.bounds.why(target) is None:
            return False
        return self.bounds.may_follow(target) and self.claimed.setdefault(target, below) == below

    def _left_out(self, path: str, rules: Rules) -> bool:
        return bool(rules or self.picky) and self.bounds.leaves_out(path, rules)

    def _opened(self, folder: str, below: str, rules: Rules) -> Folder:
        """A folder's own rules, and what is in it: a folder counts by its name with a slash."""
        self.folders.append(folder)
        try:
            with os.scandir(folder) as entries:
                listed = [
                    (entry.name + "/" if _leads_on(entry) else entry.name, entry)
                    for entry in entries
                ]
        except PermissionError:
            self._unreadable(below or "/", DENIED)
            return Folder(below, rules, iter(()))
        except OSError as error:
            self._unreadable(below or "/", f"cannot be listed: {error.strerror or error}")
            return Folder(below, rules, iter(()))
        if not self.ignore_files.isdisjoint([key for key, _ in listed]):
            rules = (*rules, *rules_in(folder, below, self.bounds.options.ignore_files))
        seen = [each for each in listed if each[0][0] != "." or self._shows(each[1].name)]
        seen.sort(key=itemgetter(0))
        return Folder(below, rules, iter(seen))

    def _shows(self, hidden: str) -> bool:
        """Whether a name that begins with a dot counts."""
        return self.hidden and hidden not in NEVER

    def _over(self, until: float, path: str) -> bool:
        """Whether to stop here; not at a name that cannot be written down."""
        if time.monotonic() < until or not is_text(path):
            return False
        self.stopped = path
        return True

    def _unreadable(self, below: str, reason: str) -> None:
        shown = below if is_text(below) else os.fsencode(below).decode("utf-8", "replace")
        self.unreadable.append(Failure(DocumentId(self.name, shown), reason))


def _within(spans: Sequence[PathRange]) -> Callable[[str], bool]:
    """Whether a path is in one of them; that of a folder, whether something below it may be."""
    firsts = [span.first for span in spans]

    def wanted(path: str) -> bool:
        if path[-1] == "/":
            begun = bisect_left(firsts, path[:-1] + AFTER_SLASH)
        else:
            begun = bisect_right(firsts, path)
        if not begun:
            return False
        end = spans[begun - 1].end
        return end is None or path < end

    return wanted


def _leads_on(entry: os.DirEntry[str]) -> bool:
    """Whether documents may stand below it."""
    try:
        return entry.is_dir()
    except OSError:
        return False
