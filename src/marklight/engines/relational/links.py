"""Links between documents: resolve them, and keep the edge table of resolved links up to date with each commit.

Neighbours and degrees are read from the edge table; single links are resolved when they are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from marklight.engines import relational
from marklight.engines.relational import decode_texts, encode_json
from marklight.engines.relational.documents import GIVEN_DOCUMENTS, document_facts, document_row
from marklight.model import DocumentId, Entry, NameStrength, ResolvedLink

if TYPE_CHECKING:
    from marklight.engines.relational import Row, SqlSession
    from marklight.engines.relational.snapshot import RelationalSnapshot

_LINKS = f"SELECT d.collection, d.path, {relational.LINK} FROM links l JOIN documents d ON d.row = l.document"
_ORDER = "ORDER BY d.collection, d.path, l.row"
_BATCH_LINKS = 1000
"""Links resolved together: few queries, and little wasted work where a limit is near."""

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
    """Links between documents, single ones and the edge table."""

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
        return [ResolvedLink(DocumentId(*row[:2]), relational.link(row[2:]), None) for row in rows]

    def named(self, key: str) -> list[DocumentId]:
        """Return the documents with this name in its strongest form, ordered by id."""
        rows = self._session.all(
            "SELECT d.collection, d.path FROM names n JOIN documents d ON d.row = n.document WHERE n.key = ?"
            " AND n.strength = (SELECT min(strength) FROM names WHERE key = ?) ORDER BY 1, 2",
            [key, key],
        )
        return [DocumentId(*row) for row in rows]

    def neighbours(
        self, documents: Sequence[DocumentId], limit: int
    ) -> Mapping[DocumentId, Sequence[DocumentId]]:
        """Return the documents one link away, up to `limit` in each direction; which ones is unspecified."""
        near: dict[DocumentId, set[DocumentId]] = {id: set() for id in documents}
        most = max(0, limit)
        given = [list(documents), most, most]
        for position, collection, path in self._session.all(_NEIGHBOURS, given):
            near[documents[position]].add(DocumentId(collection, path))
        return {id: sorted(ids) for id, ids in near.items()}

    def degrees(self, documents: Sequence[DocumentId], limit: int) -> Mapping[DocumentId, int]:
        """Return the number of linked documents, counted up to `limit` in each direction."""
        most = max(0, limit)

        def read(missing: list[tuple[DocumentId, int]]) -> Mapping[tuple[DocumentId, int], int]:
            counts = dict.fromkeys(missing, 0)
            ids = [id for id, _ in missing]
            for position, count in self._session.all(_DEGREES, [most, most, ids]):
                counts[missing[position]] = count
            return counts

        keys = [(id, limit) for id in documents]
        return {
            id: count for (id, _), count in self._snapshot.cache.degrees.get(keys, read).items()
        }

    def edges(self) -> Iterator[tuple[DocumentId, DocumentId]]:
        """Return the distinct pairs of a document and another one that it links to."""
        for row in self._session.each(
            "SELECT s.collection, s.path, t.collection, t.path FROM edges"
            " JOIN documents s ON s.row = source JOIN documents t ON t.row = target ORDER BY 1, 2, 3, 4"
        ):
            yield DocumentId(*row[:2]), DocumentId(*row[2:])

    def orphans(self) -> list[DocumentId]:
        """Return the documents without any link in or out, ordered by id."""
        rows = self._session.all(
            "SELECT collection, path FROM documents d"
            " WHERE NOT EXISTS (SELECT 1 FROM edges WHERE source = d.row)"
            " AND NOT EXISTS (SELECT 1 FROM edges WHERE target = d.row) ORDER BY 1, 2"
        )
        return [DocumentId(*row) for row in rows]

    def communities(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, int]:
        """Return the stored communities of documents; those without one are skipped."""
        facts = document_facts(self._snapshot, documents)
        return {id: fact.community for id, fact in facts.items() if fact.community is not None}

    @relational.raises_damaged
    def _resolved(self, rows: list[Row]) -> list[ResolvedLink]:
        places = [(*row[:2], row[-1]) for row in rows]
        resolver = LinkResolver(self._session, places)
        links = []
        for row, place in zip(rows, places, strict=True):
            target = resolver.target(place)
            link = relational.link(row[2:])
            links.append(ResolvedLink(DocumentId(*row[:2]), link, target and target.document))
        return links


class _Candidate(NamedTuple):
    """A document that a link may mean; the least one is the best."""

    strength: str
    depth: int
    length: int
    """Of its path."""
    document: DocumentId
    row: int


class LinkResolver:
    """Link resolution: a link's own collection first, then the best key, then path before suffix before alias.

    Own collection first, so that adding a collection never changes the links of another. A document that the
    key reaches from the link's own folder comes before others with this name; among equals the
    shortest path wins, as in Obsidian.
    """

    def __init__(self, session: SqlSession, links: Iterable[Row]) -> None:
        """Read the documents that links may mean; their rows end in collection and path of the source and the stored keys."""
        self._keys = {stored: decode_texts(stored) for stored in {link[-1] for link in links}}
        self._named: dict[str, dict[str, dict[str | None, _Candidate]]] = {}
        """The best candidate by key, collection and the folder from which the key reaches it; None for any folder."""
        for key, strength, collection, path, row in session.all(
            "SELECT n.key, n.strength, d.collection, d.path, d.row FROM texts(?) k"
            " CROSS JOIN names n ON n.key = k.value JOIN documents d ON d.row = n.document",
            [list({key for keys in self._keys.values() for key in keys})],
        ):
            id = DocumentId(collection, path)
            candidate = _Candidate(strength, path.count("/"), len(path), id, row)
            best = self._named.setdefault(key, {}).setdefault(collection, {})
            best[None] = min(candidate, best.get(None, candidate))
            if strength != NameStrength.ALIAS:
                folder = "/".join(path.split("/")[: -(key.count("/") + 1)])
                best[folder] = min(candidate, best.get(folder, candidate))

    def target(self, link: Row) -> _Candidate | None:
        """Return the target of one of the links; None if there is none."""
        collection, path, stored = link[-3:]
        folder = path.rpartition("/")[0]
        for is_own in (True, False):
            for key in self._keys[stored]:
                named = [
                    best
                    for name, best in self._named.get(key, {}).items()
                    if (name == collection) is is_own
                ]
                near = [best[folder] for best in named if folder in best]
                if candidates := near or [best[None] for best in named]:
                    return min(candidates)
        return None


LinkKeys = tuple[frozenset[str], frozenset[tuple[str, str]]]
"""Keys of a document's links, and the names that it has with their strengths."""

