"""Compare what is on the disk with what is in the index: only a difference costs more than a stat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from marklight.model import DocumentId, Failure, FileState
from marklight.ports import IndexedFile


@dataclass(frozen=True, slots=True)
class Plan:
    """What must be read, and what is no longer there."""

    read: tuple[DocumentId, ...] = ()
    removed: tuple[DocumentId, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.read or self.removed)

    def __len__(self) -> int:
        return len(self.read) + len(self.removed)


def plan(
    found: Mapping[DocumentId, FileState],
    known: Mapping[DocumentId, IndexedFile],
    failed: Iterable[Failure],
    unreadable: Iterable[Failure],
    recipe: str,
    *,
    rebuild: bool = False,
) -> Plan:
    """New and changed files are read, and all that another parser or chunker understood.

    A file that failed is read again unless it has the state that it failed in. A failure goes with
    its file, and a document does when it can no longer be read.
    """
    read = [id for id, file in found.items() if rebuild or not _same(known.get(id), file, recipe)]
    tried = {failure.document: failure.file for failure in failed}
    if tried and not rebuild:
        read = [id for id in read if id not in tried or tried[id] != found[id]]
    unseen = {failure.document for failure in unreadable}
    gone = [
        id for id in {**known, **tried} if id not in found and (id in known or id not in unseen)
    ]
    # What stands below a folder that cannot be listed may well be there: it is not removed.
    folders = [id for id in unseen if id.path.endswith("/")]
    removed = [id for id in gone if not any(_below(id, folder) for folder in folders)]
    return Plan(tuple(read), tuple(removed))


def _below(id: DocumentId, folder: DocumentId) -> bool:
    if id.collection != folder.collection:
        return False
    return folder.path == "/" or id.path.startswith(folder.path)


def _same(known: IndexedFile | None, file: FileState, recipe: str) -> bool:
    return known is not None and known.file == file and known.recipe == recipe
