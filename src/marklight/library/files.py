"""The files of the collections: which are there, and which document a person means by one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from marklight.errors import NotFound, Refused
from marklight.ingest.read import read
from marklight.library.locate import standing
from marklight.model import Document, DocumentId, FileState
from marklight.ports import IndexedFile, Snapshot
from marklight.search.reference import FindDocument, find_document
from marklight.text import digest


@dataclass(frozen=True, slots=True)
class Files:
    """What stands below the folders of the collections."""

    collections: Mapping[str, Path]

    def has(self, id: DocumentId) -> bool:
        """Whether a document's file is still there."""
        folder = self.collections.get(id.collection)
        return folder is not None and os.path.exists(os.path.join(folder, id.path))

    def changed(self, indexed: Mapping[DocumentId, IndexedFile]) -> list[DocumentId]:
        """Documents whose file is no longer as it was when it was read, those that are gone included."""
        return [id for id, each in indexed.items() if not self._is_unchanged(id, each)]

    def _is_unchanged(self, id: DocumentId, indexed: IndexedFile) -> bool:
        """Compare a racily clean file by content, any other by its size and time stamps."""
        state = self._state(id)
        if state is None or not indexed.file.is_racy:
            return state == indexed.file
        try:
            text = read(self.collections[id.collection] / id.path, state.size).text
        except Refused:
            return False
        return digest(text) == indexed.digest

    def _state(self, id: DocumentId) -> FileState | None:
        folder = self.collections.get(id.collection)
        try:
            return FileState.from_stat(os.stat(os.path.join(folder, id.path))) if folder else None
        except (OSError, ValueError):
            return None

    def demand(self, id: DocumentId) -> None:
        """An error where it is not."""
        if self.has(id):
            return
        if folder := self.denied(id):
            raise NotFound(f"{id.path} cannot be read: permission denied for {folder}")
        raise NotFound(f"{id.path} is no longer on the disk")

    def denied(self, id: DocumentId) -> str:
        """Return the folder that keeps us from looking for a document's file; empty if none does."""
        root = self.collections.get(id.collection)
        if root is None:
            return ""
        try:
            os.stat(os.path.join(root, id.path))
        except PermissionError:
            parts = id.path.split("/")[:-1]
            folders = ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]
            closed = (each for each in folders if not os.access(root / each, os.X_OK))
            return place_of(DocumentId(id.collection, f"{next(closed, '')}/"), self.collections)
        except (OSError, ValueError):
            pass
        return ""

    def missing(self) -> list[str]:
        """Folders that are not there, in words."""
        return [
            f"the folder of collection {name!r} is not there: {folder}"
            for name, folder in self.collections.items()
            if not os.path.isdir(folder)
        ]

    def near(
        self,
        snapshot: Snapshot,
        folder: Path | None,
        missed: Callable[[DocumentId], None] = lambda _: None,
    ) -> FindDocument:
        """How a document is found by what a person calls it: by a path from where they stand first.

        A file that is there and not in the index is told as one that was missed.
        """

        def find(name: str) -> Document | None:
            id = self._owner(folder / name) if folder is not None else None
            found = (snapshot.documents.get(id) if id else None) or find_document(name, snapshot)
            if found:
                self.demand(found.id)
            else:
                others = (self._owner(root / name) for root in self.collections.values())
                for each in filter(None, {id, *others}):
                    missed(each)
            return found

        return find

    def exactly(self, snapshot: Snapshot, collection: str) -> FindDocument:
        """How a document is found by its path in this collection and by nothing else."""

        def find(path: str) -> Document | None:
            try:
                f"{collection}/{path}".encode()
            except UnicodeEncodeError:  # bytes that are no text name no document
                return None
            found = snapshot.documents.get(DocumentId(collection, path))
            return found if found and self.has(found.id) else None

        return find

    def _owner(self, path: Path) -> DocumentId | None:
        """The document of a file, if it is in a collection."""
        try:
            file = path.resolve()
            collection = standing(self.collections, file.parent)
            if not collection or not file.is_file():
                return None
        except (OSError, ValueError):  # too long, or no name that a file can have
            return None
        return DocumentId(collection, file.relative_to(self.collections[collection]).as_posix())


def place_of(folder: DocumentId, collections: Mapping[str, Path]) -> str:
    """Return a folder's path as shown to the user; that of a collection's own folder is absolute."""
    if folder.path == "/":
        return str(collections[folder.collection])
    return folder.named(len(collections) > 1)


def unlisted(place: str) -> str:
    """Return the notice about a folder that this user may not list."""
    return f"{place} cannot be listed (permission denied); documents below it may be missing"
