"""Resolve links as they are read: links of a document in both directions, and neighbours without the edge table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from marklight.engines.names import LinkCandidate, folder_of, resolve_link, strongest
from marklight.engines.relational import records
from marklight.engines.relational.documents import GIVEN_DOCUMENTS, document_row
from marklight.engines.relational.records import decode_texts
from marklight.model import DocumentId, NameStrength, ResolvedLink

if TYPE_CHECKING:
    from marklight.engines.relational.session import Row, Session

_LINKS = f"SELECT d.collection, d.path, {records.LINK} FROM links l JOIN documents d ON d.row = l.document"
_ORDER = "ORDER BY d.collection, d.path, l.row"
_STRENGTHS = {str(strength): strength for strength in NameStrength}
_BATCH_LINKS = 1000
"""Links resolved together: few queries, and little wasted work where a limit is near."""

LINKS_PER_NEIGHBOUR = 4
"""Links read for each requested neighbour: several may lead to the same document, or elsewhere."""
MIN_LINKS_READ = 64
"""Links read in any case, since the first may all lead elsewhere."""

_OUTGOING = (
    "SELECT s.value, l.row, d.collection, d.path, l.keys FROM integers(?) s"
    " CROSS JOIN documents d ON d.row = s.value CROSS JOIN LATERAL ["
    "SELECT y.row AS value FROM links y WHERE y.document = s.value ORDER BY y.row LIMIT ?"
    "] k ON true CROSS JOIN links l ON l.row = k.value"
)
# A link with two of a document's names counts once, and is read once.
_INCOMING = (
    "SELECT h.document, h.link, d.collection, d.path, l.keys FROM (SELECT DISTINCT"
    " s.value AS document, k.value AS link FROM integers(?) s"
    " CROSS JOIN names n ON n.document = s.value CROSS JOIN LATERAL ["
    "SELECT x.link AS value FROM link_keys x WHERE x.key = n.key ORDER BY x.link LIMIT ?"
    "] k ON true) h"
    " CROSS JOIN links l ON l.row = h.link CROSS JOIN documents d ON d.row = l.document"
)


def outgoing(session: Session, document: DocumentId) -> list[ResolvedLink]:
    """Return the links in a document, in order."""
    row = document_row(session, document)
    return _resolved(session, session.all(f"{_LINKS} WHERE l.document = ? {_ORDER}", [row]))


def incoming(
    session: Session, document: DocumentId, limit: int | None = None
) -> list[ResolvedLink]:
    """Return the links that have one of a document's names as a key and resolve to it."""
    candidates = session.each(
        f"{_LINKS} WHERE l.row IN (SELECT k.link FROM names n JOIN link_keys k ON k.key = n.key"
        f" WHERE n.document = ?) {_ORDER}",
        [document_row(session, document)],
    )
    links: list[ResolvedLink] = []
    while (limit is None or len(links) < limit) and (
        rows := list(islice(candidates, _BATCH_LINKS))
    ):
        links += (link for link in _resolved(session, rows) if link.target == document)
    return links[:limit]


def unresolved(session: Session) -> list[ResolvedLink]:
    """Return the links with no key that is the name of a document."""
    rows = session.all(
        f"{_LINKS} WHERE NOT EXISTS (SELECT 1 FROM link_keys k JOIN names n ON n.key = k.key"
        f" WHERE k.link = l.row) {_ORDER}"
    )
    return [ResolvedLink(DocumentId(*row[:2]), records.link(row[2:]), None) for row in rows]


def named(session: Session, key: str) -> list[DocumentId]:
    """Return the documents with this name in its strongest form, ordered by id."""
    return strongest(_candidates(session, [key]).get(key, ()))


class Targets:
    """Targets of links, resolved once for all links with the same keys in the same folder."""

    def __init__(self, session: Session, links: Iterable[Row]) -> None:
        """Resolve links, given as rows that end in the source's collection and path and the stored keys."""
        wanted = {(link[-3], folder_of(link[-2]), link[-1]) for link in links}
        keys = {stored: decode_texts(stored) for *_, stored in wanted}
        named = _candidates(session, {key for own in keys.values() for key in own})
        self._targets = {
            (collection, folder, stored): resolve_link(
                keys[stored],
                collection,
                [each for key in keys[stored] for each in named.get(key, ())],
                folder,
            )
            for collection, folder, stored in wanted
        }

    def of(self, link: Sequence[str]) -> DocumentId | None:
        """Return the target of one of the links."""
        return self._targets[link[-3], folder_of(link[-2]), link[-1]]


