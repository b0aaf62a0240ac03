"""Resolve references to documents: places as printed, paths, URIs, link names, titles and passage ids."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from marklight.errors import Message, NotFound, UsageError
from marklight.formatting import place_text
from marklight.ingest.path_filter import is_unicode
from marklight.lazy import dataclass
from marklight.library.refresh import CollectionFiles
from marklight.model import Document, DocumentId, bounded_key
from marklight.platforms import posix_path
from marklight.ports import Snapshot
from marklight.query import Filters, PathPattern
from marklight.reference import (
    Reading,
    Target,
    has_wildcards,
    path_patterns,
    readings,
    targets,
)
from marklight.report import Extract
from marklight.search.context import document_extract, passage_extract

MAX_LISTED = 20
"""Documents that an error about an ambiguous name lists. Hand-set; not measured."""
_PASSAGE_ID = re.compile(r"[0-9a-f]{16}")


class Resolved(NamedTuple):
    """The document that a reference means, with lines or a heading, or the passage with this id."""

    document: Document
    reading: Reading
    passage: Extract | None = None

    def extract(self) -> Extract:
        """Return the part of the document that the reference means."""
        if self.passage:
            return self.passage
        return document_extract(self.document, self.reading.lines, self.reading.fragment)


@dataclass(frozen=True, slots=True)
class References:
    """Resolves references to the documents of a snapshot.

    A name is compared with what is printed first: the path in the library, with the collection first if there are several,
    and the path of a file from the current folder. Then with paths in all collections, link names and titles. The first kind
    that matches decides; if it matches several documents, the error lists them.
    """

    files: CollectionFiles
    snapshot: Snapshot
    near: Path | None = None
    """The current folder of the user; None for users on other machines."""
    collection: str | None = None
    """The collection of an exact path; nothing else is accepted then."""
    unindexed: Callable[[DocumentId], None] = lambda _: None
    """Called with files that a reference may mean and that are not indexed."""

    def resolve(self, reference: str) -> Resolved:
        """Return what a reference means; raise NotFound, with suggestions or candidates, if that is not one document."""
        if not reference.strip():
            raise UsageError("The reference is empty", "Give a path, such as guide/auth.md")
        if self.collection is None and _PASSAGE_ID.fullmatch(reference):
            passage = passage_extract(reference, self.snapshot)
            document = self.snapshot.documents.get(passage.document) if passage else None
            if passage and document:
                self.files.check_exists(document.id)
                return Resolved(document, Reading(reference), passage)
        several: NotFound | None = None
        for reading in readings(reference):
            try:
                document = self._find(reading)
            except _Ambiguous as error:
                several = several or self._ambiguous(reading.name, error.documents)
                continue
            if document is not None:
                self.files.check_exists(document.id)
                return Resolved(document, reading)
        raise several or self._not_found(reference)

    def _find(self, reading: Reading) -> Document | None:
        """Return the document of a name; None if there is none, `_Ambiguous` if there are several."""
        if not _is_text(reading.name):
            return None
        for ids in self._matches(reading):
            documents = list(filter(None, map(self.snapshot.documents.get, dict.fromkeys(ids))))
            if len(documents) > 1:
                raise _Ambiguous([document.id for document in documents])
            if documents:
                return documents[0]
        if not reading.exact and self.collection is None:
            for id in self._files_named(reading.name):
                self.unindexed(id)
        return None

    def _matches(self, reading: Reading) -> Iterator[Iterable[DocumentId]]:
        """Yield the documents that a name may mean, the strongest kind of match first."""
        if self.collection is not None:
            yield from ([DocumentId(self.collection, name)] for name in reading.names)
            return
        name = reading.name
        here = [] if reading.exact else self._at_path(name)
        if here and name.startswith(("./", "../")):
            yield here
            return
        printed, other = self._in_library(reading.names)
        if self.files.several:
            printed, other = other, printed
        yield [*printed, *here]
        if reading.exact:
            return
        yield other
        yield self.snapshot.links.named(bounded_key(_key(name).lower()))
        yield self._titled(name)
        if "\\" in name:  # as Windows writes it
            yield from self._matches(reading._replace(name=name.replace("\\", "/")))
        if (decoded := unquote(name)) != name and _is_text(decoded):
            yield from self._matches(reading._replace(name=decoded))

    def _in_library(self, names: Iterable[str]) -> tuple[list[DocumentId], list[DocumentId]]:
        """Return the documents with a path, and those with a collection and a path; of the first name that has any."""
        by_path: list[DocumentId] = []
        by_collection: list[DocumentId] = []
        for path in dict.fromkeys(path for name in names for path in (name, _key(name))):
            by_path = by_path or self.snapshot.documents.find_by_path(path)
            collection, _, rest = path.partition("/")
            id = DocumentId(collection, rest)
            by_collection = by_collection or list(self.snapshot.documents.files_of([id]))
        return by_path, by_collection

    def _at_path(self, name: str) -> list[DocumentId]:
        """Return the document of a file: of an absolute path, or of one relative to the current folder."""
        path = Path(os.path.expanduser(name)) if self.near is not None else Path(name)
        if not path.is_absolute() and self.near is None:
            return []
        path = (self.near or path) / path
        ids = [self.files.document_id(path)] if os.path.isabs(name) or os.path.isfile(path) else []
        if self.near is not None:  # a user of this machine may name it by a symbolic link
            ids.append(self.files.file_id(path))
        return list(self.snapshot.documents.files_of(filter(None, ids)))[:1]

    def _files_named(self, name: str) -> set[DocumentId]:
        """Return the ids of existing files that a name may mean."""
        folders = [*self.files.collections.values()]
        paths = [folder / _key(name) for folder in folders]
        if self.near is not None:
            paths.append(self.near / Path(os.path.expanduser(name)))
        elif os.path.isabs(name) and self.files.document_id(Path(name)):
            paths.append(Path(name))
        paths += (
            self.files.collections[target.collection] / target.path
            for target in targets(name, self.files.collections)
            if target.collection is not None
        )
        return set(filter(None, map(self.files.file_id, paths)))

    def _titled(self, name: str) -> list[DocumentId]:
        """Return the documents with exactly this title or alias."""
        candidates = self.snapshot.documents.find_by_title(name, Filters(), MAX_LISTED + 1)
        exact = [candidate.chunk_id for candidate in candidates if candidate.score == 1.0]
        return sorted(set(self.snapshot.documents.owners(exact).values()))

    def _ambiguous(self, name: str, documents: list[DocumentId]) -> NotFound:
        places = [place_text(id, self.files.several) for id in documents]
        # A name that is also a file of the current folder means a path in the library after a slash.
        spelled = [f"/{place}" if place == _key(name) else place for place in places]
        more = f" and {len(spelled) - MAX_LISTED} more" if len(spelled) > MAX_LISTED else ""
        return NotFound(
            f"Several documents are called {name!r}",
            f"Give the path of one: {', '.join(spelled[:MAX_LISTED])}{more}",
        )

    def _not_found(self, reference: str) -> NotFound:
        from marklight.text import suggestions

        name = [reading.name for reading in readings(reference)][-1]
        several = self.files.several
        paths = [place_text(id, several) for id in self.snapshot.documents.files()]
        few = len(paths) < suggestions.MAX_COMPARED
        similar = (
            suggestions.paths_with_same_end(name, paths)
            or (few and suggestions.similar_paths(name, paths))
            or suggestions.paths_with_words(name, paths)
        )
        hint: str = Message("Use `marklight search` to find documents", "Search to find documents")
        if similar:
            hint = f"Did you mean {' or '.join(similar)}?"
        return NotFound(f"No document is called {reference!r} in this library", hint)


class _Ambiguous(Exception):
    def __init__(self, documents: list[DocumentId]) -> None:
        super().__init__()
        self.documents = documents


def _key(name: str) -> str:
    """Return a name as a path in the library or in a collection."""
    return name.removeprefix("./").strip("/")


def _is_text(name: str) -> bool:
    """Return false for undecodable bytes of the command line (surrogates), which no document has in its name."""
    return is_unicode(name) and "\0" not in name


def filter_patterns(
    values: Iterable[str],
    collections: Mapping[str, Path],
    selected: Collection[str],
    near: Path | None,
) -> tuple[PathPattern, ...]:
    """Return the patterns for the values of a path filter: globs, or places as `References` resolves them.

    `selected` are the collections that are searched, all if it is empty: a path begins with the name of one of them, or
    it is a path in any of them.
    """
    files = CollectionFiles(collections)
    names = [name for name in collections if not selected or name in selected]
    paths = FilterPaths(files, names if files.several else [], near)
    patterns = (
        pattern
        for value in map(posix_path, values)
        for pattern in path_patterns(value, paths.targets, paths.exists)
    )
    return tuple(dict.fromkeys(map(paths.whole_folder, patterns)))


@dataclass(frozen=True, slots=True)
class FilterPaths:
    """Finds what the names in a path filter mean on this machine."""

    files: CollectionFiles
    names: Sequence[str]
    """Collections that a name may begin with."""
    near: Path | None

    def targets(self, name: str) -> list[Target]:
        """Return what a name means: a path in the file system, or in the library."""
        here = Path(os.path.expanduser(name)) if self.near is not None else Path(name)
        path = Path(os.path.normpath((self.near or Path()) / here))
        if here.is_absolute() and (meant := self._at(path)):
            return meant
        if self.near is None:
            return targets(name, self.names)
        if name.startswith(("./", "../")):
            return self._at(path) or targets(name, self.names)
        id = self.files.file_id(path)
        return [*targets(name, self.names), *([Target(*id)] if id else [])]

    def _at(self, path: Path) -> list[Target]:
        """Return what an absolute path means: a path in a collection, and all collections below it."""
        id = self.files.document_id(path)
        roots = self.files.collections
        below = [Target(*id)] if id and path not in roots.values() else []
        folder = path.parent if path.name == "**" else path
        return below + [
            Target(name, "**") for name, root in roots.items() if root.is_relative_to(folder)
        ]

    def exists(self, target: Target) -> bool:
        """Return true if a path is that of a file."""
        return any(map(os.path.isfile, self._paths(target)))

    def whole_folder(self, pattern: PathPattern) -> PathPattern:
        """Return a pattern for all files in a folder if it is the path of one that contains wildcards."""
        owner, glob = (None, pattern) if isinstance(pattern, str) else pattern
        target = Target(owner, glob.strip("/"))
        if not has_wildcards(glob) or not any(map(os.path.isdir, self._paths(target))):
            return pattern
        return Target(owner, f"{target.path}/").pattern(literal=True)

    def _paths(self, target: Target) -> list[str]:
        roots = self.files.collections
        folders = roots.values() if target.collection is None else [roots[target.collection]]
        return [os.path.join(folder, target.path.lstrip("/")) for folder in folders]
