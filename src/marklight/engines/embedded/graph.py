"""Links both ways, resolved when they are read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice

from marklight.engines.embedded import records
from marklight.engines.embedded.read import document_row
from marklight.engines.embedded.records import unpacked
from marklight.engines.embedded.session import Row, Session, json_list
from marklight.engines.link_resolution import LinkCandidate, resolve_link
from marklight.model import DocumentId, NameStrength, ResolvedLink

_LINKS = f"SELECT d.collection, d.path, {records.LINK} FROM links l JOIN documents d ON d.row = l.document"
_ORDER = "ORDER BY d.collection, d.path, l.row"
_STRENGTHS = {str(each): each for each in NameStrength}
_PORTION = 1000
"""Links resolved together: few questions to the tables, and few too many where a limit is near."""


def links_from(session: Session, document: DocumentId) -> list[ResolvedLink]:
    """What a document points to."""
    row = document_row(session, document)
    return _resolved(session, session.all(f"{_LINKS} WHERE l.document = ? {_ORDER}", [row]))


def links_to(
    session: Session, document: DocumentId, limit: int | None = None
) -> list[ResolvedLink]:
    """What points to a document: links that know one of its names and mean this document by it."""
    hopeful = session.each(
        f"{_LINKS} WHERE l.row IN (SELECT k.link FROM names n JOIN link_keys k ON k.key = n.key"
        f" WHERE n.document = ?) {_ORDER}",
        [document_row(session, document)],
    )
    found: list[ResolvedLink] = []
    while (limit is None or len(found) < limit) and (rows := list(islice(hopeful, _PORTION))):
        found += (link for link in _resolved(session, rows) if link.target == document)
    return found[:limit]


def unresolved(session: Session) -> list[ResolvedLink]:
    """Links that no document answers to."""
    rows = session.all(
        f"{_LINKS} WHERE NOT EXISTS (SELECT 1 FROM link_keys k JOIN names n ON n.key = k.key"
        f" WHERE k.link = l.row) {_ORDER}"
    )
    return [ResolvedLink(DocumentId(*row[:2]), records.link(row[2:]), None) for row in rows]


def resolve(session: Session, keys: Sequence[str], collection: str) -> DocumentId | None:
    """The document that these names mean to this collection."""
    claims = _claims(session, keys)
    return resolve_link(keys, collection, (claim for key in claims for claim in claims[key]))


class Targets:
    """What links mean, found once for all that look for the same names in the same collection."""

    def __init__(self, session: Session, links: Iterable[Row]) -> None:
        """Links are rows that end in the source's collection and path, and the link's own keys."""
        asked = {(link[-3], link[-1]) for link in links}
        keys = {stored: unpacked(stored) for _, stored in asked}
        claims = _claims(session, {key for each in keys.values() for key in each})
        self._found = {
            (collection, stored): resolve_link(
                keys[stored],
                collection,
                [claim for key in keys[stored] for claim in claims.get(key, ())],
            )
            for collection, stored in asked
        }

    def of(self, link: Sequence[str]) -> DocumentId | None:
        """The document that one of them means."""
        return self._found[link[-3], link[-1]]


@records.stored
def _resolved(session: Session, rows: list[Row]) -> list[ResolvedLink]:
    links = [(DocumentId(*row[:2]), records.link(row[2:])) for row in rows]
    claims = _claims(session, {key for _, link in links for key in link.keys})
    return [
        ResolvedLink(
            source,
            link,
            resolve_link(
                link.keys,
                source.collection,
                [claim for key in link.keys for claim in claims.get(key, ())],
            ),
        )
        for source, link in links
    ]


@records.stored
def _claims(session: Session, keys: Iterable[str]) -> dict[str, list[LinkCandidate]]:
    found: dict[str, list[LinkCandidate]] = defaultdict(list)
    for key, strength, collection, path in session.all(
        "SELECT n.key, n.strength, d.collection, d.path FROM json_each(?) k"
        " CROSS JOIN names n ON n.key = k.value JOIN documents d ON d.row = n.document",
        [json_list(keys)],
    ):
        found[key].append(LinkCandidate(key, _STRENGTHS[strength], DocumentId(collection, path)))
    return found
