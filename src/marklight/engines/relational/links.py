"""Edge table of resolved links: read neighbours and degrees from it, update it with each commit.

Where a commit leaves it out of date, links are resolved as they are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from marklight.engines.relational.documents import GIVEN_DOCUMENTS, document_facts
from marklight.engines.relational.records import encode_json
from marklight.model import DocumentId, Entry, ResolvedLink

if TYPE_CHECKING:
    from marklight.engines.relational.session import Session
    from marklight.engines.relational.snapshot import RelationalSnapshot

_NEIGHBOURS = (
    f"SELECT s.key, d.collection, d.path FROM {GIVEN_DOCUMENTS} CROSS JOIN LATERAL ["
    "SELECT value FROM (SELECT target AS value FROM edges WHERE source = x.row LIMIT ?) a"
    " UNION ALL SELECT value FROM (SELECT source AS value FROM edges WHERE target = x.row LIMIT ?) b"
    "] n ON true CROSS JOIN documents d ON d.row = n.value"
)
_DEGREES = (
    "SELECT s.key, (SELECT count(*) FROM (SELECT 1 FROM edges WHERE source = x.row LIMIT ?) a)"
    " + (SELECT count(*) FROM (SELECT 1 FROM edges WHERE target = x.row LIMIT ?) b)"
    f" FROM {GIVEN_DOCUMENTS}"
)


class RelationalLinks:
    """Links between documents, from the edge table where it is up to date."""

    def __init__(self, snapshot: RelationalSnapshot) -> None:
        self._snapshot = snapshot
        self._session = snapshot.session

    def last_changed(self) -> int:
        """Return the generation in which links, or the names that they resolve to, last changed."""
        return int(self._session.value("SELECT links_changed FROM state"))

    def outgoing(self, document: DocumentId) -> list[ResolvedLink]:
        """Return the links in a document, in order."""
        from marklight.engines.relational import link_resolution

        return link_resolution.outgoing(self._session, document)

    def incoming(self, document: DocumentId, limit: int | None = None) -> list[ResolvedLink]:
        """Return the links that resolve to a document."""
        from marklight.engines.relational import link_resolution

        return link_resolution.incoming(self._session, document, limit)

    def unresolved(self) -> list[ResolvedLink]:
        """Return the links that resolve to no document."""
        from marklight.engines.relational import link_resolution

        return link_resolution.unresolved(self._session)

    def named(self, key: str) -> list[DocumentId]:
        """Return the documents with this name in its strongest form, ordered by id."""
        from marklight.engines.relational import link_resolution

        return link_resolution.named(self._session, key)

    def neighbours(
        self, documents: Sequence[DocumentId], limit: int
    ) -> Mapping[DocumentId, Sequence[DocumentId]]:
        """Return the documents one link away, up to `limit` in each direction; which ones is unspecified."""
        if not self._has_edges():
            from marklight.engines.relational import link_resolution

            return link_resolution.neighbours(self._session, documents, limit)
        near: dict[DocumentId, set[DocumentId]] = {id: set() for id in documents}
        most = max(0, limit)
        given = [list(documents), most, most]
        for at, collection, path in self._session.all(_NEIGHBOURS, given):
            near[documents[at]].add(DocumentId(collection, path))
        return {id: sorted(ids) for id, ids in near.items()}

    def degrees(self, documents: Sequence[DocumentId], limit: int) -> Mapping[DocumentId, int]:
        """Return the number of linked documents, counted up to `limit` in each direction."""
        cache = self._snapshot.cache.degrees_up_to(limit)
        return cache.get(documents, lambda missing: self._degrees(missing, limit))

    def _degrees(self, documents: Sequence[DocumentId], limit: int) -> Mapping[DocumentId, int]:
        if not self._has_edges():
            from marklight.engines.relational import link_resolution

            return link_resolution.degrees(self._session, documents, limit)
        counts = dict.fromkeys(documents, 0)
        most = max(0, limit)
        for at, count in self._session.all(_DEGREES, [most, most, list(documents)]):
            counts[documents[at]] = count
        return counts

    def edges(self) -> Iterator[tuple[DocumentId, DocumentId]]:
        """Return the distinct pairs of a document and another one that it links to."""
        if not self._has_edges():
            from marklight.engines.relational import link_resolution

            yield from link_resolution.edges(self._session)
            return
        for row in self._session.each(
            "SELECT s.collection, s.path, t.collection, t.path FROM edges"
            " JOIN documents s ON s.row = source JOIN documents t ON t.row = target ORDER BY 1, 2, 3, 4"
        ):
            yield DocumentId(*row[:2]), DocumentId(*row[2:])

    def orphans(self) -> list[DocumentId]:
        """Return the documents without any link in or out, ordered by id."""
        if not self._has_edges():
            from marklight.engines.relational import link_resolution

            return link_resolution.orphans(self._session)
        rows = self._session.all(
            "SELECT collection, path FROM documents d"
            " WHERE NOT EXISTS (SELECT 1 FROM edges WHERE source = d.row)"
            " AND NOT EXISTS (SELECT 1 FROM edges WHERE target = d.row) ORDER BY 1, 2"
        )
        return [DocumentId(*row) for row in rows]

    def _has_edges(self) -> bool:
        cache = self._snapshot.cache
        if cache.has_edges is None:
            cache.has_edges = is_up_to_date(self._session)
        return cache.has_edges

    def communities(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, int]:
        """Return the stored communities of documents; those without one are skipped."""
        facts = document_facts(self._snapshot, documents)
        return {id: each.community for id, each in facts.items() if each.community is not None}


def is_up_to_date(session: Session) -> bool:
    """Return True if the edge table belongs to the links of this snapshot."""
    return bool(session.value("SELECT edges_updated = links_changed FROM state"))


MAX_LINKS_RESOLVED = 2_000
"""Links that one commit resolves anew. Where more are affected, as in the first index run, none is: the whole table
is rebuilt with the communities, and until then links are resolved as they are read."""

Edge = tuple[int, int]
"""Rows of the source and the target."""

LinkKeys = tuple[frozenset[str], frozenset[tuple[str, str]]]
"""Keys of a document's links, and the names that it has with their strengths."""

