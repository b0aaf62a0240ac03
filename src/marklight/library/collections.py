"""Files of the collections on disk: existence, changes since indexing, and the document that a path means."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from marklight.errors import NotFound, Refused, UsageError
from marklight.model import Document, DocumentId, FileState
from marklight.ports import IndexedFile, Snapshot
from marklight.text import digest

FindDocument = Callable[[str], Document | None]
"""Finds a document by its name."""


def collection_of(collections: Mapping[str, Path], folder: Path) -> str:
    """Return the innermost collection that contains a folder; empty if none does."""
    containing = [name for name, root in collections.items() if folder.is_relative_to(root)]
    return max(containing, key=lambda name: len(collections[name].parts), default="")


def scope_of(collections: Mapping[str, Path], part: Path) -> tuple[tuple[str, str], ...]:
    """Return the scope of a folder: whole collections below it, or a folder of one collection."""
    below = tuple((name, "") for name, root in collections.items() if root.is_relative_to(part))
    owner = collection_of(collections, part)
    if owner and collections[owner] != part:
        below += ((owner, part.relative_to(collections[owner]).as_posix()),)
    if not below:
        roots = ", ".join(map(str, collections.values()))
        raise UsageError(f"{part} is in no collection of its library", f"The library has: {roots}")
    return below


@dataclass(frozen=True, slots=True)
class CollectionFiles:
    """The files below the folders of the collections."""

    collections: Mapping[str, Path]
    shared: bool = False
    """True if other machines use the index too: it may contain documents whose files are not on this one."""

    def exists(self, id: DocumentId) -> bool:
        """Return true if the file of a document exists, or may exist on another machine."""
        return self.shared or self.is_here(id)

    def is_here(self, id: DocumentId) -> bool:
        """Return true if the file of a document is on this machine."""
        folder = self.collections.get(id.collection)
        return folder is not None and os.path.exists(os.path.join(folder, id.path))

    def changed(self, indexed: Mapping[DocumentId, IndexedFile]) -> list[DocumentId]:
        """Return the documents whose file changed or disappeared since it was indexed."""
        return [id for id, file in indexed.items() if not self._is_unchanged(id, file)]

    def _is_unchanged(self, id: DocumentId, indexed: IndexedFile) -> bool:
        """Compare a racily clean file by content, any other by its size and time stamps."""
        state = self._state(id)
        if state is None and indexed.file.is_elsewhere:
            return True
        if state is None or not indexed.file.is_racy:
            return state == indexed.file
        from marklight.ingest.read import read

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

    def check_exists(self, id: DocumentId) -> None:
        """Raise `NotFound` if the file of a document does not exist or cannot be reached."""
        if self.exists(id):
            return
        if folder := self.denied_folder(id):
            raise NotFound(f"{id.path} cannot be read: permission denied for {folder}")
        raise NotFound(f"{id.path} is no longer on the disk")

    def denied_folder(self, id: DocumentId) -> str:
        """Return the folder above a document that this user may not enter; empty if there is none."""
        root = self.collections.get(id.collection)
        if root is None:
            return ""
        try:
            os.stat(os.path.join(root, id.path))
        except PermissionError:
            parts = id.path.split("/")[:-1]
            folders = ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]
            closed = (folder for folder in folders if not os.access(root / folder, os.X_OK))
            return shown_folder(DocumentId(id.collection, f"{next(closed, '')}/"), self.collections)
        except (OSError, ValueError):
            pass
        return ""

    def has_folder(self) -> bool:
        """Return true if the folder of any collection is on this machine."""
        return any(map(os.path.isdir, self.collections.values()))

    def missing(self) -> list[str]:
        """Return a notice for each collection whose folder does not exist."""
        what = "is not on this machine" if self.shared else "does not exist"
        return [
            f"The folder of collection {name!r} {what}: {folder}"
            for name, folder in self.collections.items()
            if not os.path.isdir(folder)
        ]

    def finder(
        self,
        snapshot: Snapshot,
        folder: Path | None,
        unindexed: Callable[[DocumentId], None] = lambda _: None,
    ) -> FindDocument:
        """Return a function that finds a document by name, first as a path relative to a folder; `unindexed` gets files that are not indexed."""
        from marklight.search.reference import find_document

        def find(name: str) -> Document | None:
            id = self._document_id(folder / name) if folder is not None else None
            document = (snapshot.documents.get(id) if id else None) or find_document(name, snapshot)
            if document:
                self.check_exists(document.id)
            else:
                others = (self._document_id(root / name) for root in self.collections.values())
                for candidate in filter(None, {id, *others}):
                    unindexed(candidate)
            return document

        return find

    def exact_finder(self, snapshot: Snapshot, collection: str) -> FindDocument:
        """Return a function that finds a document only by its exact path in a collection."""

        def find(path: str) -> Document | None:
            try:
                f"{collection}/{path}".encode()
            except UnicodeEncodeError:  # bytes that are not text name no document
                return None
            document = snapshot.documents.get(DocumentId(collection, path))
            return document if document and self.exists(document.id) else None

        return find

    def _document_id(self, path: Path) -> DocumentId | None:
        """Return the id of the document in a file; None if the file is in no collection."""
        try:
            file = path.resolve()
            collection = collection_of(self.collections, file.parent)
            if not collection or not file.is_file():
                return None
        except (OSError, ValueError):  # too long, or not a valid file name
            return None
        return DocumentId(collection, file.relative_to(self.collections[collection]).as_posix())


def shown_folder(folder: DocumentId, collections: Mapping[str, Path]) -> str:
    """Return the path of a folder as shown to the user; that of a collection's own folder is absolute."""
    own = folder.path == "/"
    return str(collections[folder.collection]) if own else folder.named(len(collections) > 1)


def unlisted_notice(folder: str) -> str:
    """Return the notice about a folder that this user may not list."""
    return f"{folder} cannot be listed (permission denied); documents below it may be missing"
