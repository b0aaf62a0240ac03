"""In-memory link graph: every link is resolved against the names of all documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from marklight.model import DocumentId, NameStrength, ResolvedLink
from tests.oracle.state import State


@dataclass(frozen=True, slots=True)
class MemoryLinks:
    """Links between documents."""

    state: State

    def last_changed(self) -> int:
        return self.state.linked

    def outgoing(self, document: DocumentId) -> list[ResolvedLink]:
        return [link for link in self._links() if link.source == document]

    def incoming(self, document: DocumentId, limit: int | None = None) -> list[ResolvedLink]:
        return [link for link in self._links() if link.target == document][:limit]

    def unresolved(self) -> list[ResolvedLink]:
        return [link for link in self._links() if link.target is None]

    def named(self, key: str) -> list[DocumentId]:
        return strongest(name for name in self._candidates() if name.key == key)

    def _candidates(self) -> Iterator[LinkCandidate]:
        for document in self.state.documents():
            for name in document.names:
                yield LinkCandidate(name.key, name.strength, document.id)

    def neighbours(
        self, documents: Sequence[DocumentId], limit: int
    ) -> Mapping[DocumentId, Sequence[DocumentId]]:
        ends = {id: self._ends(id, limit) for id in documents}
        return {id: sorted({*targets, *sources}) for id, (targets, sources) in ends.items()}

    def degrees(self, documents: Sequence[DocumentId], limit: int) -> Mapping[DocumentId, int]:
        ends = {id: self._ends(id, limit) for id in documents}
        return {id: len(targets) + len(sources) for id, (targets, sources) in ends.items()}

    def edges(self) -> list[tuple[DocumentId, DocumentId]]:
        pairs = {(link.source, link.target) for link in self._links() if link.target is not None}
        return sorted((source, target) for source, target in pairs if source != target)

    def orphans(self) -> list[DocumentId]:
        linked = {id for pair in self.edges() for id in pair}
        return sorted(self.state.entries.keys() - linked)

    def communities(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, int]:
        known = self.state.communities
        return {id: known[id] for id in documents if id in known}

    def _links(self) -> Iterator[ResolvedLink]:
        """Yield all links, ordered by document."""
        for id in sorted(self.state.entries):
            for link in self.state.entries[id].document.links:
                target = resolve_link(
                    link.keys, id.collection, self._candidates(), folder_of(id.path)
                )
                yield ResolvedLink(id, link, target)

    def _ends(self, id: DocumentId, limit: int) -> tuple[list[DocumentId], list[DocumentId]]:
        """Return the documents that a document links to, and those that link to it."""
        edges = self.edges()
        targets = [target for source, target in edges if source == id]
        sources = [source for source, target in edges if target == id]
        return targets[:limit], sources[:limit]


class LinkCandidate(NamedTuple):
    """A document that has a key as its name, and the strength of that name."""

    key: str
    strength: NameStrength
    document: DocumentId


def resolve_link(
    keys: Sequence[str], collection: str, candidates: Iterable[LinkCandidate], folder: str
) -> DocumentId | None:
    """Return the target of a link: its own collection first, then its best key, then path before suffix before alias.

    Own collection first, so that adding a collection never changes the links of another. A document that the
    key reaches from the link's own folder comes before others with this name; among equals the
    shortest path wins, as in Obsidian.
    """
    rank = {key: place for place, key in reversed(list(enumerate(keys)))}
    best = min(
        (
            (
                candidate.document.collection != collection,
                rank[candidate.key],
                not _is_near(candidate, folder),
                candidate.strength,
                candidate.document.path.count("/"),
                len(candidate.document.path),
                candidate.document,
            )
            for candidate in candidates
            if candidate.key in rank
        ),
        default=None,
    )
    return best[-1] if best else None


def strongest(candidates: Iterable[LinkCandidate]) -> list[DocumentId]:
    """Return the documents with the strongest of some names, ordered by id."""
    named = list(candidates)
    best = min((name.strength for name in named), default=None)
    return sorted({name.document for name in named if name.strength == best})


def _is_near(candidate: LinkCandidate, folder: str) -> bool:
    """Return True if the key is the path of a document relative to a folder."""
    if candidate.strength is NameStrength.ALIAS:
        return False
    components = candidate.key.count("/") + 1
    return candidate.document.path.split("/")[:-components] == (folder.split("/") if folder else [])


def folder_of(path: str) -> str:
    """Return the folder of a document; empty for the top of its collection."""
    return path.rpartition("/")[0]
