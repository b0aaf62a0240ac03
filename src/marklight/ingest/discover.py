"""Discover the documents of a library: walk the collections, obey ignore rules, stat every file.

A full scan makes a record of every folder: its time stamps, its documents, and their sizes and time stamps. Later scans
compare the disk with the record, by one stat for each folder and document. A folder with unchanged stamps has the same
entries; a changed one is listed again, and a scan returns only documents that differ. Stamps are trusted on local file
systems, and only if a later change must get another stamp (see `read.stored_state`). A change of ignore rules,
symbolic links, collections or nested libraries leads to a full scan.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from functools import cached_property
from itertools import chain
from operator import attrgetter
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
from marklight.ingest.scan_record import UNKNOWN, UNLISTED, ListedFolder, ScanRecord
from marklight.lazy import dataclass
from marklight.model import DocumentId, Failure, FileState, digest
from marklight.place import library_names, nested_test

if TYPE_CHECKING:
    from marklight.ingest.read import Inode
    from marklight.ingest.watch import Watch

OUTSIDE = "it is in no collection"
"""Reason why a file outside all collections is not indexed."""
DENIED = "cannot be listed: permission denied"
"""Reason why the documents of a folder are missing."""
LOCAL = frozenset(
    "apfs bcachefs btrfs exfat ext2 ext3 ext4 f2fs hfs hfsplus jfs ntfs3 ramfs reiserfs tmpfs ufs vfat xfs zfs".split()
)
"""File systems on which this kernel makes every change: folders get new stamps, and watches receive all events."""
_STATE = attrgetter("st_size", "st_mtime_ns", "st_ctime_ns")


class ScannedFile(NamedTuple):
    """A file of the library with the result of its stat."""

    id: DocumentId
    file: FileState
    path: str
    inode: Inode | None = None
    """Identifies the file, so that one that replaced it is not read; None where the file system has no inodes."""


class ScannedFiles(Mapping[DocumentId, ScannedFile]):
    """Files by document, as columns of numbers: the first scan of a library returns all of its files.

    A file takes a third of the memory of a `ScannedFile`, which is made when it is needed.
    """

    def __init__(self, roots: Mapping[str, str]) -> None:
        self._roots = roots
        self._rows: dict[DocumentId, int] = {}
        self._states = array("q")
        self._devices: list[int] = []
        self._inodes: list[int] = []
        """Inode numbers; 0 where the file system has none."""
        self._known_devices: dict[int, int] = {}

    def add(self, id: DocumentId, file: FileState, inode: Inode | None = None) -> None:
        """Add a file, or replace its state."""
        self._rows[id] = len(self._inodes)
        self._states.extend(file)
        device, number = inode or (0, 0)
        self._devices.append(self._known_devices.setdefault(device, device))
        self._inodes.append(number)

    def sort(self) -> None:
        """Order the files by document."""
        self._rows = {id: self._rows[id] for id in sorted(self._rows)}

    def __getitem__(self, id: DocumentId) -> ScannedFile:
        row = self._rows[id]
        file = FileState(*self._states[3 * row : 3 * row + 3])
        inode = (self._devices[row], self._inodes[row]) if self._inodes[row] else None
        return ScannedFile(id, file, os.path.join(self._roots[id.collection], id.path), inode)

    def __contains__(self, id: object) -> bool:
        return id in self._rows

    def __iter__(self) -> Iterator[DocumentId]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


@dataclass(slots=True)
class Scan:
    """Files that differ from the last record; all files without one."""

    record: ScanRecord
    files: ScannedFiles
    """New and changed documents; in a full scan all of them, sorted."""
    gone: set[DocumentId] = field(default_factory=set)
    """Documents and unreadable entries of the last record that no longer exist."""
    is_full: bool = True
    checked: int | None = None
    """Number of documents that were compared until the time limit ended the scan; None if it was complete."""
    watch: Watch | None = None
    """The watch that the folders were added to."""
    number: int = 0
    """Number of the last report of changed folders that the scan has compared."""
    nested: list[DocumentId] = field(default_factory=list)
    """Folders, with a slash at the end, that are libraries of their own and left out."""

    @property
    def unreadable(self) -> list[Failure]:
        """Return all entries that cannot be indexed."""
        return list(chain.from_iterable(self.record.unreadable.values()))


@dataclass(frozen=True)
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

    @cached_property
    def _text(self) -> str:
        return repr(self)

    def __call__(
        self,
        collections: Mapping[str, Path],
        record: ScanRecord | None = None,
        folders: Collection[str] | None = None,
        until: float | None = None,
        on_folder: Callable[[str], None] | None = None,
    ) -> Scan:
        """Return what differs from a record, in all folders or in some; without a record, every document.

        The scan stops at `until`, a `time.monotonic` value. `on_folder` is called before a folder is listed.
        """
        check_encoding()
        roots, missing = collection_roots(collections)
        filters = {name: self._filter(name, roots) for name in sorted(roots)}
        above = [
            (rules.name, rules.prefix, rules.patterns.lines)
            for path_filter in filters.values()
            for rules in path_filter.rules_above
        ]
        names = sorted(library_names())
        surroundings = digest(repr((self._text, roots, missing, names, above)))
        if record and record.surroundings == surroundings and record.roots == roots:
            scan = Scan(record, ScannedFiles(roots), is_full=False)
            if Update(self, filters, scan, on_folder).run(folders, until):
                return scan
            until = None  # a full scan that is cut would seem to miss files
        scan = Scan(ScanRecord(surroundings, roots), ScannedFiles(roots))
        for name, reason in missing.items():
            scan.record.unreadable[name] = (Failure(DocumentId(name, "/"), reason),)
        for name, path_filter in filters.items():
            walk = Walk(self, name, path_filter, scan, on_folder)
            walk.run(Step(path_filter.root, "", path_filter.rules_above), until)
        scan.files.sort()
        return scan

    def reason_ignored(self, path: Path, collections: Mapping[str, Path]) -> str | None:
        """Return why a file is not indexed, as a phrase; None if it is."""
        roots, _ = collection_roots(collections)
        # As written first: the path may lead through a symbolic link that is followed.
        written = os.path.abspath(path)
        for file in (written, os.path.join(os.path.realpath(path.parent), path.name)):
            if owners := [name for name, root in roots.items() if inside(file, root)]:
                name = max(owners, key=lambda owner: len(roots[owner]))
                scan = Scan(ScanRecord(), ScannedFiles(roots))
                walk = Walk(self, name, self._filter(name, roots), scan)
                reason = walk.filter.reason_excluded(file)
                linked = reason is not None and os.path.realpath(file) != file
                return walk.reason_not_reached(file, reason) if linked else reason
        return OUTSIDE

    def _filter(self, name: str, roots: Mapping[str, str]) -> PathFilter:
        return PathFilter(self, roots[name], frozenset(roots.values()) - {roots[name]})


class Step(NamedTuple):
    """A folder to list."""

    path: str
    relative: str
    rules: Rules
    """Ignore rules of the folders above."""
    linked: bool = False
    """True below a symbolic link: its files may be reached by another link too."""


class Walk:
    """Lists folders of one collection and adds them to a scan."""

    def __init__(
        self,
        options: Discover,
        name: str,
        path_filter: PathFilter,
        scan: Scan,
        on_folder: Callable[[str], None] | None = None,
    ) -> None:
        self.name, self.filter, self.scan, self.on_folder = name, path_filter, scan, on_folder
        self._followed: dict[str, str] = {}
        """Targets of symbolic links, and the path by which they are followed: the first of several."""
        self._is_nested = nested_test()
        self._hidden, self._ignore_names = options.hidden, options.ignore_files
        # Most documents are recognised by their extension, and this is checked for every file.
        self._extensions = document_extensions(options.parsers)

    def run(self, step: Step, until: float | None = None) -> None:
        """Add a folder and all below it, until a `time.monotonic` value.

        Not recursive: a path may be deeper than Python's stack.
        """
        stack = [step]
        while stack:
            if until and time.monotonic() >= until:
                self.scan.checked = len(self.scan.files)
                return
            stack += reversed(self.list_folder(stack.pop(), {}))

    def list_folder(self, step: Step, before: Mapping[str, tuple[int, ...]]) -> list[Step]:
        """Add a folder, with the documents whose state differs from that before; return the folders in it."""
        path, relative, rules, linked = step
        if relative and self._is_nested(path):
            self.scan.nested.append(DocumentId(self.name, relative))
            return []
        if self.on_folder:
            self.on_folder(path)  # first, so that every later change causes an event
        record = self.scan.record
        unreadable: list[Failure] = []
        try:
            stamps = _stamps(path)
            with os.scandir(path) as entries:
                listed = sorted(entries, key=attrgetter("name"))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            denied = isinstance(error, PermissionError)
            reason = DENIED if denied else f"cannot be listed: {error.strerror or error}"
            record.unreadable[path] = (self._failure(relative or "/", reason),)
            record.folders[path] = ListedFolder(self.name, relative, UNLISTED, exposed=True)
            return []
        names = {entry.name for entry in listed}
        ignore_files = tuple(name for name in self._ignore_names if name in names)
        # Before they are read, so that a later edit is noticed.
        ignore_states = [_ignore_file_state(os.path.join(path, name)) for name in ignore_files]
        if ignore_files:
            step = step._replace(rules=(*rules, *rules_in(path, relative, ignore_files)))
        folder = ListedFolder(self.name, relative, stamps, exposed=linked, rules=len(ignore_files))
        steps: list[Step] = []
        documents: list[str] = []
        states = array("q")
        for entry in listed:
            if entry.name[0] == "." and (not self._hidden or entry.name in NEVER):
                continue
            try:
                result = self._visit(entry, step)
            except OSError as error:
                result = f"cannot be read: {error.strerror or error}"
                # Its state is not known, so the next scan must list the folder again.
                folder = folder._replace(stamps=UNKNOWN, exposed=True)
            if isinstance(result, Step):
                steps.append(result)
            elif isinstance(result, str):
                unreadable.append(self._failure(relative + entry.name, result))
            elif result:
                state = _STATE(result)
                documents.append(entry.name)
                _append(states, state)
                if result.st_nlink > 1 or entry.is_symlink():
                    folder = folder._replace(exposed=True)
                if before.get(entry.name) != state:
                    file = FileState.from_stat(result)
                    self.scan.files.add(folder.id(entry.name), file, _inode(entry, result))
        for ignore_state in ignore_states:
            _append(states, ignore_state)
        record.folders[path] = folder._replace(
            names=(*documents, *ignore_files),
            states=states,
            subfolders=tuple(os.path.basename(below.path) for below in steps),
        )
        if unreadable:
            record.unreadable[path] = tuple(unreadable)
        return steps

    def reason_not_reached(self, file: str, reason: str | None) -> str | None:
        """Return why the walk does not reach a file below a symbolic link by this path; None if it does."""
        self.run(Step(self.filter.root, "", self.filter.rules_above))
        target = os.path.realpath(file)
        for scanned in self.scan.files.values():
            if scanned.path == file:
                return None
            if os.path.realpath(scanned.path) == target:
                return f"it is the same file as {scanned.id.path}, which is indexed"
        return reason

    def _visit(self, entry: os.DirEntry[str], folder: Step) -> os.stat_result | Step | str | None:
        """Return the state of a document, a folder to list, a reason for failure, or None for what is not indexed."""
        name, path = entry.name, folder.relative + entry.name
        by_name = name.endswith(self._extensions) or self.filter.is_document(folder.relative, name)
        if by_name and entry.is_file(follow_symlinks=False):
            if self.filter.excludes(path, folder.rules):
                return None
            if folder.linked and not self._is_first(os.path.realpath(entry.path), path):
                return None
            return _if_unicode(name, entry.stat(follow_symlinks=False))
        if entry.is_symlink():
            return self._visit_link(entry, folder, by_name)
        if entry.is_dir(follow_symlinks=False):
            excluded = entry.path in self.filter.others
            if excluded or self.filter.excludes(path + "/", folder.rules):
                return None
            return folder._replace(path=entry.path, relative=path + "/")
        is_excluded = not by_name or self.filter.excludes(path, folder.rules)
        return None if is_excluded else "is not a regular file"

    def _visit_link(
        self, entry: os.DirEntry[str], folder: Step, by_name: bool
    ) -> os.stat_result | Step | str | None:
        """Return the document or folder that a symbolic link leads to, if the link is followed."""
        target, kind = self.scan.record.links[entry.path] = link_target(entry.path)
        path = folder.relative + entry.name + "/" * (kind == FOLDER)
        if inside(target, self.filter.root) and self.filter.reason_excluded(target) is None:
            return None  # the walk reaches it by itself
        if not self.filter.may_follow(target) or not self._is_first(target, path):
            return None
        if self.filter.excludes(path, folder.rules):
            return None
        if kind == FOLDER:
            return folder._replace(path=entry.path, relative=path, linked=True)
        if not by_name:
            return None
        if kind == FILE:
            return _if_unicode(entry.name, os.stat(entry.path))
        return "is a broken symbolic link" if kind == BROKEN else "is not a regular file"

    def _is_first(self, target: str, relative: str) -> bool:
        """Return true for the first path by which the walk reaches a file or folder below a link."""
        return self._followed.setdefault(target, relative) == relative

    def _failure(self, relative: str, reason: str) -> Failure:
        text = os.fsencode(relative).decode("utf-8", "replace")
        return Failure(DocumentId(self.name, text), reason)


class Update:
    """Compares the folders of a scan's record with the disk, and brings the record up to date."""

    def __init__(
        self,
        options: Discover,
        filters: Mapping[str, PathFilter],
        scan: Scan,
        on_folder: Callable[[str], None] | None,
    ) -> None:
        self._options, self._filters, self._on_folder = options, filters, on_folder
        self._scan, self._record, self._is_copy = scan, scan.record, False

    def run(self, folders: Collection[str] | None, until: float | None) -> bool:
        """Compare all folders, or those given, until a `time.monotonic` value; return false if a full scan is needed."""
        record, checked = self._record, 0
        if record.next:
            record = self._changeable()
        if any(link_target(path) != target for path, target in record.links.items()):
            return False
        links = set(record.links)
        paths = list(record.folders if folders is None else folders)
        first = paths.index(record.next) if record.next in paths else 0
        queue = deque(paths[first:] + paths[:first])
        record.next = ""
        changed: list[str] = []
        while queue:
            path = queue.popleft()
            if until and checked and time.monotonic() >= until:
                self._changeable().next, self._scan.checked = path, checked
                break
            if (folder := record.folders.get(path)) is None:
                continue  # removed with the folder above it
            checked += len(folder.names) - folder.rules
            if not _is_unchanged(path, folder):
                # Which of several links is followed depends on all of them.
                if os.path.realpath(path) != path or path in map(os.path.dirname, links):
                    return False
                record = self._changeable()
                if not self._list_again(path, folder):
                    return False
                changed.append(path)
                if folders is not None and record.folders.get(path, folder).inode != folder.inode:
                    queue.extend(below for below in record.below(path) if below != path)
        if changed:  # likely to change again, so a scan with a time limit compares them first
            listed = record.folders
            record.folders = {path: listed[path] for path in (*changed, *listed) if path in listed}
        return record.links.keys() == links

    def _changeable(self) -> ScanRecord:
        """Return a copy of the record that this scan may change."""
        if not self._is_copy:
            self._record = self._scan.record = self._record.copy()
            self._is_copy = True
        return self._record

    def _list_again(self, path: str, before: ListedFolder) -> bool:
        """List a changed folder and walk the new ones in it; return false if a full scan is needed."""
        record, scan = self._record, self._scan
        unreadable = record.unreadable.pop(path, ())
        path_filter = self._filters[before.collection]
        walk = Walk(self._options, before.collection, path_filter, scan, self._on_folder)
        del record.folders[path]
        documents = before.documents
        steps = walk.list_folder(
            Step(path, before.relative, self._rules_above(path_filter, before.relative)), documents
        )
        after = record.folders.get(path, before._replace(names=(), rules=0, subfolders=()))
        if before.stamps == UNLISTED and (path not in record.folders or after.stamps != UNLISTED):
            return False  # documents may have been deleted that the record does not list
        if path in record.folders and after.ignore_files != before.ignore_files:
            return False
        names = set(after.names)
        scan.gone.update(before.id(name) for name in documents if name not in names)
        failed = {failure.document for failure in record.unreadable.get(path, ())}
        scan.gone.update({failure.document for failure in unreadable} - failed - scan.files.keys())
        removed = [os.path.join(path, name) for name in {*before.subfolders} - {*after.subfolders}]
        if not all(map(self._remove, removed)):
            return False
        for step in steps:
            if os.path.basename(step.path) not in before.subfolders:
                walk.run(step)
        return True

    def _remove(self, path: str) -> bool:
        """Remove a folder that no longer exists, and all below it; return false if a full scan is needed."""
        record, scan = self._record, self._scan
        for below in record.below(path):
            folder = record.folders.pop(below)
            if folder.stamps == UNLISTED:
                return False
            scan.gone.update(map(folder.id, folder.documents))
            scan.gone.update(failure.document for failure in record.unreadable.pop(below, ()))
        return True

    def _rules_above(self, path_filter: PathFilter, relative: str) -> Rules:
        """Return the ignore rules that apply to a folder, without its own."""
        rules, names = path_filter.rules_above, self._options.ignore_files
        parts = relative.split("/")[:-1]
        for depth in range(len(parts)):
            path = os.path.join(path_filter.root, *parts[:depth])
            if self._record.folders[path].rules:
                above = "".join(f"{part}/" for part in parts[:depth])
                rules = (*rules, *rules_in(path, above, names))
        return rules


