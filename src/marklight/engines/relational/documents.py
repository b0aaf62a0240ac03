"""Documents, their files, passages and sections, as the tables of one snapshot have them: some by id, or all in groups for copies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from marklight.answer import Level
from marklight.engines.names import DOCUMENT_SCORE, LAST_CHARACTER
from marklight.engines.relational import records
from marklight.engines.relational.vocabulary import VOCABULARY
from marklight.model import Chunk, Document, DocumentId, Entry, FileState, Heading, Section, Vectors
from marklight.ports import IndexedFile, PathRange, ScoredChunk
from marklight.query import Filters
from marklight.text import normalize, title_key

if TYPE_CHECKING:
    from marklight.engines.relational import Row, SqlSession
    from marklight.engines.relational.snapshot import RelationalSnapshot
    from marklight.model import Matrix

GIVEN_DOCUMENTS = (
    "document_ids(?) s CROSS JOIN documents x ON x.path = s.path AND x.collection = s.collection"
)
"""Those of a list of documents that exist: each is `x`, its position in the list `s.key`."""

_FILE = "d.size, d.mtime_ns, d.ctime_ns, d.digest, d.recipe"
_FILES = f"SELECT d.collection, d.path, {_FILE} FROM documents d"
_FACTS = f"{_FILE}, d.timestamp, d.community"
_FACT_COUNT = len(_FACTS.split(","))
_FACTS_OF = f"SELECT s.key, {_FACTS.replace('d.', 'x.')} FROM {GIVEN_DOCUMENTS}"
_CHUNKS = f"SELECT {records.CHUNK} FROM chunks c JOIN documents d ON d.row = c.document"


class DocumentFacts(NamedTuple):
    """Columns of a document that stages need for every result; read together with its passages."""

    file: IndexedFile
    date: float
    community: int | None


class StoredPassage(NamedTuple):
    """A passage with its row and its context levels."""

    row: int
    levels: str
    """Context levels as stored; empty if an older format stored the passage."""
    chunk: Chunk


class RelationalDocuments:
    """Documents, their files, passages and sections."""

    def __init__(self, snapshot: RelationalSnapshot) -> None:
        self._snapshot = snapshot
        self._session = snapshot.session

    def files(self, ranges: Sequence[PathRange] | None = None) -> Mapping[DocumentId, IndexedFile]:
        """Return all indexed documents with the state of their files, or those in some ranges."""
        if ranges is None:
            return _files(self._session.all(_FILES))
        files: dict[DocumentId, IndexedFile] = {}
        for part in ranges:
            # By the index on paths: the number of other documents does not matter.
            condition, values = "d.collection = ? AND d.path >= ?", [part.collection, part.first]
            if part.end is not None:
                condition, values = f"{condition} AND d.path < ?", [*values, part.end]
            files.update(_files(self._session.all(f"{_FILES} WHERE {condition}", values)))
        return files

    def files_of(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, IndexedFile]:
        """Return the file states of the given documents; missing ids are skipped."""
        facts = document_facts(self._snapshot, documents)
        return {id: each.file for id, each in facts.items()}

    def modified_times(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, int]:
        """Return file times in nanoseconds; missing ids are skipped."""
        facts = document_facts(self._snapshot, documents)
        return {id: each.file.file.mtime_ns for id, each in facts.items()}

    def dates(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, float]:
        """Return the document's own date, else its file time, in seconds since the epoch; missing ids are skipped."""
        facts = document_facts(self._snapshot, documents)
        return {id: each.date for id, each in facts.items()}

    def get(self, id: DocumentId) -> Document | None:
        """Return a document with its text, links and metadata."""
        row = document_row(self._session, id)
        columns = self._session.one(
            "SELECT collection, path, size, mtime_ns, ctime_ns, digest, recipe, date, record, remarks, text"
            " FROM documents JOIN contents ON document = row WHERE row = ?",
            [row],
        )
        if columns is None:
            return None
        links = f"SELECT {records.LINK} FROM links l WHERE document = ? ORDER BY row"
        names = "SELECT key, strength FROM names WHERE document = ? ORDER BY row"
        return records.document(
            columns[:-1],
            columns[-1],
            self._session.all(links, [row]),
            self._session.all(names, [row]),
        )

    def text_and_outline(self, id: DocumentId) -> tuple[str, tuple[Heading, ...]] | None:
        """Return only the text and the headings of a document: cheap enough to call for every result."""
        # Without links and names, which are as many rows again.
        row = self._session.one(
            "SELECT text, record FROM contents WHERE document ="
            " (SELECT row FROM documents WHERE collection = ? AND path = ?)",
            id,
        )
        return (row[0], records.outline(row[1])) if row else None

    def find_by_path(self, path: str) -> list[DocumentId]:
        """Return the documents with exactly this path, ordered by collection."""
        rows = self._session.all(
            "SELECT collection, path FROM documents WHERE path = ? ORDER BY 1", [path]
        )
        return [DocumentId(*row) for row in rows]

    def find_by_title(self, title: str, filters: Filters, limit: int) -> list[ScoredChunk]:
        """Return passages by exact title, ignoring case and accents.

        The first passage of a document with this title, alias or file name scores 1.0, the first
        of a section with this heading 0.5.
        """
        name = title_key(title)
        known = "SELECT 1 FROM titles WHERE title = ?"
        if limit <= 0 or self._session.value(known, [name]) is None:
            return []
        condition, values = self._snapshot.sql_condition(filters)
        first = (
            "SELECT c.id FROM chunks c WHERE c.document = n.document"
            f" AND c.ordinal BETWEEN n.first AND n.last AND {condition} ORDER BY c.ordinal LIMIT 1"
        )
        rows = self._session.all(
            f"SELECT id, max(score) FROM (SELECT ({first}) AS id, n.score FROM titles n"
            " WHERE n.title = ?) t WHERE id IS NOT NULL GROUP BY id ORDER BY 2 DESC, 1 LIMIT ?",
            [*values, name, limit],
        )
        return [ScoredChunk(*row) for row in rows]

    def titles_with_prefix(self, prefix: str, limit: int) -> list[str]:
        """Return the titles, aliases and file names, folded, that begin with a prefix and are longer; the shortest first."""
        start = normalize(prefix)
        rows = self._session.all(
            "SELECT title FROM titles WHERE title > ? AND title < ? AND score = ?"
            " GROUP BY title ORDER BY length(title), title LIMIT ?",
            [start, f"{start}{LAST_CHARACTER}", DOCUMENT_SCORE, max(0, limit) if start else 0],
        )
        return [title for (title,) in rows]

    def chunks(self, ids: Sequence[str]) -> list[Chunk]:
        """Return the passages in the given order; missing ids are skipped."""
        known = self._passages(ids)
        return [known[id].chunk for id in ids if id in known]

    def chunks_of(self, document: DocumentId) -> list[Chunk]:
        """Return all passages of a document in order."""
        row = document_row(self._session, document)
        return self._chunks("c.document = ?", [row])

    def chunks_around(self, document: DocumentId, ordinal: int, count: int) -> list[Chunk]:
        """Return a passage with up to `count` passages before and after it, in order."""
        # By the index on ordinals, however long the document is.
        condition = "d.collection = ? AND d.path = ? AND c.ordinal BETWEEN ? AND ?"
        return self._chunks(condition, [*document, ordinal - count, ordinal + count])

    def owners(self, chunks: Sequence[str]) -> Mapping[str, DocumentId]:
        """Return the documents of passages without reading their text; missing ids are skipped."""
        cached = self._snapshot.cache.passages.known(chunks)
        owners = {id: each.chunk.document for id, each in cached.items()}
        missing = [id for id in chunks if id not in owners]
        if missing:
            for id, collection, path in self._session.all(
                "SELECT c.id, d.collection, d.path FROM texts(?) j"
                " CROSS JOIN chunks c ON c.id = j.value CROSS JOIN documents d ON d.row = c.document",
                [missing],
            ):
                owners[id] = DocumentId(collection, path)
        return owners

    def context_levels(self, ids: Sequence[str]) -> Mapping[str, tuple[Level, ...]]:
        """Return the context levels of passages; those stored without any are skipped."""
        known = self._passages(ids)
        return {id: records.decode_levels(each.levels) for id, each in known.items() if each.levels}

    def section(self, id: str) -> tuple[DocumentId, Section] | None:
        """Return a section and its document."""
        row = self._session.one(
            "SELECT d.collection, d.path, s.id, headings, anchor, first_line, last_line, span_from,"
            " span_to FROM sections s JOIN documents d ON d.row = s.document WHERE s.id = ?"
            " ORDER BY s.row",
            [id],
        )
        return (DocumentId(row[0], row[1]), records.section(row[2:])) if row else None

    def _chunks(self, condition: str, values: Sequence[Any]) -> list[Chunk]:
        rows = self._session.all(f"{_CHUNKS} WHERE {condition} ORDER BY c.ordinal", values)
        return [records.chunk(row) for row in rows]

    def _passages(self, ids: Sequence[str]) -> Mapping[str, StoredPassage]:
        return self._snapshot.cache.passages.get(ids, self._read_passages)

    def _read_passages(self, ids: Sequence[str]) -> Mapping[str, StoredPassage]:
        """Read passages, and the facts of their documents, which are needed next."""
        passages: dict[str, StoredPassage] = {}
        facts: dict[DocumentId, DocumentFacts] = {}
        for row, levels, *columns in self._session.all(
            f"SELECT c.row, c.levels, {_FACTS}, {records.CHUNK} FROM texts(?) i"
            " CROSS JOIN chunks c ON c.id = i.value CROSS JOIN documents d ON d.row = c.document",
            [list(ids)],
        ):
            chunk = records.chunk(columns[_FACT_COUNT:])
            passages[chunk.id] = StoredPassage(row, levels, chunk)
            if chunk.document not in facts:
                facts[chunk.document] = _facts(columns[:_FACT_COUNT])
        self._snapshot.cache.documents.add(facts)
        return passages


