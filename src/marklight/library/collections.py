"""Files of the collections on disk: existence, changes since indexing, and the document of a file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from marklight.errors import NotFound, Refused, SettingsError, UsageError
from marklight.model import DocumentId, FileState
from marklight.ports import IndexedFile
from marklight.text import digest


def check_names(names: Iterable[str]) -> None:
    """Raise SettingsError for a name that cannot be the beginning of a path."""
    for name in names:
        if "/" in name or name in ("", ".", "..") or name != name.strip():
            raise SettingsError(
                f"A collection cannot be called {name!r}", "Use a name without `/`, such as docs"
            )


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

    @property
    def several(self) -> bool:
        """Return true if places are printed with their collection, because there are several."""
        return len(self.collections) > 1

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

    def document_id(self, path: Path) -> DocumentId | None:
        """Return the id of the document at an absolute path, by its text; None if the path is in no collection.

        Nothing is read from the disk: the path may come from a client that may not learn which files exist.
        """
        file = Path(os.path.normpath(path))
        collection = collection_of(self.collections, file.parent)
        if not collection:
            return None
        return DocumentId(collection, file.relative_to(self.collections[collection]).as_posix())

    def file_id(self, path: Path) -> DocumentId | None:
        """Return the id of the document in an existing file, symbolic links resolved; None if there is none."""
        try:
            file = path.resolve()
            return self.document_id(file) if file.is_file() else None
        except (OSError, ValueError, RuntimeError):  # too long, or not a valid file name
            return None


@dataclass(frozen=True, slots=True)
class ExistenceCheck:
    """Returns true for documents whose file exists, and collects the folders that this user may not enter."""

    files: CollectionFiles
    denied: set[str] = field(default_factory=set)

    def __call__(self, id: DocumentId) -> bool:
        if self.files.exists(id):
            return True
        self.denied.update(filter(None, [self.files.denied_folder(id)]))
        return False

    def notices(self) -> list[str]:
        """Return a notice for each of these folders."""
        return [unlisted_notice(folder) for folder in sorted(self.denied)]


def shown_folder(folder: DocumentId, collections: Mapping[str, Path]) -> str:
    """Return the path of a folder as shown to the user; that of a collection's own folder is absolute."""
    is_root = folder.path == "/"
    return str(collections[folder.collection]) if is_root else folder.named(len(collections) > 1)


def unlisted_notice(folder: str) -> str:
    """Return the notice about a folder that this user may not list."""
    return f"{folder} cannot be listed (permission denied); documents below it may be missing"