_NO_KEYS: LinkKeys = frozenset(), frozenset()
_THOSE = "IN (SELECT value FROM integers(?) i)"


def rebuild(session: SqlSession) -> None:
    """Rebuild the edge table from all links."""
    session.run("DELETE FROM edges")
    session.insert("edges", "source, target", sorted(resolved_edges(session)))


@relational.raises_damaged
def resolved_edges(
    session: SqlSession, sources: Collection[int] | None = None
) -> set[tuple[int, int]]:
    """Resolve the links of all documents, or of some, to edges: rows of the source and the target."""
    those = "" if sources is None else f" WHERE l.document {_THOSE}"
    links = session.all(
        "SELECT DISTINCT l.document, d.collection, d.path, l.keys FROM links l"
        f" JOIN documents d ON d.row = l.document{those}",
        [] if sources is None else [list(sources)],
    )
    resolver = LinkResolver(session, links)
    edges = ((link[0], target.row) for link in links if (target := resolver.target(link)))
    return {(source, target) for source, target in edges if source != target}


def stored_keys(
    session: SqlSession, documents: Mapping[DocumentId, int]
) -> Mapping[DocumentId, LinkKeys]:
    """Return the link keys and names of stored documents, given with their rows."""
    links: defaultdict[int, set[str]] = defaultdict(set)
    names: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
    rows = [list(documents.values())]
    for row, keys in session.all(f"SELECT document, keys FROM links WHERE document {_THOSE}", rows):
        links[row].add(keys)
    for row, key, strength in session.all(
        f"SELECT document, key, strength FROM names WHERE document {_THOSE}", rows
    ):
        names[row].add((key, strength))
    return {id: (frozenset(links[row]), frozenset(names[row])) for id, row in documents.items()}


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
    deleted: Mapping[DocumentId, int],
    inserted: Mapping[DocumentId, int],
    before: Mapping[DocumentId, LinkKeys],
    after: Mapping[DocumentId, LinkKeys],
) -> None:
    """Bring the edge table up to date after documents, given with their rows, were deleted and inserted.

    Edges of a document that was replaced get its new row, so that a hub with a new text resolves no link anew.
    """
    replaced = [(inserted[id], row) for id, row in deleted.items() if id in inserted]
    gone = [(row,) for id, row in deleted.items() if id not in inserted]
    for end in ("source", "target"):
        session.many(f"UPDATE edges SET {end} = ? WHERE {end} = ?", replaced)
        session.many(f"DELETE FROM edges WHERE {end} = ?", gone)
    if before != after and (affected := _affected(session, inserted, before, after)):
        session.run(f"DELETE FROM edges WHERE source {_THOSE}", [list(affected)])
        session.insert("edges", "source, target", sorted(resolved_edges(session, affected)))


def _affected(
    session: SqlSession,
    inserted: Mapping[DocumentId, int],
    before: Mapping[DocumentId, LinkKeys],
    after: Mapping[DocumentId, LinkKeys],
) -> set[int]:
    """Return the rows of the documents with links that may resolve differently now."""
    affected: set[int] = set()
    names: set[str] = set()
    for id in before.keys() | after.keys():
        old_links, old_names = before.get(id, _NO_KEYS)
        new_links, new_names = after.get(id, _NO_KEYS)
        names.update(key for key, _ in old_names ^ new_names)
        if new_links != old_links and id in inserted:
            affected.add(inserted[id])
    linking = session.all(
        "SELECT DISTINCT l.document FROM texts(?) n CROSS JOIN link_keys k ON k.key = n.value"
        " CROSS JOIN links l ON l.row = k.link",
        [list(names)],
    )
    return affected.union(row for (row,) in linking)
