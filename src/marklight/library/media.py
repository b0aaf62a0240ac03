"""Images and attachments beside the documents of a collection: find them for a page, and read one within limits.

A path is opened folder by folder without following symbolic links, so that no name leads out of the collection.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import unquote

from marklight.errors import NotFound, UsageError
from marklight.ingest.discover import visible_files
from marklight.ingest.links import ATTACHMENT_TYPES, IMAGE_TYPES, is_attachment, is_image
from marklight.ingest.render import Embed, Neighbours
from marklight.model import DocumentId
from marklight.platforms import BINARY, DIRECTORY, HAS_DIR_FD, NOFOLLOW, NONBLOCK
from marklight.ports import Snapshot

if TYPE_CHECKING:
    from marklight.library import Library

MAX_BYTES = 20_000_000
"""A larger file is no picture for a page."""
MAX_ATTACHMENT_BYTES = 100_000_000
"""A file is in memory while it is sent."""
_KINDS = {
    "image": (IMAGE_TYPES, MAX_BYTES),
    "attachment": (ATTACHMENT_TYPES, MAX_ATTACHMENT_BYTES),
}
_MAX_FILES = 50_000
"""Files of a collection that are listed to find one by its name."""
_LISTED_SECONDS = 20.0
"""Time until the files of a collection are listed again."""


class MediaFile(NamedTuple):
    """The bytes of an image or attachment, its media type and its version."""

    content: bytes
    media_type: str
    version: str


def read_media(library: Library, name: str, kind: Literal["image", "attachment"]) -> MediaFile:
    """Return an image, or a PDF or audio file, of a collection by its name on pages; raise NotFound for everything else."""
    types, max_bytes = _KINDS[kind]
    id = _file_id(library, name, kind)
    media_type = types.get(id.path.rpartition(".")[2].lower())
    parts = id.path.split("/")
    hidden = any(
        part.startswith(".") or not part or set(part) & {"\\", ":", "\0"} for part in parts
    )
    if media_type is None or hidden:
        raise NotFound(f"No such {kind}", f"Only {kind} files inside a collection are served")
    root = library.collections[id.collection]
    try:
        with open(parts[-1], "rb", opener=lambda *_: _open(root, parts)) as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise NotFound(f"No such {kind}")
            if state.st_size > max_bytes:
                raise UsageError(f"The {kind} is larger than {max_bytes // 1_000_000} MB")
            content = file.read(max_bytes)
    except (OSError, ValueError):
        raise NotFound(f"No such {kind}") from None
    return MediaFile(content, media_type, f"{state.st_mtime_ns:x}-{state.st_size:x}")


def _file_id(library: Library, name: str, kind: str) -> DocumentId:
    if not library.files.several:
        return DocumentId(next(iter(library.collections)), name)
    collection, _, path = name.partition("/")
    if collection not in library.collections:
        raise NotFound(f"No such {kind}")
    return DocumentId(collection, path)


def _open(root: Path, parts: list[str]) -> int:
    """Return a file descriptor; no part of the path below the root may be a symbolic link."""
    flags = os.O_RDONLY | NOFOLLOW | BINARY | NONBLOCK
    if not HAS_DIR_FD:  # Windows
        path = os.path.join(root, *parts)
        if os.path.normcase(os.path.realpath(path)) != os.path.normcase(
            os.path.join(os.path.realpath(root), *parts)
        ):
            raise ValueError("a link")
        return os.open(path, flags)
    folder = os.open(root, os.O_RDONLY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, flags | DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(parts[-1], flags, dir_fd=folder)
    finally:
        os.close(folder)


@lru_cache(maxsize=4)
def _media_paths(root: Path, _: int) -> Mapping[str, str]:
    """Return the paths of images and attachments by every end of them, the shortest of several; once in each period of time."""
    files = islice(visible_files(root), _MAX_FILES)
    shown = (entry.path for entry in files if _is_shown(entry.name))
    paths = [os.path.relpath(path, root).replace(os.sep, "/") for path in shown]
    ends: dict[str, str] = {}
    for path in sorted(paths, key=lambda path: (path.count("/"), path)):
        parts = path.lower().split("/")
        for start in range(len(parts)):
            ends.setdefault("/".join(parts[start:]), path)
    return ends


def _is_shown(name: str) -> bool:
    return is_image(name) or is_attachment(name)


class LibraryNeighbours(Neighbours):
    """The documents, images and attachments that a document of a library may refer to."""

    def __init__(self, library: Library, snapshot: Snapshot, id: DocumentId) -> None:
        self._library, self._snapshot, self._id = library, snapshot, id
        several = library.files.several
        links = snapshot.links.outgoing(id)
        self._ids = {link.link.keys: link.target for link in links if link.target}
        self._names = {keys: target.named(several) for keys, target in self._ids.items()}

    def find(self, keys: tuple[str, ...]) -> str | None:
        """Return the name of the document that a link leads to."""
        return self._names.get(keys)

    def embed(self, keys: tuple[str, ...]) -> Embed | None:
        """Return the document to embed, with the links of its own."""
        id = self._ids.get(keys)
        document = self._snapshot.documents.get(id) if id else None
        if id is None or document is None:
            return None
        inner = LibraryNeighbours(self._library, self._snapshot, id)
        return Embed(document, self._names[keys], inner)

    def file(self, target: str, *, wiki: bool) -> str | None:
        """Return the name of an image or attachment: relative to the document, to the collection, or by its file name."""
        name = target if wiki else unquote(target.partition("?")[0])
        if not _is_shown(name):
            return None
        root = self._library.collections[self._id.collection]
        name = name.replace("\\", "/")
        folder = self._id.path.rpartition("/")[0]
        rooted = name.lstrip("/")
        candidates = [rooted] if name.startswith("/") else [f"{folder}/{name}", rooted]
        if not wiki and not name.startswith("/"):
            # On a website a page is a folder, and its images are relative to that folder.
            candidates.insert(1, f"{self._id.path.rpartition('.')[0]}/{name}")
        for candidate in candidates:
            path = _normal(candidate)
            if path and os.path.isfile(root / path):
                return self._named(path)
        paths = _media_paths(root, int(time.monotonic() / _LISTED_SECONDS))
        listed = paths.get((_normal(rooted) or rooted).lower())
        return self._named(listed) if listed else None

    def _named(self, path: str) -> str:
        return DocumentId(self._id.collection, path).named(self._library.files.several)


def _normal(path: str) -> str:
    """Return a path without `.` and `..`; empty if it leads out of the collection or to a hidden file."""
    parts = normpath(path.lstrip("/")).split("/")
    return "" if any(part.startswith(".") for part in parts) else "/".join(parts)
