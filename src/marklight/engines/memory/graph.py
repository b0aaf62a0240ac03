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


def ends(state: State, id: DocumentId, most: int) -> tuple[list[DocumentId], list[DocumentId]]:
    """Documents that one leads to, and those that lead to it."""
    pairs = edges(state)
    out = [target for source, target in pairs if source == id]
    back = [source for source, target in pairs if target == id]
    return out[:most], back[:most]