def _is_unchanged(path: str, folder: ListedFolder) -> bool:
    """Compare a folder and the files in it with the disk; no object is kept for an unchanged file."""
    if folder.stamps[0] < 0:
        return False
    try:
        handle = os.open(path, getattr(os, "O_PATH", os.O_RDONLY))
    except OSError:
        return False
    try:
        status = os.fstat(handle)
        stamps = (status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino)
        if stamps != folder.stamps:
            return False
        values: list[int] = []
        # By the open folder, so that its path is resolved once: a fifth faster.
        for name in folder.names:
            values.extend(_STATE(os.stat(name, dir_fd=handle)))
        return array("q", values) == folder.states
    except (OSError, OverflowError):
        return False
    finally:
        os.close(handle)


def _stamps(path: str) -> tuple[int, ...]:
    """Return the stamps of a folder that is listed next; the first is -1 if they do not prove that it is unchanged."""
    from marklight.ingest.read import stored_state

    now_ns, status = time.time_ns(), os.stat(path)
    racy = stored_state(FileState.from_stat(status), now_ns, None).is_racy
    mtime_ns = status.st_mtime_ns if is_local(status.st_dev, path) and not racy else -1
    return mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino


def _inode(entry: os.DirEntry[str], status: os.stat_result) -> Inode | None:
    """Return device and inode of a document; on Windows, an entry of a listing has neither."""
    if not status.st_ino:
        try:
            status = os.stat(entry.path, follow_symlinks=entry.is_symlink())
        except OSError:  # deleted meanwhile
            return None
    return (status.st_dev, status.st_ino) if status.st_ino else None


