"""Documents one link away, by links resolved as they are read, however many there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from marklight.engines.embedded.graph import Targets
from marklight.engines.embedded.read import ASKED
from marklight.engines.embedded.session import Session, json_list
from marklight.model import DocumentId

LOOKED = 4
"""Links of each name looked at for each document wanted: several may lead there, or elsewhere."""
LEAST = 64
"""Links looked at in any case, since the first may all lead elsewhere."""

_OUT = (
    "SELECT s.value, l.row, d.collection, d.path, l.keys FROM json_each(?) s"
    " CROSS JOIN documents d ON d.row = s.value CROSS JOIN links l"
    " ON l.row IN (SELECT row FROM links WHERE document = s.value ORDER BY row LIMIT ?)"
)
# A link that has two of a document's names counts once, and is opened once.
_BACK = (
    "SELECT h.document, h.link, d.collection, d.path, l.keys FROM (SELECT DISTINCT"
    " s.value AS document, k.value AS link FROM json_each(?) s"
    " CROSS JOIN names n ON n.document = s.value CROSS JOIN json_each((SELECT json_group_array(link)"
    " FROM (SELECT link FROM link_keys x WHERE x.key = n.key ORDER BY x.link LIMIT ?))) k) h"
    " CROSS JOIN links l ON l.row = h.link CROSS JOIN documents d ON d.row = l.document"
)


def neighbours(
    session: Session, documents: Sequence[DocumentId], most: int
) -> Mapping[DocumentId, Sequence[DocumentId]]:
    """One link away, either way."""
    found = _ends(session, documents, most)
    return {id: sorted(out | back) for id, (out, back) in found.items()}


def degrees(
    session: Session, documents: Sequence[DocumentId], most: int
) -> Mapping[DocumentId, int]:
    """Documents that each leads to, and those that lead to it."""
    found = _ends(session, documents, most)
    return {id: len(out) + len(back) for id, (out, back) in found.items()}


def _ends(
    session: Session, documents: Sequence[DocumentId], most: int
) -> dict[DocumentId, tuple[set[DocumentId], set[DocumentId]]]:
    """One link away, each way apart."""
    rows = document_rows(session, documents)
    given = [json_list(rows), max(LOOKED * most, LEAST)]
    ways = session.all(_OUT, given), session.all(_BACK, given)
    targets = Targets(session, [*ways[0], *ways[1]])
    found: dict[DocumentId, tuple[set[DocumentId], set[DocumentId]]] = {
        id: (set(), set()) for id in documents
    }
    for way, links in enumerate(ways):
        for row, _, *link in links:
            id, source, target = rows[row], DocumentId(link[0], link[1]), targets.of(link)
            end = target if way == 0 else source if target == id else None
            known = found[id][way]
            if end is not None and end != id and len(known) < most:
                known.add(end)
    return found


def pairs(
    session: Session, sources: Collection[int] | None = None
) -> Iterator[tuple[DocumentId, DocumentId]]:
    """Each pair of documents once, in the order of its ends; of all documents, or from some."""
    those = "" if sources is None else " WHERE l.document IN (SELECT value FROM json_each(?))"
    links = session.all(
        "SELECT DISTINCT d.collection, d.path, l.keys FROM links l"
        f" JOIN documents d ON d.row = l.document{those} ORDER BY 1, 2",
        [] if sources is None else [json_list(sources)],
    )
    targets = Targets(session, [(0, 0, *link) for link in links])
    found: dict[DocumentId, set[DocumentId]] = {}
    for link in links:
        target = targets.of(link)
        if target is not None:
            found.setdefault(DocumentId(link[0], link[1]), set()).add(target)
    for source, ends in found.items():
        yield from ((source, target) for target in sorted(ends) if target != source)


def orphans(session: Session) -> list[DocumentId]:
    """Documents in no pair."""
    tied = {id for pair in pairs(session) for id in pair}
    every = session.all("SELECT collection, path FROM documents ORDER BY 1, 2")
    return [id for row in every if (id := DocumentId(*row)) not in tied]


def document_rows(session: Session, documents: Iterable[DocumentId]) -> dict[int, DocumentId]:
    """The rows of those that are there."""
    return {
        row: DocumentId(collection, path)
        for row, collection, path in session.all(
            f"SELECT x.row, x.collection, x.path FROM {ASKED}", [json_list(documents)]
        )
    }
