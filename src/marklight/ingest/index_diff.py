"""Index diff: compare the files on disk with the index, by size and time stamp; list what to read and what to remove."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from marklight.errors import Refused
from marklight.ingest.discover import DENIED, Scan, ScannedFile
from marklight.model import DocumentId, Failure, FileState
from marklight.ports import IndexedFile, Snapshot

FAILURES_RECIPE = "failures_recipe"
"""Manifest key: the recipe by which unreadable files were last tried; another recipe may succeed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Files to read and documents to remove from the index."""

    read: tuple[DocumentId, ...] = ()
    removed: tuple[DocumentId, ...] = ()
    outdated: tuple[DocumentId, ...] = ()
    """Documents with an unchanged file that another recipe parsed or chunked: they stay until they can be replaced."""

    def __bool__(self) -> bool:
        return bool(self.read or self.removed)

    def __len__(self) -> int:
        return len(self.read) + len(self.removed)


@dataclass(frozen=True, slots=True)
class IndexDiff:
    """The difference between disk and index."""

    generation: int
    """Generation of the index that was compared; if it changes, compare again."""
    scan: Scan
    indexed: Mapping[DocumentId, IndexedFile]
    failed: Mapping[DocumentId, Failure]
    tried_recipe: str
    """The recipe by which unreadable files were last tried."""
    plan: Plan
    unreadable: tuple[Failure, ...]
    """New failures of the scan, not yet stored in the index."""
    rebuild: bool
    nested: Mapping[DocumentId, int] = field(default_factory=dict)
    """Folders that have become libraries of their own, with the number of documents that leave this index."""

    def __bool__(self) -> bool:
        return bool(self.plan or self.unreadable)

    @property
    def denied(self) -> list[DocumentId]:
        """Return the folders that this user may not list; their documents stay in the index."""
        return [failure.document for failure in self.scan.unreadable if failure.reason == DENIED]


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Pause the collector of reference cycles.

    It would traverse the states of all files again and again and find none: a quarter of the time at 16,000 files.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def compare(
    snapshot: Snapshot, scan: Scan, recipe: str, max_bytes: int, *, rebuild: bool
) -> IndexDiff:
    """Return the difference between the files of a scan and the index."""
    tried = snapshot.status.manifest().get(FAILURES_RECIPE, "")
    indexed, failures = snapshot.documents.files(scan.ranges), snapshot.status.failures()
    if scan.ranges is not None:
        ranges = scan.ranges
        failures = [
            failure
            for failure in failures
            if any(part.contains(failure.document) for part in ranges)
        ]
    states = {id: scanned.file for id, scanned in scan.files.items()}
    current = [_current(failure, scan.files, tried == recipe, max_bytes) for failure in failures]
    steps = plan(states, indexed, current, scan.unreadable, recipe, rebuild=rebuild)
    failed, removed = {failure.document: failure for failure in failures}, set(steps.removed)
    unreadable = tuple(
        failure
        for failure in scan.unreadable
        if failure.document in removed or failed.get(failure.document) != failure
    )
    leaving = {folder: sum(_below(id, folder) for id in removed) for folder in scan.nested}
    nested = {folder: count for folder, count in leaving.items() if count}
    return IndexDiff(
        snapshot.generation, scan, indexed, failed, tried, steps, unreadable, rebuild, nested
    )


def _current(
    failure: Failure,
    files: Mapping[DocumentId, ScannedFile],
    same_recipe: bool,
    max_bytes: int,
) -> Failure:
    """Return a failure with the file's state if reading the file again would fail the same way, else without."""
    from marklight.ingest.read import read

    scanned = files.get(failure.document)
    if scanned is None:
        return failure
    if failure.file:
        return failure if same_recipe else replace(failure, file=None)
    try:
        read(scanned.path, max_bytes, scanned.inode)
    except Refused as refused:
        if str(refused) == failure.reason:
            return replace(failure, file=scanned.file)
    return failure


def plan(
    states: Mapping[DocumentId, FileState],
    indexed_files: Mapping[DocumentId, IndexedFile],
    failed: Iterable[Failure],
    unreadable: Iterable[Failure],
    recipe: str,
    *,
    rebuild: bool = False,
) -> Plan:
    """Return the files to read, which are new and changed ones, and the documents that another recipe parsed or chunked.

    A file that failed is read again unless it still has the state in which it failed. Failures of removed files are
    removed, and so are documents whose file can no longer be read.
    """
    read, outdated = [], []
    for id, file in states.items():
        indexed = indexed_files.get(id)
        if rebuild or indexed is None or indexed.file != file:
            read.append(id)
        elif indexed.recipe != recipe:
            outdated.append(id)
    tried = {failure.document: failure.file for failure in failed}
    if tried and not rebuild:
        read = [id for id in read if id not in tried or tried[id] != states[id]]
    unseen = {failure.document for failure in unreadable}
    gone = [
        id
        for id in {**indexed_files, **tried}
        if id not in states and (id in indexed_files or id not in unseen)
    ]
    # Only the machines that had a file can find out that it was deleted.
    gone = [id for id in gone if id not in indexed_files or not indexed_files[id].file.is_elsewhere]
    # Documents below a folder that cannot be listed may still exist, so they are kept.
    folders = [id for id in unseen if id.path.endswith("/")]
    removed = [id for id in gone if not any(_below(id, folder) for folder in folders)]
    return Plan(tuple(read), tuple(removed), tuple(outdated))


def _below(id: DocumentId, folder: DocumentId) -> bool:
    if id.collection != folder.collection:
        return False
    return folder.path == "/" or id.path.startswith(folder.path)
