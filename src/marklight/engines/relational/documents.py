"""Documents, their files, passages and sections, as the tables of one snapshot have them: some by id, or all in groups for copies."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from marklight.answer import Level
from marklight.engines import relational
from marklight.engines.relational.vocabulary import VOCABULARY
from marklight.model import (
    Chunk,
    Document,
    DocumentId,
    Entry,
    FileState,
    Heading,
    Section,
    UnreadChunk,
    Vectors,
)
from marklight.ports import IndexedFile, ScoredChunk
from marklight.query import Filters
from marklight.text.analyzer import normalize, title_key, words_of

if TYPE_CHECKING:
    from marklight.engines.relational import Row, SqlSession
    from marklight.engines.relational.snapshot import RelationalSnapshot
    from marklight.lexical import DocumentTerms
    from marklight.model import Matrix

LAST_CHARACTER = "\U0010ffff"
"""Sorts after every other: a prefix with it is the end of the range of texts with that prefix."""

DOCUMENT_SCORE, SECTION_SCORE = 1.0, 0.5
"""Scores of an exact match: the title of a document counts more than the heading of a section."""

GIVEN_DOCUMENTS = (
    "document_ids(?) s CROSS JOIN documents x ON x.path = s.path AND x.collection = s.collection"
)
"""Those of a list of documents that exist: each is `x`, its position in the list `s.key`."""

_FILE = "d.size, d.mtime_ns, d.ctime_ns, d.digest, d.recipe"
_FILES = f"SELECT d.collection, d.path, {_FILE} FROM documents d"
_FACTS = f"{_FILE}, d.timestamp, d.community"
_FACTS_OF = f"SELECT s.key, {_FACTS.replace('d.', 'x.')} FROM {GIVEN_DOCUMENTS}"
_CHUNKS = f"SELECT {relational.CHUNK} FROM chunks c JOIN documents d ON d.row = c.document"


class DocumentFacts(NamedTuple):
    """Columns of a document that stages need for every candidate; read together with its passages."""

    file: IndexedFile
    date: float
    community: int | None


class StoredPassage(NamedTuple):
    """A passage with its context levels."""

    levels: str
    chunk: Chunk


class StoredCandidate(NamedTuple):
    """Columns of a passage that ranking needs, without its text."""

    id: str
    document: DocumentId
    title: str
    prose_length: int
    text_key: str


class RelationalDocuments:
    """Documents, their files, passages and sections."""

    def __init__(self, snapshot: RelationalSnapshot) -> None:
        self._snapshot = snapshot
        self._session = snapshot.session

    def files(self) -> Mapping[DocumentId, IndexedFile]:
        """Return all indexed documents with the state of their files."""
        return self._read_files("true", [])

    @relational.raises_damaged
    def _read_files(
        self, condition: str, values: Sequence[Any]
    ) -> Mapping[DocumentId, IndexedFile]:
        rows = self._session.all(f"{_FILES} WHERE {condition}", values)
        return {
            DocumentId(collection, path): IndexedFile(FileState(*file), digest, recipe)
            for collection, path, *file, digest, recipe in rows
        }

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
            "SELECT collection, path, size, mtime_ns, ctime_ns, digest, recipe, date,"
            " unpacked(record), remarks, unpacked(text)"
            " FROM documents JOIN contents ON document = row WHERE row = ?",
            [row],
        )
        if columns is None:
            return None
        links = f"SELECT {relational.LINK} FROM links l WHERE document = ? ORDER BY row"
        names = "SELECT key, strength FROM names WHERE document = ? ORDER BY row"
        return relational.document(
            columns[:-1],
            columns[-1],
            self._session.all(links, [row]),
            self._session.all(names, [row]),
        )

    def text_and_outline(self, id: DocumentId) -> tuple[str, tuple[Heading, ...]] | None:
        """Return only the text and the headings of a document: cheap enough to call for every result."""
        # Without links and names, which are as many rows again.
        row = self._session.one(
            "SELECT unpacked(text), unpacked(record) FROM contents WHERE document ="
            " (SELECT row FROM documents WHERE collection = ? AND path = ?)",
            id,
        )
        return (row[0], relational.outline(row[1])) if row else None

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

    def find_by_words_of_name(self, text: str, limit: int) -> list[DocumentId]:
        """Return the documents whose title, alias or path contains every word of a text, or a part of a word.

        Names that begin with the text come first, then those with a word that does.
        """
        name = normalize(text)
        words = [f"%{_like(word)}%" for word in name.split()]
        if not words:
            return []
        conditions = " AND ".join("name LIKE ? ESCAPE '!'" for _ in words)
        rows = self._session.all(
            "SELECT collection, path, min(CASE WHEN name LIKE ? ESCAPE '!' THEN 0"
            " WHEN ' ' || name LIKE ? ESCAPE '!' THEN 1 ELSE 2 END) FROM"
            " (SELECT document, title AS name FROM titles WHERE score = ?"
            " UNION ALL SELECT row, lower(path) FROM documents) n JOIN documents ON row = document"
            f" WHERE {conditions} GROUP BY collection, path ORDER BY 3, length(path), 1, 2 LIMIT ?",
            [f"{_like(name)}%", f"% {_like(name)}%", DOCUMENT_SCORE, *words, max(0, limit)],
        )
        return [DocumentId(collection, path) for collection, path, _ in rows]

    def words_of_paths(self) -> frozenset[str]:
        """Return the folded words of all paths; read once for a generation."""

        def read() -> frozenset[str]:
            rows = self._session.all("SELECT path FROM documents", [])
            return words_of({part for (path,) in rows for part in path.split("/")})

        return self._snapshot.cache.once("words of paths", read)

    def chunks(self, ids: Sequence[str]) -> list[Chunk]:
        """Return the passages in the given order; missing ids are skipped."""
        known = self._passages(ids)
        return [known[id].chunk for id in ids if id in known]

    def candidates(self, ids: Sequence[str]) -> Mapping[str, UnreadChunk]:
        """Return the passages by id, without their texts, which are read on first use; missing ids are skipped."""
        known = self._snapshot.cache.candidates.get(ids, self._read_candidates)
        return {id: UnreadChunk(*known[id], self._chunk) for id in ids if id in known}

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
        """Return the documents of passages; missing ids are skipped."""
        known = self._snapshot.cache.candidates.get(chunks, self._read_candidates)
        return {id: known[id].document for id in chunks if id in known}

    def context_levels(self, ids: Sequence[str]) -> Mapping[str, tuple[Level, ...]]:
        """Return the context levels of passages; missing ids are skipped."""
        known = self._passages(ids)
        return {id: relational.decode_levels(each.levels) for id, each in known.items()}

    def section(self, id: str) -> tuple[DocumentId, Section] | None:
        """Return a section and its document."""
        row = self._session.one(
            "SELECT d.collection, d.path, s.id, headings, anchor, first_line, last_line, span_from,"
            " span_to FROM sections s JOIN documents d ON d.row = s.document WHERE s.id = ?"
            " ORDER BY s.row",
            [id],
        )
        return (DocumentId(row[0], row[1]), relational.section(row[2:])) if row else None

    def _chunks(self, condition: str, values: Sequence[Any]) -> list[Chunk]:
        rows = self._session.all(f"{_CHUNKS} WHERE {condition} ORDER BY c.ordinal", values)
        return [relational.chunk(row) for row in rows]

    def _chunk(self, id: str) -> Chunk:
        return self._passages([id])[id].chunk

    def _read_candidates(self, ids: Sequence[str]) -> Mapping[str, StoredCandidate]:
        """Read candidates, and the rows of passages and facts of documents, which are needed next."""
        candidates: dict[str, StoredCandidate] = {}
        rows: dict[str, int] = {}
        facts: dict[DocumentId, DocumentFacts] = {}
        found = self._session.all(
            f"SELECT c.row, c.id, c.title, c.levels, d.collection, d.path, {_FACTS} FROM texts(?) i"
            " CROSS JOIN chunks c ON c.id = i.value CROSS JOIN documents d ON d.row = c.document",
            [list(ids)],
        )
        for row, id, title, levels, collection, path, *columns in found:
            document = DocumentId(collection, path)
            candidates[id] = StoredCandidate(id, document, title, *relational.ranking(levels))
            rows[id] = row
            if document not in facts:
                facts[document] = _facts(columns)
        self._snapshot.cache.rows.add(rows)
        self._snapshot.cache.documents.add(facts)
        return candidates

    def _passages(self, ids: Sequence[str]) -> Mapping[str, StoredPassage]:
        return self._snapshot.cache.passages.get(ids, self._read_passages)

    def _read_passages(self, ids: Sequence[str]) -> Mapping[str, StoredPassage]:
        rows = self._session.all(
            f"SELECT c.levels, {relational.CHUNK} FROM texts(?) i CROSS JOIN chunks c ON c.id = i.value"
            " CROSS JOIN documents d ON d.row = c.document",
            [list(ids)],
        )
        return {row[1]: StoredPassage(row[0], relational.chunk(row[1:])) for row in rows}


def document_facts(
    snapshot: RelationalSnapshot, documents: Iterable[DocumentId]
) -> Mapping[DocumentId, DocumentFacts]:
    """Return the facts of documents, from the cache or with one query; missing ids are skipped."""

    def read(ids: Sequence[DocumentId]) -> Mapping[DocumentId, DocumentFacts]:
        rows = snapshot.session.all(_FACTS_OF, [list(ids)])
        return {ids[at]: _facts(columns) for at, *columns in rows}

    return snapshot.cache.documents.get(set(documents), read)


@relational.raises_damaged
def _facts(columns: Sequence[Any]) -> DocumentFacts:
    *file, digest, recipe, timestamp, community = columns
    date = datetime.fromisoformat(timestamp).timestamp()
    return DocumentFacts(IndexedFile(FileState(*file), digest, recipe), date, community)


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
    f" unpacked(c.record), c.remarks, unpacked(c.text) {_GIVEN} documents d ON d.row = i.value CROSS JOIN contents c ON c.document = d.row"
)
_ALL_LINKS = (
    f"SELECT l.document, {relational.LINK} {_GIVEN} links l ON l.document = i.value ORDER BY l.row"
)
_ALL_NAMES = (
    f"SELECT n.document, n.key, n.strength {_GIVEN} names n ON n.document = i.value ORDER BY n.row"
)
_ALL_SECTIONS = (
    "SELECT s.document, s.id, s.headings, s.anchor, s.first_line, s.last_line, s.span_from, s.span_to"
    f" {_GIVEN} sections s ON s.document = i.value ORDER BY s.row"
)
_ALL_CHUNKS = (
    f"SELECT c.document, {relational.CHUNK} {_GIVEN} documents d ON d.row = i.value"
    " CROSS JOIN chunks c ON c.document = d.row ORDER BY c.document, c.ordinal"
)
_ALL_BLOCKS = f"SELECT b.document, b.digest, b.boilerplate {_GIVEN} blocks b ON b.document = i.value ORDER BY 1, 2"
_TERM_VECTORS = (
    "SELECT v.term, v.vector FROM term_vectors v WHERE v.model = ? AND v.term > ?"
    f" AND v.term IN (SELECT w.term FROM ({VOCABULARY}) w) ORDER BY v.term LIMIT ?"
)


class RelationalContents(ABC):
    """Documents and vectors, ordered by key."""

    stored_vector: ClassVar[str]
    """Column of a vector of a passage, or of its place."""

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
            row: relational.document(tuple(columns[:-1]), columns[-1], links[row], names[row])
            for row, columns in stored.items()
        }
        files = self.file_states([document.id for document in documents.values()])
        for row in rows:
            if document := documents.get(row):
                document = replace(document, file=files.get(document.id, document.file))
                yield Entry(
                    document,
                    tuple(map(relational.chunk, chunks[row])),
                    tuple(map(relational.section, sections[row])),
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
        """Yield the vectors that passages use, as they are stored, in groups ordered by digest."""
        query = (
            f"SELECT v.digest, {self.stored_vector} FROM vectors v WHERE v.model = ? AND v.digest > ?"
            " AND EXISTS (SELECT 1 FROM chunks c WHERE c.digest = v.digest) ORDER BY v.digest LIMIT ?"
        )
        for keys, rows, dimension in self._groups(query, model):
            yield Vectors(model, keys, self.decode_vectors(model, rows, dimension))

    def term_vectors(self, model: str) -> Iterator[Vectors]:
        """Yield the vectors of vocabulary terms, as they are stored, in groups ordered by term."""
        for keys, rows, dimension in self._groups(_TERM_VECTORS, model):
            yield Vectors(model, keys, _term_matrix(rows, dimension))

    def _groups(self, query: str, model: str) -> Iterator[tuple[tuple[str, ...], list[Any], int]]:
        info = self._session.one("SELECT row, dimension FROM models WHERE name = ?", [model])
        if info is None:
            return
        row, dimension = info
        last = ""
        while page := self._session.all(query, [row, last, GROUP_VECTORS]):
            keys = tuple(key for key, _ in page)
            yield keys, [stored for _, stored in page], dimension
            last = keys[-1]

    @abstractmethod
    def decode_vectors(self, model: str, rows: Sequence[Any], dimension: int) -> Matrix:
        """Return stored vectors of passages as rows."""


@relational.raises_damaged
def _term_matrix(rows: Sequence[bytes], dimension: int) -> Matrix:
    import numpy as np

    from marklight.vector_math import decode_vectors

    if any(len(row) != dimension for row in rows):
        raise ValueError("a vector of another length")
    return decode_vectors(np.frombuffer(b"".join(rows), np.int8).reshape(len(rows), dimension))


def passages_to_index(
    session: SqlSession, rows: Sequence[int] | None = None
) -> Iterator[tuple[int, int, Chunk, DocumentTerms]]:
    """Yield row, row of the document, passage and shared terms of all passages, or of those with these rows.

    Ordered by row: those of a document come one after another, so that its shared fields are analyzed once.
    """
    from marklight.lexical import NO_TERMS, shared_terms

    last, shared = -1, NO_TERMS
    given = (
        "integers(?) r CROSS JOIN chunks c ON c.row = r.value" if rows is not None else "chunks c"
    )
    for row, document, record, *columns in session.each(
        f"SELECT c.row, c.document, unpacked(t.record), {relational.CHUNK} FROM {given}"
        " JOIN documents d ON d.row = c.document JOIN contents t ON t.document = c.document"
        " ORDER BY c.row",
        [] if rows is None else [list(rows)],
    ):
        if document != last:
            last, shared = document, shared_terms(json.loads(record))
        yield row, document, relational.chunk(columns), shared


class TitleEntry(NamedTuple):
    """A normalised title with the first and last ordinal of the passages below it."""

    title: str
    first: int
    last: int
    score: float


class HeadedPassage(NamedTuple):
    """Position and headings of a passage."""

    ordinal: int
    headings: tuple[str, ...]
    merged: tuple[str, ...]


def _like(text: str) -> str:
    """Return a pattern of LIKE that matches a text literally, with `!` as the escape character."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def title_entries_of(entry: Entry) -> list[TitleEntry]:
    """Return the titles of a parsed document."""
    document = entry.document
    passages = [
        HeadedPassage(each.ordinal, each.headings, each.merged)
        for each in entry.chunks
        if not each.is_boilerplate
    ]
    return title_entries(document.id.path, document.title, document.aliases, passages)