@records.raises_damaged
def _resolved(session: Session, rows: list[Row]) -> list[ResolvedLink]:
    links = [(DocumentId(*row[:2]), records.link(row[2:])) for row in rows]
    named = _candidates(session, {key for _, link in links for key in link.keys})
    return [
        ResolvedLink(
            source,
            link,
            resolve_link(
                link.keys,
                source.collection,
                [each for key in link.keys for each in named.get(key, ())],
                folder_of(source.path),
            ),
        )
        for source, link in links
    ]


@records.raises_damaged
def _candidates(session: Session, keys: Iterable[str]) -> dict[str, list[LinkCandidate]]:
    """Return the documents that have these keys as names."""
    named: dict[str, list[LinkCandidate]] = defaultdict(list)
    for key, strength, collection, path in session.all(
        "SELECT n.key, n.strength, d.collection, d.path FROM texts(?) k"
        " CROSS JOIN names n ON n.key = k.value JOIN documents d ON d.row = n.document",
        [list(keys)],
    ):
        document = DocumentId(collection, path)
        named[key].append(LinkCandidate(key, _STRENGTHS[strength], document))
    return named


def neighbours(
    session: Session, documents: Sequence[DocumentId], limit: int
) -> Mapping[DocumentId, Sequence[DocumentId]]:
    """Return the documents one link away in either direction."""
    ends = _ends(session, documents, limit)
    return {id: sorted(targets | sources) for id, (targets, sources) in ends.items()}


def degrees(
    session: Session, documents: Sequence[DocumentId], limit: int
) -> Mapping[DocumentId, int]:
    """Return the numbers of targets and sources, each counted up to the limit."""
    ends = _ends(session, documents, limit)
    return {id: len(targets) + len(sources) for id, (targets, sources) in ends.items()}


def _ends(
    session: Session, documents: Sequence[DocumentId], limit: int
) -> dict[DocumentId, tuple[set[DocumentId], set[DocumentId]]]:
    """Return the targets and the sources of each document."""
    rows = document_rows(session, documents)
    given = [list(rows), max(LINKS_PER_NEIGHBOUR * limit, MIN_LINKS_READ)]
    directions = session.all(_OUTGOING, given), session.all(_INCOMING, given)
    targets = Targets(session, [*directions[0], *directions[1]])
    ends: dict[DocumentId, tuple[set[DocumentId], set[DocumentId]]] = {
        id: (set(), set()) for id in documents
    }
    for direction, links in enumerate(directions):
        for row, _, *link in links:
            id, source, target = rows[row], DocumentId(link[0], link[1]), targets.of(link)
            end = target if direction == 0 else source if target == id else None
            known = ends[id][direction]
            if end is not None and end != id and len(known) < limit:
                known.add(end)
    return ends


def edges(
    session: Session, sources: Collection[int] | None = None
) -> Iterator[tuple[DocumentId, DocumentId]]:
    """Yield the distinct pairs of source and target in order; of all documents, or from some rows."""
    those = "" if sources is None else " WHERE l.document IN (SELECT value FROM integers(?) i)"
    links = session.all(
        "SELECT DISTINCT d.collection, d.path, l.keys FROM links l"
        f" JOIN documents d ON d.row = l.document{those} ORDER BY 1, 2",
        [] if sources is None else [list(sources)],
    )
    resolved = Targets(session, [(0, 0, *link) for link in links])
    targets: dict[DocumentId, set[DocumentId]] = {}
    for link in links:
        target = resolved.of(link)
        if target is not None:
            targets.setdefault(DocumentId(link[0], link[1]), set()).add(target)
    for source, ends in targets.items():
        yield from ((source, target) for target in sorted(ends) if target != source)


def orphans(session: Session) -> list[DocumentId]:
    """Return the documents without any edge."""
    linked = {id for edge in edges(session) for id in edge}
    every = session.all("SELECT collection, path FROM documents ORDER BY 1, 2")
    return [id for row in every if (id := DocumentId(*row)) not in linked]


def document_rows(session: Session, documents: Iterable[DocumentId]) -> dict[int, DocumentId]:
    """Return documents by their rows; missing ids are skipped."""
    return {
        row: DocumentId(collection, path)
        for row, collection, path in session.all(
            f"SELECT x.row, x.collection, x.path FROM {GIVEN_DOCUMENTS}", [list(documents)]
        )
    }
