"""When links, or the names that they find, last changed: by what leaves and what comes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from marklight.engines.embedded.records import packed
from marklight.engines.embedded.session import Session
from marklight.model import DocumentId, Entry

Ties = tuple[frozenset[str], frozenset[tuple[str, str]]]
"""The names that a document's links look for, and those that it answers to."""


def stored(session: Session, leaving: Mapping[DocumentId, int]) -> Mapping[DocumentId, Ties]:
    """Of documents that are about to leave."""
    found = {}
    for id, row in leaving.items():
        keys = session.all("SELECT keys FROM links WHERE document = ?", [row])
        names = session.all("SELECT key, strength FROM names WHERE document = ?", [row])
        found[id] = frozenset(key for (key,) in keys), frozenset(names)
    return found


def arriving(entries: Iterable[Entry]) -> Mapping[DocumentId, Ties]:
    """The same of documents that come."""
    return {
        entry.document.id: (
            frozenset(packed(link.keys) for link in entry.document.links),
            frozenset((name.key, str(name.strength)) for name in entry.document.names),
        )
        for entry in entries
    }
