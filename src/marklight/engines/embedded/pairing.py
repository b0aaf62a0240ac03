"""Resolve links when they change and keep which document leads to which, so that no search has to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from marklight.engines.embedded import edges, nearby
from marklight.engines.embedded.session import Session, json_list
from marklight.engines.embedded.ties import Ties
from marklight.model import DocumentId

MOST = 2_000
"""Links that a commit resolves anew. Where more are in doubt, as while a library is made, none is:
all are when its documents are grouped, and until then as they are read."""

Pair = tuple[int, int]
"""The rows of two documents."""

_NONE: Ties = frozenset(), frozenset()
_THOSE = "IN (SELECT value FROM json_each(?))"


def renew(session: Session) -> None:
    """All edges, from the links."""
    found = resolved(session)
    session.run("DELETE FROM edges")
    session.many("INSERT INTO edges VALUES (?, ?)", sorted(found))
    session.run("UPDATE state SET paired = linked")


def resolved(session: Session, sources: Collection[int] | None = None) -> set[Pair]:
    """What links say now: those of all documents, or of some."""
    found = list(nearby.pairs(session, sources))
    ends = nearby.document_rows(session, {id for pair in found for id in pair})
    rows = {id: row for row, id in ends.items()}
    return {(rows[source], rows[target]) for source, target in found}


def leaving(session: Session, documents: Collection[int]) -> list[Pair] | None:
    """The edges of documents that are about to leave; None where edges are not right anyway."""
    if not edges.right(session):
        return None
    found: list[Pair] = session.all(
        f"SELECT source, target FROM edges WHERE source {_THOSE}"
        f" UNION SELECT source, target FROM edges WHERE target {_THOSE}",
        [json_list(documents)] * 2,
    )
    return found


def follow(
    session: Session,
    left: Iterable[Pair],
    moved: Mapping[int, int],
    before: Mapping[DocumentId, Ties],
    after: Mapping[DocumentId, Ties],
) -> None:
    """Let edges that were right be right again: documents have left and come, some under new rows."""
    _add(
        session, [(moved.get(source, source), moved.get(target, target)) for source, target in left]
    )
    if before == after:
        return
    doubted = _doubted(session, before, after)
    if doubted is not None:
        session.run(f"DELETE FROM edges WHERE source {_THOSE}", [json_list(doubted)])
        _add(session, resolved(session, doubted))
        session.run("UPDATE state SET paired = linked")


def _add(session: Session, pairs: Iterable[Pair]) -> None:
    """Those whose documents are both there."""
    session.run(
        "INSERT OR IGNORE INTO edges SELECT s.row, t.row FROM json_each(?) p"
        " CROSS JOIN documents s ON s.row = json_extract(p.value, '$[0]')"
        " CROSS JOIN documents t ON t.row = json_extract(p.value, '$[1]')",
        [json_list(pairs)],
    )


def _doubted(
    session: Session, before: Mapping[DocumentId, Ties], after: Mapping[DocumentId, Ties]
) -> set[int] | None:
    """Documents with links that may lead elsewhere now; None where they have too many."""
    changed: set[DocumentId] = set()
    names: set[str] = set()
    for id in before.keys() | after.keys():
        (old_links, old_names), (links, own) = before.get(id, _NONE), after.get(id, _NONE)
        names.update(key for key, _ in old_names ^ own)
        if links != old_links:
            changed.add(id)
    asking = session.all(
        "SELECT l.document FROM json_each(?) n CROSS JOIN link_keys k ON k.key = n.value"
        " CROSS JOIN links l ON l.row = k.link LIMIT ?",
        [json_list(names), MOST + 1],
    )
    found = {row for (row,) in asking} | nearby.document_rows(session, changed).keys()
    links = session.value(
        f"SELECT count(*) FROM (SELECT 1 FROM links WHERE document {_THOSE} LIMIT ?)",
        [json_list(found), MOST + 1],
    )
    return None if max(len(asking), links) > MOST else found
