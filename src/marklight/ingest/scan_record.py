"""Record of the last scan: every folder with its documents and their states, compared with the index at one version.

A record lasts as long as the index has the same documents; it is kept in memory, and in a file beside the index for the
next process. While a watch reports changes, a scan compares only the folders in which something happened. An
event is queued by the system call that makes the change, so that reading the queue at the start of a search finds
every edit that was finished before. What events cannot prove is compared by each scan all the same: folders with hard
or symbolic links, the inode of each collection's folder, and what `Discover` calls the surroundings.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from marklight.ingest.path_filter import inside
from marklight.lazy import dataclass
from marklight.model import DocumentId, Failure
from marklight.private_files import read_private, write_private

if TYPE_CHECKING:
    from marklight.ingest.discover import Discover, Scan
    from marklight.ingest.watch import Watch

FILE = "scan.record"
"""Beside the index. Without it, or if it is damaged, the next scan is a full one."""
_MAX_BYTES = 1_000_000_000
UNKNOWN = (-1, -1, -1)
"""A state that no file has."""
UNLISTED = (-1,)
"""Stamps of a folder that could not be listed: which of its documents still exist is not known."""
EVERYTHING = ""
"""In place of a changed folder: events were lost."""


class ListedFolder(NamedTuple):
    """A folder as it was listed."""

    collection: str
    relative: str
    """Path in the collection; empty, or with a slash at the end."""
    stamps: tuple[int, ...]
    """Modification and change time, device and inode; the first is -1 if the folder must be listed again."""
    names: tuple[str, ...] = ()
    """Documents in it, and then its ignore files."""
    states: array[int] = array("q")
    """Size, modification and change time of each of these."""
    subfolders: tuple[str, ...] = ()
    rules: int = 0
    """Number of ignore files."""
    exposed: bool = False
    """True if hard or symbolic links allow changes that no event in this folder reports."""

    @property
    def documents(self) -> dict[str, tuple[int, ...]]:
        """Return the states of the documents by name."""
        states = zip(self.states[::3], self.states[1::3], self.states[2::3], strict=True)
        names = self.names[: len(self.names) - self.rules]
        return dict(zip(names, states, strict=False))

    @property
    def ignore_files(self) -> tuple[tuple[str, ...], array[int]]:
        """Return the names and states of the ignore files."""
        first = len(self.names) - self.rules
        return self.names[first:], self.states[3 * first :]

    @property
    def inode(self) -> tuple[int, ...]:
        """Return the device and the inode."""
        return self.stamps[2:]

    def id(self, name: str) -> DocumentId:
        """Return the id of a document in this folder."""
        return DocumentId(self.collection, self.relative + name)


@dataclass(slots=True)
class ScanRecord:
    """The folders of a library at the last scan."""

    surroundings: str = ""
    """Digest of settings, roots, other libraries, and ignore files above the collections."""
    roots: Mapping[str, str] = field(default_factory=dict)
    folders: dict[str, ListedFolder] = field(default_factory=dict)
    """By absolute path."""
    links: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Target of each symbolic link, and what it is."""
    unreadable: dict[str, tuple[Failure, ...]] = field(default_factory=dict)
    """Entries that cannot be indexed, by the folder that was listed; the path of a folder ends in a slash."""
    next: str = ""
    """The folder at which the next scan begins, after a time limit ended the last one."""

    def copy(self) -> ScanRecord:
        """Return a record that can be changed."""
        tables = (self.folders.copy(), self.links.copy(), self.unreadable.copy())
        return ScanRecord(self.surroundings, self.roots, *tables, self.next)

    def folder_of(self, id: DocumentId) -> str:
        """Return the path of the folder of a document, or of the nearest one above it that was listed."""
        root = self.roots.get(id.collection, "")
        return self.nearest(os.path.join(root, *id.path.split("/")[:-1]))

    def nearest(self, path: str) -> str:
        """Return a folder, or the nearest one above it that was listed."""
        while path not in self.folders and path != os.path.dirname(path):
            path = os.path.dirname(path)
        return path

    def has_root(self, collection: str) -> bool:
        """Return true if the folder of a collection is still the one that was listed; a move above it causes no event."""
        path = self.roots[collection]
        try:
            status = os.stat(path)
        except OSError:
            return False
        return path in self.folders and self.folders[path].inode == (status.st_dev, status.st_ino)

    def below(self, path: str) -> list[str]:
        """Return a folder and all below it."""
        return [folder for folder in self.folders if inside(folder, path)]

    def without_states(self, ids: Iterable[DocumentId]) -> ScanRecord:
        """Return a record by which the next scan returns these documents again."""
        record = self.copy()
        names: dict[str, set[str]] = {}
        for id in ids:
            names.setdefault(self.folder_of(id), set()).add(id.path.rpartition("/")[2])
        for path in names.keys() & self.folders.keys():
            folder, states = self.folders[path], array("q")
            for name, state in folder.documents.items():
                states.extend(UNKNOWN if name in names[path] else state)
            record.folders[path] = folder._replace(states=states + folder.ignore_files[1])
        return record

    def to_bytes(self) -> bytes:
        """Return the record for a file."""
        content = {
            "surroundings": self.surroundings,
            "roots": self.roots,
            "links": self.links,
            "unreadable": [
                (path, *failure.document, failure.reason)
                for path, failures in self.unreadable.items()
                for failure in failures
            ],
            "next": self.next,
            "folders": [
                folder._replace(names="/".join(folder.names), states=len(folder.states))  # type: ignore[arg-type]
                for folder in self.folders.values()
            ],
        }
        states = b"".join(folder.states.tobytes() for folder in self.folders.values())
        return json.dumps(content).encode() + b"\n" + states

    @classmethod
    def from_bytes(cls, data: bytes) -> ScanRecord:
        """Return the record in a file; ValueError, KeyError or TypeError if it is damaged."""
        header, _, packed = data.partition(b"\n")
        content, states = json.loads(header), array("q", packed)
        record = cls(content["surroundings"], content["roots"], next=content["next"])
        record.links = {path: (target, kind) for path, (target, kind) in content["links"].items()}
        for path, collection, relative, reason in content["unreadable"]:
            failure = Failure(DocumentId(collection, relative), reason)
            record.unreadable[path] = (*record.unreadable.get(path, ()), failure)
        end = 0
        for collection, relative, stamps, names, size, subfolders, *rest in content["folders"]:
            if ".." in relative.split("/"):
                raise ValueError("a folder is outside its collection")
            path = os.path.join(record.roots[collection], *relative.split("/"))
            record.folders[path.rstrip(os.sep) or os.sep] = ListedFolder(
                collection,
                relative,
                tuple(stamps),
                tuple(names.split("/")) if names else (),
                states[end : end + size],
                tuple(subfolders),
                *rest,
            )
            end += size
        if end != len(states):
            raise ValueError("it is incomplete")
        return record


