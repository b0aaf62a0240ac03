"""Passages by the name of their document or section, found by an index whatever their number."""

from __future__ import annotations

from collections.abc import Callable

from marklight.engines.embedded.allowed import Allowed, which
from marklight.engines.embedded.session import Session
from marklight.ports import ScoredChunk
from marklight.text import normalize


def named(
    session: Session, name: str, may: Callable[[], Allowed | None], limit: int
) -> list[ScoredChunk]:
    """The first passage that may answer of each document and section that is called so."""
    wanted = normalize(name)
    if limit <= 0 or session.value("SELECT 1 FROM callings WHERE name = ?", [wanted]) is None:
        return []
    condition, values = which(may())
    first = (
        "SELECT c.id FROM chunks c WHERE c.document = n.document"
        f" AND c.ordinal BETWEEN n.first AND n.last AND {condition} ORDER BY c.ordinal LIMIT 1"
    )
    found = session.all(
        f"SELECT id, max(score) FROM (SELECT ({first}) AS id, n.score FROM callings n"
        " WHERE n.name = ?) WHERE id IS NOT NULL GROUP BY id ORDER BY 2 DESC, 1 LIMIT ?",
        [*values, wanted, limit],
    )
    return [ScoredChunk(*row) for row in found]
