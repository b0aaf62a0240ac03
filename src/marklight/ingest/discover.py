"""Discover the documents of a library: walk the collections in path order, obey ignore rules, stat every file.

A walk covers everything, or given ranges of paths, or as much as a time limit allows. Paths come in the order in which
a store sorts them, so that a part of the walk compares with the same path range of the index.
"""

from __future__ import annotations

import os
import stat
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from marklight.ingest.path_filter import (
    IGNORE_FILES,
    NEVER,
    PathFilter,
    Rules,
    check_encoding,
    collection_roots,
    document_extensions,
    inside,
    is_unicode,
    rules_in,
)
from marklight.ingest.recipe import PARSERS, with_defaults
from marklight.model import DocumentId, Failure, FileState
from marklight.place import nested_test
from marklight.ports import PathRange

if TYPE_CHECKING:
    from marklight.ingest.read import Inode

FollowedLinks = dict[str, dict[str, str]]
"""For each collection: targets of symbolic links, and the one link to each that is followed."""

OUTSIDE = "it is in no collection"
"""Reason why a file outside all collections is not indexed."""
AFTER_SLASH = chr(ord("/") + 1)
"""In place of a folder's slash, this sorts after everything below the folder."""
DENIED = "cannot be listed: permission denied"
"""Reason why the documents of a folder are missing."""
_TIME_CHECK_INTERVAL = 256
"""Entries between two checks of the clock: a tree with fewer is always walked whole."""


class ScannedFile(NamedTuple):
    """A file of the library with the result of its stat."""

    id: DocumentId
    file: FileState
    path: str
    inode: Inode | None = None
    """Identifies the file, so that one that replaced it is not read; None where the file system has no inodes."""


@dataclass(slots=True)
class Scan:
    """The files of the library or of a part of it, and what could not be read."""

    files: dict[DocumentId, ScannedFile] = field(default_factory=dict)
    unreadable: list[Failure] = field(default_factory=list)
    """The path of a folder ends in a slash."""
    ranges: list[PathRange] | None = None
    """The part that was scanned; None is everything."""
    stopped: PathRange | None = None
    """The rest, where the time limit ended the scan."""
    folders: list[str] = field(default_factory=list)
    """The folders that were listed."""
    nested: list[DocumentId] = field(default_factory=list)
    """Folders, with a slash at the end, that are libraries of their own and left out."""