@dataclass(slots=True)
class ScanState:
    """The last scan that was compared with the index, and the folders that have changed since."""

    file: Path | None = None
    """File that keeps the record for the next process."""
    watch: Watch | None = None
    """Reports changes, while a watcher runs."""
    verified: str = ""
    """Version that equals the disk, by the watch of another process."""
    _record: ScanRecord | None = None
    _version: str = ""
    _watched_by: Watch | None = None
    """The watch that all folders of the record were added to before they were listed."""
    _changed: dict[str, int] = field(default_factory=dict)
    """Folders that have changed, with the number of the last report."""
    _numbers: count[int] = field(default_factory=lambda: count(1))
    _exposed: list[str] = field(default_factory=list)
    """Folders that every scan compares."""
    _is_saved: bool = True
    _lock: Lock = field(default_factory=Lock)

    def scan(
        self,
        discover: Discover,
        collections: Mapping[str, Path],
        version: str,
        documents: Collection[DocumentId] | None = None,
        until: float | None = None,
    ) -> Scan:
        """Return what differs from the record of a version, in all folders or those of some documents.

        All documents differ if there is no such record.
        """
        from marklight.ingest.discover import Scan, ScannedFiles

        record = self._known(version)
        if record and documents is None and self.verified == version:
            return Scan(record, ScannedFiles(record.roots), is_full=False)
        watch = self.watch if self.watch and not self.watch.problem else None
        folders: set[str] | None = None
        number = 0
        if record and documents is not None:
            folders = set(map(record.folder_of, documents))
        elif watch:
            record, folders, number = self._changed_folders(watch, record)
        limit = until if record else None
        scan = discover(collections, record, folders, limit, watch.add if watch else None)
        scan.watch, scan.number = watch, number if scan.checked is None else 0
        return scan

    def keep(self, scan: Scan, version: str, left: Collection[DocumentId]) -> None:
        """Keep the record of a scan that was compared with the index; some documents are to be compared again."""
        record = scan.record.without_states(left) if left else scan.record
        watch = scan.watch
        with self._lock:
            self._changed = {
                path: number for path, number in self._changed.items() if number > scan.number
            }
            if record is self._record and version == self._version:
                return
            self._is_saved = False
            is_watched = watch and not watch.problem and (scan.is_full or watch is self._watched_by)
            self._record, self._version = record, version
            self._watched_by = watch if is_watched else None
            self._exposed = [path for path, folder in record.folders.items() if folder.exposed]
            number = next(self._numbers)
            self._changed.update(dict.fromkeys(map(record.folder_of, left), number))

    def compare_everything(self) -> None:
        """Let the next scan compare all folders, whatever events were reported."""
        with self._lock:
            self._changed[EVERYTHING] = next(self._numbers)

    def save(self) -> None:
        """Write the record for the next process."""
        if self._is_saved or self.file is None or self._record is None:
            return
        data = self._record.to_bytes()
        with suppress(OSError):  # a read-only index
            write_private(self.file, f"{self._version}\n{crc32(data)}\n".encode() + data)
            self._is_saved = True

    def _known(self, version: str) -> ScanRecord | None:
        """Return the record of a version, from memory or from the file."""
        if self._version != version and self.file:
            with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                stored, checksum, data = read_private(self.file, _MAX_BYTES).split(b"\n", 2)
                if stored.decode() == version and int(checksum) == crc32(data):
                    record = ScanRecord.from_bytes(data)
                    with self._lock:
                        self._record, self._version = record, version
                        self._watched_by, self._is_saved = None, True
        return self._record if self._version == version else None

    def _changed_folders(
        self, watch: Watch, record: ScanRecord | None
    ) -> tuple[ScanRecord | None, set[str] | None, int]:
        """Return the record, the folders in it that may have changed, None for all, and the number of this report."""
        with self._lock:
            number = next(self._numbers)
            self._changed.update(dict.fromkeys(watch.take(), number))
            if record is None or self._watched_by is not watch:
                return None, None, number
            if EVERYTHING in self._changed or not all(map(record.has_root, record.roots)):
                return record, None, number
            folders = set(self._exposed)
            for path in self._changed:
                if path.endswith(os.sep):  # all below it may have changed
                    folders.update(record.below(path.rstrip(os.sep)))
                else:
                    folders.add(record.nearest(path))
            return record, folders, number
