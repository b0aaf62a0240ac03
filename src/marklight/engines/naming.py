"""How a link chooses among the documents that answer to its names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from marklight.model import DocumentId, NameStrength


class Claim(NamedTuple):
    """A document that answers to a key, and how strongly."""

    key: str
    strength: NameStrength
    document: DocumentId


def choose(keys: Sequence[str], collection: str, claims: Iterable[Claim]) -> DocumentId | None:
    """The link's own collection first, then its best key, then path before suffix before alias.

    Own collection first, so that adding a collection never turns the links of another elsewhere.
    Among equals the shortest path wins, as in Obsidian.
    """
    place = {key: at for at, key in reversed(list(enumerate(keys)))}
    ranked = min(
        (
            (
                claim.document.collection != collection,
                place[claim.key],
                claim.strength,
                claim.document.path.count("/"),
                len(claim.document.path),
                claim.document,
            )
            for claim in claims
            if claim.key in place
        ),
        default=None,
    )
    return ranked[-1] if ranked else None