def title_entries(
    path: str, title: str, aliases: Iterable[str], passages: Sequence[HeadedPassage]
) -> list[TitleEntry]:
    """Return the distinct titles, aliases, file names and headings of a document."""
    if not passages:
        return []
    ordered = sorted(passages)
    ends = ordered[0].ordinal, ordered[-1].ordinal
    file = PurePosixPath(path)
    names = {title_key(name) for name in (title, *aliases, file.name, file.stem)}
    entries = [TitleEntry(name, *ends, DOCUMENT_SCORE) for name in sorted(names) if name]
    for heading, first, last in _sections(ordered):
        if name := title_key(heading):
            entries.append(TitleEntry(name, first, last, SECTION_SCORE))
    return list(dict.fromkeys(entries))


def _sections(passages: Sequence[HeadedPassage]) -> Iterator[tuple[str, int, int]]:
    """Yield each heading with the run of passages below it, including headings without text of their own."""
    open_sections: dict[tuple[str, ...], tuple[int, int]] = {}
    for passage in passages:
        above = [passage.headings[:depth] for depth in range(1, len(passage.headings) + 1)]
        above.extend((*passage.headings, name) for name in passage.merged)
        for section in [section for section in open_sections if section not in above]:
            yield section[-1], *open_sections.pop(section)
        for section in above:
            first, _ = open_sections.get(section, (passage.ordinal, 0))
            open_sections[section] = first, passage.ordinal
    for section, ends in open_sections.items():
        yield section[-1], *ends