@dataclass(frozen=True, slots=True)
class Discover:
    """Select the files to index. In nested collections, a file belongs to the innermost one."""

    parsers: Mapping[str, str] = field(default_factory=PARSERS.copy)
    """Parser for each file pattern: `markdown`, `plain`, or `none` to skip. Files that match no pattern are not indexed."""
    include: tuple[str, ...] = ()
    """If set, only files that match one of these patterns are indexed; same syntax as .gitignore."""
    exclude: tuple[str, ...] = ()
    """Files and folders that match one of these patterns are never indexed, even if included."""
    hidden: bool = False
    """Index files and folders whose name begins with a dot."""
    ignore_files: tuple[str, ...] = IGNORE_FILES
    """Names of files with ignore rules for their folder; a later name overrides an earlier one."""
    follow_outside: bool = False
    """Follow symbolic links that lead out of their collection."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parsers", with_defaults(self.parsers))

    def __call__(
        self,
        collections: Mapping[str, Path],
        ranges: Sequence[PathRange] | None = None,
        until: float | None = None,
        followed_links: FollowedLinks | None = None,
    ) -> Scan:
        """Return every document of the collections, sorted, or those of some path ranges, one after the other.

        With a time limit (a `time.monotonic` value) the ranges are everything, starting where the last scan stopped.
        """
        check_encoding()
        roots, missing = collection_roots(collections)
        followed = {} if followed_links is None else followed_links
        failures = [Failure(DocumentId(name, "/"), reason) for name, reason in missing.items()]
        scan, scanned = Scan(unreadable=failures), list[PathRange]()
        everything = [PathRange(name) for name in sorted(roots)]
        for run in _runs(everything if ranges is None else ranges):
            name = run[0].collection
            if name in roots:
                if run[0].first == "":
                    followed[name] = {}
                walk = self._walk(name, roots, followed.setdefault(name, {}), scan)
                whole = run == [PathRange(name)]
                scan.files |= {file.id: file for file in walk.files(None if whole else run, until)}
                if walk.stopped is not None:
                    scan.ranges = scanned + _before(run, walk.stopped)
                    scan.stopped = PathRange(name, walk.stopped)
                    return scan
            scanned += run
        if ranges is not None and until is None:
            scan.ranges = scanned
        return scan

    def reason_ignored(self, path: Path, collections: Mapping[str, Path]) -> str | None:
        """Return why a file is not indexed, as a phrase; None if it is."""
        roots, _ = collection_roots(collections)
        # As written first: the path may lead through a symbolic link that is followed.
        written = os.path.abspath(path)
        for file in (written, os.path.join(os.path.realpath(path.parent), path.name)):
            if owners := [name for name, root in roots.items() if inside(file, root)]:
                name = max(owners, key=lambda owner: len(roots[owner]))
                walk = self._walk(name, roots, {}, Scan())
                reason = walk.filter.reason_excluded(file)
                linked = reason is not None and os.path.realpath(file) != file
                return walk.reason_not_reached(file, reason) if linked else reason
        return OUTSIDE

    def _walk(
        self, name: str, roots: Mapping[str, str], followed: dict[str, str], scan: Scan
    ) -> Walk:
        others = frozenset(roots.values()) - {roots[name]}
        return Walk(self, name, PathFilter(self, roots[name], others), followed, scan)


def _runs(ranges: Sequence[PathRange]) -> Iterator[list[PathRange]]:
    """Group ascending ranges of one collection: they are walked together."""
    run: list[PathRange] = []
    for path_range in ranges:
        last = run[-1] if run else None
        if last and (
            path_range.collection != last.collection
            or last.end is None
            or path_range.first < last.end
        ):
            yield run
            run = []
        run.append(path_range)
    if run:
        yield run


def _before(run: Sequence[PathRange], path: str) -> list[PathRange]:
    """Return the part of these ranges that comes before a path."""
    started = [part for part in run if part.first < path]
    return [
        part._replace(end=path) if part.end is None or part.end > path else part for part in started
    ]


class Folder(NamedTuple):
    """A folder being walked: its path in the collection, its rules, and its remaining entries."""

    relative: str
    rules: Rules
    entries: Iterator[tuple[str, os.DirEntry[str]]]
    linked: bool = False
    """True below a symbolic link: its files may be reached by another link too."""


class Walk:
    """Walks one collection in path order; adds to a scan what is not a file."""

    def __init__(
        self,
        options: Discover,
        name: str,
        path_filter: PathFilter,
        followed: dict[str, str],
        scan: Scan,
    ) -> None:
        self.name, self.filter, self.scan = name, path_filter, scan
        self.followed = followed
        """Targets of symbolic links, and the link that is followed: the first of several."""
        self._is_nested = nested_test()
        self.stopped: str | None = None
        """The first path that was not scanned, where the time limit ended the walk."""
        self.hidden = options.hidden
        self.ignore_files = frozenset(options.ignore_files)
        # Most documents are recognised by their extension, and this is checked for every file.
        self.extensions = document_extensions(options.parsers)
        self.is_document, self.has_patterns = self.filter.is_document, self.filter.has_patterns

    def files(
        self, ranges: Sequence[PathRange] | None = None, until: float | None = None
    ) -> Iterator[ScannedFile]:
        """Return every document once, or those of some ascending, disjoint ranges, until a `time.monotonic` value.

        Not recursive: a path may be deeper than Python's stack.
        """
        wanted = _within(ranges) if ranges is not None else None
        start = ranges[0].first if ranges else ""
        stack = [self._open(self.filter.root, "", self.filter.rules_above)]
        seen = 0
        while stack:
            folder = stack[-1]
            for key, entry in folder.entries:
                path = folder.relative + key
                if wanted and not wanted(path):
                    continue
                if until and path >= start:  # folders above the start were counted before
                    if seen and seen % _TIME_CHECK_INTERVAL == 0 and self._is_over(until, path):
                        return
                    seen += 1
                result = self._visit(entry, path, folder)
                if isinstance(result, ScannedFile):
                    yield result
                elif result:
                    stack.append(result)
                    break
            else:
                stack.pop()

    def reason_not_reached(self, file: str, reason: str | None) -> str | None:
        """Return why the walk does not reach a file below a symbolic link by this path; None if it does."""
        target = os.path.realpath(file)
        for scanned in self.files():
            if scanned.path == file:
                return None
            if os.path.realpath(scanned.path) == target:
                return f"it is the same file as {scanned.id.path}, which is indexed"
        return reason

    def _visit(
        self, entry: os.DirEntry[str], path: str, folder: Folder
    ) -> ScannedFile | Folder | None:
        """Return a document, a folder to walk, or None for what is not indexed."""
        name = entry.name
        try:
            by_name = name.endswith(self.extensions) or self.is_document(folder.relative, name)
            if by_name and entry.is_file(follow_symlinks=False):
                if self._excludes(path, folder.rules):
                    return None
                if folder.linked and not self._is_first(os.path.realpath(entry.path), path):
                    return None
                return self._scanned(entry.stat(follow_symlinks=False), entry, path)
            if entry.is_symlink():
                return self._visit_link(entry, path, folder)
            if entry.is_dir(follow_symlinks=False):
                if entry.path in self.filter.others or self._excludes(path, folder.rules):
                    return None
                return self._open(entry.path, path, folder.rules, folder.linked)
            if by_name and not self._excludes(path, folder.rules):
                self._add_unreadable(path, "is not a regular file")
        except OSError as error:
            self._add_unreadable(path, f"cannot be read: {error.strerror or error}")
        return None

    def _scanned(
        self, status: os.stat_result, entry: os.DirEntry[str], path: str
    ) -> ScannedFile | None:
        if not is_unicode(entry.name):
            self._add_unreadable(path, "its name is not valid Unicode")
            return None
        inode = (status.st_dev, status.st_ino) if status.st_ino else None
        return ScannedFile(
            DocumentId(self.name, path), FileState.from_stat(status), entry.path, inode
        )

    def _visit_link(
        self, entry: os.DirEntry[str], path: str, folder: Folder
    ) -> ScannedFile | Folder | None:
        """Return the document or folder that a symbolic link leads to, if the link is followed."""
        if not self._follows(os.path.realpath(entry.path), path):
            return None
        if path.endswith("/"):
            excluded = self._excludes(path, folder.rules)
            return None if excluded else self._open(entry.path, path, folder.rules, linked=True)
        if not self.is_document(folder.relative, entry.name) or self._excludes(path, folder.rules):
            return None
        try:
            status = os.stat(entry.path)
        except OSError:
            self._add_unreadable(path, "is a broken symbolic link")
            return None
        if not stat.S_ISREG(status.st_mode):
            self._add_unreadable(path, "is not a regular file")
            return None
        return self._scanned(status, entry, path)

    def _follows(self, target: str, relative: str) -> bool:
        """Return true if the walk does not reach the target by itself, nor by another link."""
        if inside(target, self.filter.root) and self.filter.reason_excluded(target) is None:
            return False
        return self.filter.may_follow(target) and self._is_first(target, relative)

    def _is_first(self, target: str, relative: str) -> bool:
        """Return true for the first path by which the walk reaches a file or folder below a link."""
        return self.followed.setdefault(target, relative) == relative

    def _excludes(self, path: str, rules: Rules) -> bool:
        return bool(rules or self.has_patterns) and self.filter.excludes(path, rules)

    def _open(self, folder: str, relative: str, rules: Rules, linked: bool = False) -> Folder:
        """List a folder and read its ignore files; folders sort by their name with a slash."""
        try:
            with os.scandir(folder) as entries:
                listed = [
                    (entry.name + "/" if _is_folder(entry) else entry.name, entry)
                    for entry in entries
                ]
        except PermissionError:
            self._add_unreadable(relative or "/", DENIED)
            return Folder(relative, rules, iter(()))
        except OSError as error:
            self._add_unreadable(relative or "/", f"cannot be listed: {error.strerror or error}")
            return Folder(relative, rules, iter(()))
        names = {key for key, _ in listed}
        if relative and self._is_nested(folder):
            self.scan.nested.append(DocumentId(self.name, relative))
            return Folder(relative, rules, iter(()))
        self.scan.folders.append(folder)
        if not self.ignore_files.isdisjoint(names):
            rules = (*rules, *rules_in(folder, relative, self.filter.options.ignore_files))
        kept = [pair for pair in listed if pair[0][0] != "." or self._includes_hidden(pair[1].name)]
        kept.sort(key=itemgetter(0))
        return Folder(relative, rules, iter(kept), linked)

    def _includes_hidden(self, name: str) -> bool:
        return self.hidden and name not in NEVER

    def _is_over(self, until: float, path: str) -> bool:
        """Return true if the time is over; never at a path that cannot be stored."""
        if time.monotonic() < until or not is_unicode(path):
            return False
        self.stopped = path
        return True

    def _add_unreadable(self, relative: str, reason: str) -> None:
        text = (
            relative if is_unicode(relative) else os.fsencode(relative).decode("utf-8", "replace")
        )
        self.scan.unreadable.append(Failure(DocumentId(self.name, text), reason))


def _within(ranges: Sequence[PathRange]) -> Callable[[str], bool]:
    """Return a predicate: is a path, or for a folder anything below it, in one of the ranges?"""
    firsts = [path_range.first for path_range in ranges]

    def wanted(path: str) -> bool:
        if path[-1] == "/":
            begun = bisect_left(firsts, path[:-1] + AFTER_SLASH)
        else:
            begun = bisect_right(firsts, path)
        if not begun:
            return False
        end = ranges[begun - 1].end
        return end is None or path < end

    return wanted


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return true for a folder or a symbolic link to one."""
    try:
        return entry.is_dir()
    except OSError:
        return False