def document_facts(
    snapshot: RelationalSnapshot, documents: Iterable[DocumentId]
) -> Mapping[DocumentId, DocumentFacts]:
    """Return the facts of documents, from the cache or with one query; missing ids are skipped."""

    def read(ids: Sequence[DocumentId]) -> Mapping[DocumentId, DocumentFacts]:
        rows = snapshot.session.all(_FACTS_OF, [list(ids)])
        return {ids[at]: _facts(columns) for at, *columns in rows}

    return snapshot.cache.documents.get(set(documents), read)


@records.raises_damaged
def _facts(columns: Sequence[Any]) -> DocumentFacts:
    *file, digest, recipe, timestamp, community = columns
    date = datetime.fromisoformat(timestamp).timestamp()
    return DocumentFacts(IndexedFile(FileState(*file), digest, recipe), date, community)


@records.raises_damaged
def _files(rows: Iterable[Sequence[Any]]) -> Mapping[DocumentId, IndexedFile]:
    return {
        DocumentId(collection, path): IndexedFile(
            FileState(size, mtime_ns, ctime_ns), digest, recipe
        )
        for collection, path, size, mtime_ns, ctime_ns, digest, recipe in rows
    }


def document_row(session: SqlSession, id: DocumentId) -> int | None:
    """Return the row of a document."""
    row: int | None = session.value(
        "SELECT row FROM documents WHERE collection = ? AND path = ?", id
    )
    return row


