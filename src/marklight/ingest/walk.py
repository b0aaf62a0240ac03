"""One collection's folders in the order of their paths; and where on the way a path would be left out."""

from __future__ import annotations

import os
import re
import stat
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from marklight.ingest.ignore import Patterns, Rules, decide, rules_above, rules_in
from marklight.ingest.parse import OFF, parser_fits, parser_for
from marklight.ingest.read import state_of
from marklight.model import DocumentId, Failure, FileState
from marklight.ports import Span

if TYPE_CHECKING:
    from marklight.ingest.discover import Discover

_ENDING = re.compile(r"\*\.[A-Za-z0-9]+$")
_NEVER = frozenset((".marklight", ".git"))
AFTER_SLASH = chr(ord("/") + 1)
"""In place of a folder's slash: all that stands below the folder comes before."""
_AT_ONCE = 256
"""Names that are looked at before the time is: a tree with fewer is always walked whole."""


class Found(NamedTuple):
    """A file of the library as a stat saw it."""

    id: DocumentId
    file: FileState
    path: str


def inside(path: str, root: str) -> bool:
    """Whether a path is a folder or lies below it."""
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


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
        self.options = options
        self.name = name
        self.root = root
        self.others = others
        self.claimed = claimed
        """What symbolic links lead to, and the one that is followed: of several, the first."""
        self.unreadable: list[Failure] = []
        self.folders: list[str] = []
        self.stopped: str | None = None
        """What was not looked at any more when the time was over, first path of it."""
        self.ignore_files = frozenset(options.ignore_files)
        self.include = Patterns(options.include) if options.include else None
        self.exclude = Patterns(options.exclude) if options.exclude else None
        # Most files are told by their ending alone, and this is asked for each of them.
        self.endings = _endings(options.parsers)
        self.is_document = is_document(options.parsers)

    @cached_property
    def outer(self) -> Rules:
        """Rules from above the collection."""
        return rules_above(self.root, self.options.ignore_files)

    def files(
        self, spans: Sequence[Span] | None = None, until: float | None = None
    ) -> Iterator[Found]:
        """Every document once, without recursion: a path may be deeper than Python's stack.

        Of some spans only, which ascend and do not overlap; until a `time.monotonic`.
        """
        wanted = _within(spans) if spans is not None else None
        start = spans[0].first if spans else ""
        documents, hidden, plain = self.is_document, self.options.hidden, not self._picky
        endings, collection = self.endings, self.name
        open_folders = [self._opened(self.root, "", self.outer)]
        looked = 0
        while open_folders:
            below, rules, left = open_folders[-1]
            open_here = plain and not rules
            for key, entry in left:
                name = entry.name
                if name[0] == "." and (not hidden or name in _NEVER):
                    continue
                path = below + key
                if wanted and not wanted(path):
                    continue
                if until and path >= start:  # a folder above the start was looked at before
                    if looked and looked % _AT_ONCE == 0 and self._over(until, path):
                        return
                    looked += 1
                try:
                    if (name.endswith(endings) or documents(below, name)) and entry.is_file(
                        follow_symlinks=False
                    ):
                        if not open_here and self._left_out(path, rules):
                            continue
                        if not name.isascii() and not is_text(name):
                            self._unreadable(path, "its name is not valid Unicode")
                            continue
                        status = entry.stat(follow_symlinks=False)
                        id = DocumentId(collection, path)
                        yield Found(id, state_of(status), entry.path)
                    elif entry.is_symlink():
                        if not self._follows(os.path.realpath(entry.path), path):
                            continue
                        if key[-1] != "/":
                            if found := self._linked(entry, below, rules):
                                yield found
                        elif not self._left_out(path, rules):
                            open_folders.append(self._opened(entry.path, path, rules))
                            break
                    elif entry.is_dir(follow_symlinks=False):
                        if entry.path in self.others:
                            continue
                        if open_here or not self._left_out(path, rules):
                            open_folders.append(self._opened(entry.path, path, rules))
                            break
                    elif documents(below, name) and not self._left_out(path, rules):
                        self._unreadable(path, "is not a regular file")
                except OSError as error:
                    self._unreadable(path, f"cannot be read: {error.strerror or error}")
            else:
                open_folders.pop()

    def _opened(self, folder: str, below: str, rules: Rules) -> Folder:
        """A folder's own rules, and what is in it: a folder counts by its name with a slash."""
        self.folders.append(folder)
        try:
            with os.scandir(folder) as entries:
                listed = [
                    (entry.name + "/" if _leads_on(entry) else entry.name, entry)
                    for entry in entries
                ]
        except OSError as error:
            self._unreadable(below or "/", f"cannot be listed: {error.strerror or error}")
            return Folder(below, rules, iter(()))
        if not self.ignore_files.isdisjoint([key for key, _ in listed]):
            rules = (*rules, *rules_in(folder, below, self.options.ignore_files))
        listed.sort(key=itemgetter(0))
        return Folder(below, rules, iter(listed))

    def _over(self, until: float, path: str) -> bool:
        """Whether to stop here; not at a name that cannot be written down."""
        if time.monotonic() < until or not is_text(path):
            return False
        self.stopped = path
        return True

    def _follows(self, target: str, below: str) -> bool:
        """Whether a symbolic link is followed: to what the walk does not come to, and by one link only."""
        if inside(target, self.root) and self.why(target) is None:
            return False
        return self._may_follow(target) and self.claimed.setdefault(target, below) == below

    def _linked(self, entry: os.DirEntry[str], below: str, rules: Rules) -> Found | None:
        """The file that a symbolic link leads to."""
        path = below + entry.name
        if not self.is_document(below, entry.name) or self._left_out(path, rules):
            return None
        try:
            status = os.stat(entry.path)
        except OSError:
            self._unreadable(path, "is a symbolic link to nothing")
            return None
        if not stat.S_ISREG(status.st_mode) or not is_text(entry.name):
            self._unreadable(path, "is not a regular file")
            return None
        return Found(DocumentId(self.name, path), state_of(status), entry.path)

    def _may_follow(self, target: str) -> bool:
        within = inside(target, self.root) or self.options.follow_outside
        owned = any(inside(target, other) and len(other) > len(self.root) for other in self.others)
        # A link to a folder above would walk the collection inside itself.
        return within and not owned and not inside(self.root, target)

    @property
    def _picky(self) -> bool:
        return bool(self.include or self.exclude)

    def _left_out(self, below: str, rules: Rules) -> bool:
        return self._reason(below, rules) is not None

    def _reason(self, below: str, rules: Rules) -> str | None:
        """Why a path is left out: a folder's ends in a slash."""
        if self.exclude and (decided := self.exclude.decide(below)) and decided.ignores:
            return f"the setting files.exclude has {decided.pattern!r}"
        if self.include and not below.endswith("/"):
            decided = self.include.decide(below)
            if not decided or not decided.ignores:
                return "no pattern in the setting files.include fits it"
        ruled = decide(rules, below) if rules else None
        return f"a rule says so: {ruled}" if ruled and ruled.ignores else None

    def why(self, path: str) -> str | None:
        """Go down to a path as the walk does, and say where the walk would stop."""
        steps = os.path.relpath(path, self.root).split(os.sep)
        rules = self.outer
        folder, below = self.root, ""
        for number, name in enumerate(steps):
            rules = (*rules, *rules_in(folder, below, self.options.ignore_files))
            here = os.path.join(folder, name)
            is_folder = number < len(steps) - 1 or os.path.isdir(here)
            below += name + "/" * is_folder
            if name in _NEVER:
                return f"{below} is never part of a library"
            if name.startswith(".") and not self.options.hidden:
                return f"{below} is hidden; the setting files.hidden is off"
            if reason := self._reason(below, rules):
                return reason
            if os.path.islink(here) and (reason := self._link_reason(here)):
                return f"{below} {reason}"
            folder = here
        if not os.path.lexists(path):
            return "there is no such file"
        if os.path.isdir(path):
            return None
        if not self.is_document(below[: -len(steps[-1])], steps[-1]):
            fits = [each for each in self.options.parsers if parser_fits(below, each)]
            if fits:
                return f"the setting files.parsers says that {fits[0]!r} is no document"
            return "the setting files.parsers has no parser for its name"
        return None

    def _link_reason(self, path: str) -> str:
        target = os.path.realpath(path)
        if not os.path.exists(target):
            return "is a symbolic link to nothing"
        if not self._may_follow(target):
            return f"is a symbolic link that leads out of the collection, to {target}"
        return f"is a symbolic link to {target}, which is part of the collection by itself"

    def _unreadable(self, below: str, reason: str) -> None:
        shown = below if is_text(below) else os.fsencode(below).decode("utf-8", "replace")
        self.unreadable.append(Failure(DocumentId(self.name, shown), reason))


def _within(spans: Sequence[Span]) -> Callable[[str], bool]:
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


def is_text(name: str) -> bool:
    """Whether a name can be stored; one that the system could not decode holds half characters."""
    return name.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in name)


def _endings(parsers: Mapping[str, str]) -> tuple[str, ...]:
    """The endings, in lower case, that make a document whatever other patterns say."""
    found: dict[str, str] = {}
    for pattern, parser in parsers.items():
        if _ENDING.match(pattern):
            found.setdefault(pattern[1:].lower(), parser)
        elif parser in OFF:
            break  # It may be meant for some of the files that the patterns below fit.
    return tuple(ending for ending, parser in found.items() if parser not in OFF)


def is_document(parsers: Mapping[str, str]) -> Callable[[str, str], bool]:
    """Whether a folder and a name make a document, fast where all patterns are endings."""
    if all(_ENDING.match(pattern) for pattern in parsers):
        endings = _endings(parsers)
        return lambda _, name: name.lower().endswith(endings)
    return lambda folder, name: parser_for(folder + name, parsers) is not None
