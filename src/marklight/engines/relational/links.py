"""Links between documents: resolve them, and keep the edge table of resolved links up to date with each commit.

Neighbours and degrees are read from the edge table. Where a commit leaves it out of date, links are resolved as they are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from marklight.engines.names import LinkCandidate, folder_of, resolve_link, strongest
from marklight.engines.relational import records
from marklight.engines.relational.documents import GIVEN_DOCUMENTS, document_facts, document_row
from marklight.engines.relational.records import decode_texts, encode_json
from marklight.model import DocumentId, Entry, NameStrength, ResolvedLink

if TYPE_CHECKING:
    from marklight.engines.relational import Row, SqlSession
    from marklight.engines.relational.snapshot import RelationalSnapshot

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
        row = document_row(self._session, document)
        return self._resolved(self._session.all(f"{_LINKS} WHERE l.document = ? {_ORDER}", [row]))

    def incoming(self, document: DocumentId, limit: int | None = None) -> list[ResolvedLink]:
        """Return the links that resolve to a document."""
        candidates = self._session.each(
            f"{_LINKS} WHERE l.row IN (SELECT k.link FROM names n JOIN link_keys k ON k.key = n.key"
            f" WHERE n.document = ?) {_ORDER}",
            [document_row(self._session, document)],
        )
        links: list[ResolvedLink] = []
        while (limit is None or len(links) < limit) and (
            rows := list(islice(candidates, _BATCH_LINKS))
        ):
            links += (link for link in self._resolved(rows) if link.target == document)
        return links[:limit]

    def unresolved(self) -> list[ResolvedLink]:
        """Return the links that resolve to no document."""
        rows = self._session.all(
            f"{_LINKS} WHERE NOT EXISTS (SELECT 1 FROM link_keys k JOIN names n ON n.key = k.key"
            f" WHERE k.link = l.row) {_ORDER}"
        )
        return [ResolvedLink(DocumentId(*row[:2]), records.link(row[2:]), None) for row in rows]

    def named(self, key: str) -> list[DocumentId]:
        """Return the documents with this name in its strongest form, ordered by id."""
        return strongest(_candidates(self._session, [key]).get(key, ()))

    def neighbours(
        self, documents: Sequence[DocumentId], limit: int
    ) -> Mapping[DocumentId, Sequence[DocumentId]]:
        """Return the documents one link away, up to `limit` in each direction; which ones is unspecified."""
        if not self._has_edges():
            ends = _ends(self._session, documents, limit)
            return {id: sorted(targets | sources) for id, (targets, sources) in ends.items()}
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
            ends = _ends(self._session, documents, limit)
            return {id: len(targets) + len(sources) for id, (targets, sources) in ends.items()}
        counts = dict.fromkeys(documents, 0)
        most = max(0, limit)
        for at, count in self._session.all(_DEGREES, [most, most, list(documents)]):
            counts[documents[at]] = count
        return counts

    def edges(self) -> Iterator[tuple[DocumentId, DocumentId]]:
        """Return the distinct pairs of a document and another one that it links to."""
        if not self._has_edges():
            yield from _linked_pairs(self._session)
            return
        for row in self._session.each(
            "SELECT s.collection, s.path, t.collection, t.path FROM edges"
            " JOIN documents s ON s.row = source JOIN documents t ON t.row = target ORDER BY 1, 2, 3, 4"
        ):
            yield DocumentId(*row[:2]), DocumentId(*row[2:])

    def orphans(self) -> list[DocumentId]:
        """Return the documents without any link in or out, ordered by id."""
        if not self._has_edges():
            linked = {id for pair in _linked_pairs(self._session) for id in pair}
            rows = self._session.all("SELECT collection, path FROM documents ORDER BY 1, 2")
            return [id for row in rows if (id := DocumentId(*row)) not in linked]
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
        return {id: fact.community for id, fact in facts.items() if fact.community is not None}

    @records.raises_damaged
    def _resolved(self, rows: list[Row]) -> list[ResolvedLink]:
        links = [(DocumentId(*row[:2]), records.link(row[2:])) for row in rows]
        named = _candidates(self._session, {key for _, link in links for key in link.keys})
        return [
            ResolvedLink(
                source,
                link,
                resolve_link(
                    link.keys,
                    source.collection,
                    [candidate for key in link.keys for candidate in named.get(key, ())],
                    folder_of(source.path),
                ),
            )
            for source, link in links
        ]


class Targets:
    """Targets of links, resolved once for all links with the same keys in the same folder."""

    def __init__(self, session: SqlSession, links: Iterable[Row]) -> None:
        """Resolve links, given as rows that end in the source's collection and path and the stored keys."""
        wanted = {(link[-3], folder_of(link[-2]), link[-1]) for link in links}
        keys = {stored: decode_texts(stored) for *_, stored in wanted}
        named = _candidates(session, {key for decoded in keys.values() for key in decoded})
        self._targets = {
            (collection, folder, stored): resolve_link(
                keys[stored],
                collection,
                [candidate for key in keys[stored] for candidate in named.get(key, ())],
                folder,
            )
            for collection, folder, stored in wanted
        }

    def of(self, link: Sequence[str]) -> DocumentId | None:
        """Return the target of one of the links."""
        return self._targets[link[-3], folder_of(link[-2]), link[-1]]