def column(
    session: SqlSession, name: str, documents: Iterable[DocumentId]
) -> dict[DocumentId, Any]:
    """Return one column of documents, in one query; those without a value are skipped."""
    ids = list(documents)
    rows = session.all(f"SELECT s.key, x.{name} FROM {GIVEN_DOCUMENTS}", [ids])
    return {ids[at]: value for at, value in rows if value is not None}


def digests_without_vector(session: SqlSession, model: str, digests: Sequence[str]) -> list[str]:
    """Return those digests that have no vector of a model, in the given order."""
    rows = session.all(
        "SELECT t.value FROM texts(?) t WHERE EXISTS (SELECT 1 FROM vectors v"
        " JOIN models m ON m.row = v.model WHERE v.digest = t.value AND m.name = ?)",
        [list(digests), model],
    )
    known = {digest for (digest,) in rows}
    return [digest for digest in digests if digest not in known]


GROUP_DOCUMENTS, GROUP_BYTES = 128, 4_000_000
"""Documents that are read together with all that belongs to them: six queries; fewer if their files are large."""
GROUP_VECTORS = 1024
"""Vectors that are read together: 1.5 MB with 384 numbers a vector."""

_NEXT_DOCUMENTS = (
    "SELECT path, collection, row, size FROM documents WHERE (path, collection) > (?, ?)"
    " ORDER BY path, collection LIMIT ?"
)
_GIVEN = "FROM integers(?) i CROSS JOIN"
_ALL_DOCUMENTS = (
    "SELECT d.row, d.collection, d.path, d.size, d.mtime_ns, d.ctime_ns, d.digest, d.recipe, d.date,"
    f" c.record, c.remarks, c.text {_GIVEN} documents d ON d.row = i.value CROSS JOIN contents c ON c.document = d.row"
)
_ALL_LINKS = (
    f"SELECT l.document, {records.LINK} {_GIVEN} links l ON l.document = i.value ORDER BY l.row"
)
_ALL_NAMES = (
    f"SELECT n.document, n.key, n.strength {_GIVEN} names n ON n.document = i.value ORDER BY n.row"
)
_ALL_SECTIONS = (
    "SELECT s.document, s.id, s.headings, s.anchor, s.first_line, s.last_line, s.span_from, s.span_to"
    f" {_GIVEN} sections s ON s.document = i.value ORDER BY s.row"
)
_ALL_CHUNKS = (
    f"SELECT c.document, {records.CHUNK} {_GIVEN} documents d ON d.row = i.value"
    " CROSS JOIN chunks c ON c.document = d.row ORDER BY c.document, c.ordinal"
)
_ALL_BLOCKS = f"SELECT b.document, b.digest, b.boilerplate {_GIVEN} blocks b ON b.document = i.value ORDER BY 1, 2"
_TERM_VECTORS = (
    "SELECT v.term, v.vector FROM term_vectors v WHERE v.model = ? AND v.term > ?"
    f" AND v.term IN (SELECT w.term FROM ({VOCABULARY}) w) ORDER BY v.term LIMIT ?"
)


