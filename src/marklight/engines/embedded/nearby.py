"""Documents one link away, and how many links a document has, however many there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from marklight.engines.embedded.graph import Targets
from marklight.engines.embedded.session import Session, listed
from marklight.model import DocumentId

LOOKED = 4
"""Links of each name looked at for each document wanted: several may lead there, or elsewhere."""
LEAST = 64
"""Links looked at in any case, since the first may all lead elsewhere."""
COUNTED = 2
"""The same where links are counted: fewer, since all of one document count."""

_ROWS = (
    "SELECT x.row, x.collection, x.path FROM json_each(?) j CROSS JOIN documents x"
    " ON x.path = json_extract(j.value, '$[1]') AND x.collection = json_extract(j.value, '$[0]')"
)
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
_COUNT = (
    "SELECT s.value, (SELECT count(*) FROM (SELECT 1 FROM links l WHERE l.document = s.value LIMIT ?))"
    " FROM json_each(?) s"
)


def neighbours(
    session: Session, documents: Sequence[DocumentId], most: int
) -> Mapping[DocumentId, Sequence[DocumentId]]:
    """One link away, either way."""
    rows = _rows(session, documents)
    found: dict[DocumentId, set[DocumentId]] = {id: set() for id in documents}
    given = [listed(rows), max(LOOKED * most, LEAST)]
    out, back = session.all(_OUT, given), session.all(_BACK, given)
    targets = Targets(session, [*out, *back])
    for way, links in ((0, out), (1, back)):
        ends: dict[DocumentId, set[DocumentId]] = {}
        for row, _, *link in links:
            id, source, target = rows[row], DocumentId(link[0], link[1]), targets.of(link)
            end = target if way == 0 else source if target == id else None
            known = ends.setdefault(id, set())
            if end is not None and end != id and len(known) < most:
                known.add(end)
        for id, known in ends.items():
            found[id] |= known
    return {id: sorted(near) for id, near in found.items()}


def degrees(
    session: Session, documents: Sequence[DocumentId], most: int
) -> Mapping[DocumentId, int]:
    """Links from each, and links that mean it."""
    rows = _rows(session, documents)
    found = dict.fromkeys(documents, 0)
    for row, count in session.all(_COUNT, [max(0, most), listed(rows)]):
        found[rows[row]] += count
    back = session.all(_BACK, [listed(rows), COUNTED * max(0, most)])
    targets = Targets(session, back)
    counted = dict.fromkeys(documents, 0)
    for row, _, *link in back:
        id = rows[row]
        if counted[id] < most and targets.of(link) == id:
            counted[id] += 1
    return {id: found[id] + counted[id] for id in found}


def edges(session: Session) -> Iterator[tuple[DocumentId, DocumentId]]:
    """Each pair once, in the order of its ends."""
    links = session.all(
        "SELECT DISTINCT d.collection, d.path, l.keys FROM links l"
        " JOIN documents d ON d.row = l.document ORDER BY 1, 2"
    )
    targets = Targets(session, [(0, 0, *link) for link in links])
    pairs: dict[DocumentId, set[DocumentId]] = {}
    for link in links:
        target = targets.of(link)
        if target is not None:
            pairs.setdefault(DocumentId(link[0], link[1]), set()).add(target)
    for source, ends in pairs.items():
        yield from ((source, target) for target in sorted(ends) if target != source)


def orphans(session: Session) -> list[DocumentId]:
    """Documents in no pair."""
    tied = {id for pair in edges(session) for id in pair}
    every = session.all("SELECT collection, path FROM documents ORDER BY 1, 2")
    return [id for row in every if (id := DocumentId(*row)) not in tied]


def _rows(session: Session, documents: Iterable[DocumentId]) -> dict[int, DocumentId]:
    return {
        row: DocumentId(collection, path)
        for row, collection, path in session.all(_ROWS, [listed(documents)])
    }