def _ignore_file_state(path: str) -> tuple[int, ...]:
    """Return the state of an ignore file that was read just now; that of a racily clean one is unknown."""
    from marklight.ingest.read import stored_state

    try:
        status = os.stat(path)
    except OSError:
        return UNKNOWN
    racy = stored_state(FileState.from_stat(status), time.time_ns(), None).is_racy
    return UNKNOWN if racy else _STATE(status)


def _append(states: array[int], state: Iterable[int]) -> None:
    try:
        states.extend(array("q", state))
    except OverflowError:  # a time stamp after the year 2262
        states.extend(UNKNOWN)


def _if_unicode(name: str, status: os.stat_result) -> os.stat_result | str:
    return status if is_unicode(name) else "its name is not valid Unicode"


FILE, FOLDER, OTHER, BROKEN = "file", "folder", "other", "broken"


def link_target(path: str) -> tuple[str, str]:
    """Return the path that a symbolic link leads to, and what is there."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return os.path.realpath(path), BROKEN
    kind = FILE if stat.S_ISREG(mode) else FOLDER if stat.S_ISDIR(mode) else OTHER
    return os.path.realpath(path), kind


def visible_files(root: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the files below a folder, without hidden ones and `node_modules`.

    `os.walk` is recursive before Python 3.12, and a path may be deeper than Python's stack.
    """
    stack = [str(root)]
    while stack:
        with suppress(OSError), os.scandir(stack.pop()) as entries:
            for entry in entries:
                if entry.name.startswith(".") or entry.name == "node_modules":
                    continue
                if entry.is_dir(follow_symlinks=False):
                    stack.append(entry.path)
                else:
                    yield entry