class RelationalContents:
    """Documents and vectors, ordered by key."""

    stored_vector: ClassVar[str] = "v.vector"
    """Column of a vector of a passage."""

    def __init__(self, snapshot: RelationalSnapshot) -> None:
        self._session = snapshot.session

    def entries(self) -> Iterator[Entry]:
        """Yield all documents with their passages and sections, ordered by path, then by collection."""
        last = ("", "")
        while page := self._session.all(_NEXT_DOCUMENTS, [*last, GROUP_DOCUMENTS]):
            rows: list[int] = []
            size = 0
            for path, collection, row, length in page:
                rows.append(row)
                size += length
                last = path, collection
                if size >= GROUP_BYTES:
                    break  # the next query begins after this document
            yield from self._read(rows)

    def _read(self, rows: list[int]) -> Iterator[Entry]:
        """Yield the documents of some rows, in this order, with everything that belongs to them."""
        stored = {row: columns for row, *columns in self._session.all(_ALL_DOCUMENTS, [rows])}
        links, names = self._by_document(_ALL_LINKS, rows), self._by_document(_ALL_NAMES, rows)
        sections, chunks = (
            self._by_document(_ALL_SECTIONS, rows),
            self._by_document(_ALL_CHUNKS, rows),
        )
        blocks = self._by_document(_ALL_BLOCKS, rows)
        documents = {
            row: records.document(tuple(columns[:-1]), columns[-1], links[row], names[row])
            for row, columns in stored.items()
        }
        files = self.file_states([document.id for document in documents.values()])
        for row in rows:
            if document := documents.get(row):
                document = replace(document, file=files.get(document.id, document.file))
                yield Entry(
                    document,
                    tuple(map(records.chunk, chunks[row])),
                    tuple(map(records.section, sections[row])),
                    block_digests={key: bool(shared) for key, shared in blocks[row]},
                )

    def _by_document(self, query: str, rows: list[int]) -> Mapping[int, list[Row]]:
        groups: dict[int, list[Row]] = defaultdict(list)
        for document, *columns in self._session.all(query, [rows]):
            groups[document].append(tuple(columns))
        return groups

    def file_states(self, documents: Sequence[DocumentId]) -> Mapping[DocumentId, FileState]:  # noqa: ARG002
        """Return the states of files that differ from those stored with the documents."""
        return {}

    def models(self) -> Mapping[str, int]:
        """Return the fingerprints of models that have any vector, with the dimension of their vectors."""
        return dict(
            self._session.all(
                "SELECT name, dimension FROM models m WHERE EXISTS (SELECT 1 FROM vectors v WHERE v.model = m.row)"
                " OR EXISTS (SELECT 1 FROM term_vectors v WHERE v.model = m.row)"
            )
        )

    def vectors(self, model: str) -> Iterator[Vectors]:
        """Yield the vectors that passages use, with the bits that were committed, in groups ordered by digest."""
        query = (
            f"SELECT v.digest, {self.stored_vector} FROM vectors v WHERE v.model = ? AND v.digest > ?"
            " AND EXISTS (SELECT 1 FROM chunks c WHERE c.digest = v.digest) ORDER BY v.digest LIMIT ?"
        )
        for keys, rows, dimension in self._groups(query, model):
            yield Vectors(model, keys, self.decode_vectors(rows, dimension))

    def term_vectors(self, model: str) -> Iterator[Vectors]:
        """Yield the vectors of vocabulary terms, with the bits that were committed, in groups ordered by term."""
        for keys, rows, dimension in self._groups(_TERM_VECTORS, model):
            yield Vectors(model, keys, _matrix(rows, dimension))

    def _groups(self, query: str, model: str) -> Iterator[tuple[tuple[str, ...], list[bytes], int]]:
        info = self._session.one("SELECT row, dimension FROM models WHERE name = ?", [model])
        if info is None:
            return
        row, dimension = info
        last = ""
        while page := self._session.all(query, [row, last, GROUP_VECTORS]):
            keys = tuple(key for key, _ in page)
            yield keys, [stored for _, stored in page], dimension
            last = keys[-1]

    def decode_vectors(self, rows: Sequence[bytes], dimension: int) -> Matrix:
        """Return stored vectors of passages as rows."""
        return _matrix(rows, dimension)


@records.raises_damaged
def _matrix(rows: Sequence[bytes], dimension: int) -> Matrix:
    import numpy as np

    if any(len(row) != 4 * dimension for row in rows):
        raise ValueError("a vector of another length")
    numbers = np.frombuffer(b"".join(rows), dtype="<f4").astype(np.float32, copy=False)
    return numbers.reshape(len(rows), dimension)
