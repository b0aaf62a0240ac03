"""Documents one link away, where links have been resolved and kept (pairing.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from marklight.engines.embedded.read import ASKED
from marklight.engines.embedded.session import Session, json_list
from marklight.model import DocumentId

_NEAR = (
    f"SELECT s.key, d.collection, d.path FROM {ASKED} CROSS JOIN documents d ON d.row IN"
    " (SELECT target FROM (SELECT target FROM edges WHERE source = x.row LIMIT ?2)"
    " UNION ALL SELECT source FROM (SELECT source FROM edges WHERE target = x.row LIMIT ?2))"
)
_COUNT = (
    "SELECT s.key, (SELECT count(*) FROM (SELECT 1 FROM edges WHERE source = x.row LIMIT ?2))"
    f" + (SELECT count(*) FROM (SELECT 1 FROM edges WHERE target = x.row LIMIT ?2)) FROM {ASKED}"
)


def right(session: Session) -> bool:
    """Whether they are those of this view; otherwise links are to be resolved as they are read."""
    return bool(session.value("SELECT paired = linked FROM state"))


def neighbours(
    session: Session, documents: Sequence[DocumentId], most: int
) -> Mapping[DocumentId, Sequence[DocumentId]]:
    """One link away, either way."""
    found: dict[DocumentId, list[DocumentId]] = {id: [] for id in documents}
    for at, collection, path in session.all(_NEAR, [json_list(documents), max(0, most)]):
        found[documents[at]].append(DocumentId(collection, path))
    return {id: sorted(near) for id, near in found.items()}


def degrees(
    session: Session, documents: Sequence[DocumentId], most: int
) -> Mapping[DocumentId, int]:
    """Documents that each leads to, and those that lead to it."""
    found = dict.fromkeys(documents, 0)
    for at, count in session.all(_COUNT, [json_list(documents), max(0, most)]):
        found[documents[at]] = count
    return found


def pairs(session: Session) -> Iterator[tuple[DocumentId, DocumentId]]:
    """Each once, in the order of its ends."""
    for row in session.each(
        "SELECT s.collection, s.path, t.collection, t.path FROM edges"
        " JOIN documents s ON s.row = source JOIN documents t ON t.row = target ORDER BY 1, 2, 3, 4"
    ):
        yield DocumentId(*row[:2]), DocumentId(*row[2:])


def orphans(session: Session) -> list[DocumentId]:
    """Documents in no pair."""
    found = session.all(
        "SELECT collection, path FROM documents d"
        " WHERE NOT EXISTS (SELECT 1 FROM edges WHERE source = d.row)"
        " AND NOT EXISTS (SELECT 1 FROM edges WHERE target = d.row) ORDER BY 1, 2"
    )
    return [DocumentId(*row) for row in found]
