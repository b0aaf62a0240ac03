"""Link resolution: choose the target of a link among the documents with a matching name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from marklight.model import DocumentId, NameStrength


class LinkCandidate(NamedTuple):
    """A document that has a key as its name, and the strength of that name."""

    key: str
    strength: NameStrength
    document: DocumentId


def resolve_link(
    keys: Sequence[str], collection: str, candidates: Iterable[LinkCandidate]
) -> DocumentId | None:
    """Return the target of a link: its own collection first, then its best key, then path before suffix before alias.

    Own collection first, so that adding a collection never changes the links of another.
    Among equals the shortest path wins, as in Obsidian.
    """
    rank = {key: at for at, key in reversed(list(enumerate(keys)))}
    best = min(
        (
            (
                candidate.document.collection != collection,
                rank[candidate.key],
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