_local_devices: dict[int, bool] = {}


def is_local(device: int, path: str) -> bool:
    """Return true if a folder is on a local file system; each device is looked up once."""
    if device not in _local_devices:
        _local_devices[device] = file_system(path) in LOCAL
    return _local_devices[device]


def file_system(path: str, mounts: str | None = None) -> str:
    """Return the type of the file system of a path; empty if unknown."""
    mounts = _read_mounts() if mounts is None else mounts
    # `device place type …` on Linux, with spaces as \040; `device on place (type, …)` on macOS.
    pattern = r"^.+? on (/.*) \((\w+)[,)]|^\S+ (/\S*) (\S+) "
    nearest, longest = "", -1
    for match in re.finditer(pattern, mounts, re.MULTILINE):
        place, kind = match[1] or match[3], match[2] or match[4]
        place = place.replace("\\040", " ")
        if inside(path, place) and len(place) >= longest:  # a later mount hides an earlier one
            longest, nearest = len(place), kind
    return nearest


def _read_mounts() -> str:
    try:
        if sys.platform == "darwin":
            from subprocess import run

            return run(["/sbin/mount"], capture_output=True, text=True, check=False).stdout
        return Path("/proc/self/mounts").read_text("utf-8", "replace")
    except OSError:
        return ""