@records.raises_damaged
def _candidates(session: SqlSession, keys: Iterable[str]) -> dict[str, list[LinkCandidate]]:
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


def _ends(
    session: SqlSession, documents: Sequence[DocumentId], limit: int
) -> dict[DocumentId, tuple[set[DocumentId], set[DocumentId]]]:
    """Return the targets and the sources of each document."""
    rows = _document_rows(session, documents)
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
            linked = ends[id][direction]
            if end is not None and end != id and len(linked) < limit:
                linked.add(end)
    return ends


def _linked_pairs(
    session: SqlSession, sources: Collection[int] | None = None
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


def _document_rows(session: SqlSession, documents: Iterable[DocumentId]) -> dict[int, DocumentId]:
    """Return documents by their rows; missing ids are skipped."""
    return {
        row: DocumentId(collection, path)
        for row, collection, path in session.all(
            f"SELECT x.row, x.collection, x.path FROM {GIVEN_DOCUMENTS}", [list(documents)]
        )
    }


def is_up_to_date(session: SqlSession) -> bool:
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


def rebuild(session: SqlSession) -> None:
    """Rebuild the edge table from all links."""
    edges = resolved_edges(session)
    session.run("DELETE FROM edges")
    session.insert("edges", "source, target", sorted(edges))
    session.run("UPDATE state SET edges_updated = links_changed")


def resolved_edges(session: SqlSession, sources: Collection[int] | None = None) -> set[Edge]:
    """Resolve the links of all documents, or of some, to edges."""
    pairs = list(_linked_pairs(session, sources))
    ends = _document_rows(session, {id for pair in pairs for id in pair})
    rows = {id: row for row, id in ends.items()}
    return {(rows[source], rows[target]) for source, target in pairs}


def take_edges(session: SqlSession, documents: list[int]) -> list[Edge] | None:
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
    session: SqlSession, documents: Mapping[DocumentId, int]
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
    session: SqlSession,
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


def _insert(session: SqlSession, edges: Iterable[Edge]) -> None:
    """Insert the edges of which both documents exist."""
    session.many(
        "INSERT INTO edges SELECT s.row, t.row FROM documents s CROSS JOIN documents t ON t.row = ?"
        " WHERE s.row = ? ON CONFLICT DO NOTHING",
        ((target, source) for source, target in edges),
    )


def _affected(
    session: SqlSession, before: Mapping[DocumentId, LinkKeys], after: Mapping[DocumentId, LinkKeys]
) -> set[int] | None:
    """Return the documents with links that may resolve differently now; None if they have too many."""
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
    affected = {row for (row,) in linking} | _document_rows(session, changed).keys()
    count = session.value(
        f"SELECT count(*) FROM (SELECT 1 FROM links WHERE document {_THOSE} LIMIT ?) l",
        [list(affected), MAX_LINKS_RESOLVED + 1],
    )
    return None if max(len(linking), count) > MAX_LINKS_RESOLVED else affected
