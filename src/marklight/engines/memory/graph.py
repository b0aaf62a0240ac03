"""Links both ways, each resolved by asking every document for its names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from marklight.engines.memory.state import State
from marklight.engines.naming import Claim, choose
from marklight.model import DocumentId, ResolvedLink


def links(state: State) -> Iterator[ResolvedLink]:
    """All of them, in the order of their documents."""
    for id in sorted(state.entries):
        for link in state.entries[id].document.links:
            yield ResolvedLink(id, link, resolve(state, link.keys, id.collection))


def resolve(state: State, keys: Sequence[str], collection: str) -> DocumentId | None:
    """The document that these names mean to this collection."""
    claims = (
        Claim(name.key, name.strength, id)
        for id, entry in state.entries.items()
        for name in entry.document.names
    )
    return choose(keys, collection, claims)


def edges(state: State) -> list[tuple[DocumentId, DocumentId]]:
    """Pairs of documents, each once, none with itself."""
    pairs = {(link.source, link.target) for link in links(state) if link.target is not None}
    return sorted((source, target) for source, target in pairs if source != target)


def neighbours(state: State, id: DocumentId, most: int) -> list[DocumentId]:
    """One link away, either way."""
    pairs = edges(state)
    out = [target for source, target in pairs if source == id]
    back = [source for source, target in pairs if target == id]
    return sorted({*out[:most], *back[:most]})


def degree(state: State, id: DocumentId, most: int) -> int:
    """Links to and from a document."""
    known = list(links(state))
    out = sum(link.source == id for link in known)
    back = sum(link.target == id for link in known)
    return min(out, most) + min(back, most)