_NO_KEYS: LinkKeys = frozenset(), frozenset()
_THOSE = "IN (SELECT value FROM integers(?) i)"


def rebuild(session: Session) -> None:
    """Rebuild the edge table from all links."""
    edges = resolved_edges(session)
    session.run("DELETE FROM edges")
    session.insert("edges", "source, target", sorted(edges))
    session.run("UPDATE state SET edges_updated = links_changed")


def resolved_edges(session: Session, sources: Collection[int] | None = None) -> set[Edge]:
    """Resolve the links of all documents, or of some, to edges."""
    from marklight.engines.relational.link_resolution import document_rows, edges

    pairs = list(edges(session, sources))
    ends = document_rows(session, {id for pair in pairs for id in pair})
    rows = {id: row for row, id in ends.items()}
    return {(rows[source], rows[target]) for source, target in pairs}


def take_edges(session: Session, documents: list[int]) -> list[Edge] | None:
    """Delete the edges of deleted documents and return them; None if the table was not up to date."""
    edges: list[Edge] = []
    if documents:
        edges = session.all(
            f"SELECT source, target FROM edges WHERE source {_THOSE}"
            f" UNION SELECT source, target FROM edges WHERE target {_THOSE}",
            [documents, documents],
        )
        session.many("DELETE FROM edges WHERE source = ? AND target = ?", edges)
    return edges if is_up_to_date(session) else None


def stored_keys(
    session: Session, documents: Mapping[DocumentId, int]
) -> Mapping[DocumentId, LinkKeys]:
    """Return the link keys and names of stored documents, given with their rows."""
    stored = {}
    for id, row in documents.items():
        keys = session.all("SELECT keys FROM links WHERE document = ?", [row])
        names = session.all("SELECT key, strength FROM names WHERE document = ?", [row])
        stored[id] = frozenset(key for (key,) in keys), frozenset(names)
    return stored


def new_keys(entries: Iterable[Entry]) -> Mapping[DocumentId, LinkKeys]:
    """Return the link keys and names of parsed documents."""
    return {
        entry.document.id: (
            frozenset(encode_json(link.keys) for link in entry.document.links),
            frozenset((name.key, str(name.strength)) for name in entry.document.names),
        )
        for entry in entries
    }


def update(
    session: Session,
    deleted: Iterable[Edge],
    moved: Mapping[int, int],
    before: Mapping[DocumentId, LinkKeys],
    after: Mapping[DocumentId, LinkKeys],
) -> None:
    """Bring the edge table up to date after documents were deleted and inserted, some under new rows."""
    _insert(
        session,
        [(moved.get(source, source), moved.get(target, target)) for source, target in deleted],
    )
    if before == after:
        return
    affected = _affected(session, before, after)
    if affected is not None:
        session.run(f"DELETE FROM edges WHERE source {_THOSE}", [list(affected)])
        _insert(session, resolved_edges(session, affected))
        session.run("UPDATE state SET edges_updated = links_changed")


def _insert(session: Session, edges: Iterable[Edge]) -> None:
    """Insert the edges of which both documents exist."""
    session.many(
        "INSERT INTO edges SELECT s.row, t.row FROM documents s CROSS JOIN documents t ON t.row = ?"
        " WHERE s.row = ? ON CONFLICT DO NOTHING",
        ((target, source) for source, target in edges),
    )


def _affected(
    session: Session, before: Mapping[DocumentId, LinkKeys], after: Mapping[DocumentId, LinkKeys]
) -> set[int] | None:
    """Return the documents with links that may resolve differently now; None if they have too many."""
    from marklight.engines.relational.link_resolution import document_rows

    changed: set[DocumentId] = set()
    names: set[str] = set()
    for id in before.keys() | after.keys():
        (old_links, old_names), (links, own) = before.get(id, _NO_KEYS), after.get(id, _NO_KEYS)
        names.update(key for key, _ in old_names ^ own)
        if links != old_links:
            changed.add(id)
    linking = session.all(
        "SELECT l.document FROM texts(?) n CROSS JOIN link_keys k ON k.key = n.value"
        " CROSS JOIN links l ON l.row = k.link LIMIT ?",
        [list(names), MAX_LINKS_RESOLVED + 1],
    )
    affected = {row for (row,) in linking} | document_rows(session, changed).keys()
    count = session.value(
        f"SELECT count(*) FROM (SELECT 1 FROM links WHERE document {_THOSE} LIMIT ?) l",
        [list(affected), MAX_LINKS_RESOLVED + 1],
    )
    return None if max(len(linking), count) > MAX_LINKS_RESOLVED else affected
