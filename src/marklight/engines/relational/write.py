"""Apply a batch to the tables, in two phases: replace documents with all their rows, then update what commits share.

The second phase changes counters, vocabulary, edges, manifest and generation. With several writers it needs a lock, so it is short.
The counters are maintained by every commit, so that reading them takes the same time in any library. `repair_tables` recomputes
counters and derived tables that do not match the documents.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from marklight.engines.metadata_filters import (
    clamp_times,
    metadata_pairs,
    normalize_language,
    timestamp,
)
from marklight.engines.relational import (
    Row,
    blocks,
    decode_texts,
    encode_json,
    encode_record,
    encode_spans,
    encode_texts,
    links,
    vocabulary,
)
from marklight.engines.relational.documents import (
    HeadedPassage,
    column,
    title_entries,
    title_entries_of,
)
from marklight.lazy import dataclass
from marklight.levels import encoded_levels
from marklight.model import Batch, DocumentId, Entry, FileState
from marklight.text.analyzer import vocabulary_fingerprint

if TYPE_CHECKING:
    from marklight.engines.relational import SqlSession

TITLE_COLUMNS = "document, title, first, last, score"
"""Columns of a title or heading, in the order of `documents.TitleEntry`."""
_CHUNK_COLUMNS = (
    "row, id, document, ordinal, digest, kind, parent, anchor, first_line, last_line, title, headings,"
    " merged, languages, code, text, boilerplate, levels"
)
TEXT_COLUMN = _CHUNK_COLUMNS.split(", ").index("text")
_THOSE = "IN (SELECT value FROM integers(?) i)"


class Packing(NamedTuple):
    """Functions that change what an engine stores; without them, texts are stored as they are."""

    text: Callable[[str], Any]
    """Returns the text or the record of a document as it is stored."""
    passages: Callable[[Entry, list[Row]], list[Row]]
    """Returns the rows of the passages of a document as they are stored, with checksums."""
    begin: Callable[[Sequence[InsertedEntry]], None]
    """Called with the new rows before they are inserted, so that they can be indexed at the same time."""


@dataclass(frozen=True)
class InsertedEntry:
    """An entry with the row numbers of its document and its passages."""

    entry: Entry
    document: int
    chunk_rows: Sequence[int]
    packing: Packing | None = None

    @cached_property
    def passages(self) -> list[Row]:
        """Return the rows of its passages."""
        rows: list[Row] = []
        for row, chunk, levels in zip(
            self.chunk_rows,
            self.entry.chunks,
            self.entry.levels or encoded_levels(self.entry),
            strict=True,
        ):
            columns = (
                chunk.ordinal,
                chunk.digest,
                str(chunk.kind),
                chunk.parent,
                chunk.anchor,
                *chunk.lines,
                chunk.title,
                encode_texts(chunk.headings),
                encode_texts(chunk.merged),
                encode_texts(chunk.languages),
                chunk.code,
                chunk.text,
                encode_spans(chunk.boilerplate),
                levels,
            )
            rows.append((row, chunk.id, self.document, *columns))
        return self.packing.passages(self.entry, rows) if self.packing else rows


class AddedVectors(NamedTuple):
    """Digests of the vectors of a model that a commit has inserted."""

    model_row: int
    digests: Sequence[str]


@dataclass(frozen=True)
class ChangedRows:
    """The changes of a commit: its batch, the rows that it has deleted and inserted, and what the second phase needs to know of them."""

    batch: Batch
    inserted: Sequence[InsertedEntry] = ()
    deleted: Mapping[DocumentId, int] = field(default_factory=dict)
    """Rows of the deleted documents, which are gone or replaced."""
    deleted_chunks: Sequence[int] = ()
    """Rows of their passages, ascending. Row numbers are never used again."""
    deleted_digests: Counter[str] = field(default_factory=Counter)
    """Digests of the deleted passages."""
    terms: Counter[str] | None = None
    """Changes of document frequencies."""
    links_before: Mapping[DocumentId, links.LinkKeys] = field(default_factory=dict)
    links_after: Mapping[DocumentId, links.LinkKeys] = field(default_factory=dict)

    @property
    def inserted_digests(self) -> Counter[str]:
        """Return the digests of the inserted passages."""
        return Counter(chunk.digest for item in self.inserted for chunk in item.entry.chunks)


def replace_documents(
    session: SqlSession, batch: Batch, packing: Packing | None = None
) -> ChangedRows:
    """Delete and insert documents with all their rows: the first phase of a commit, with the two functions below.

    The documents must be locked, where several writers work at once.
    """
    entries = list({entry.document.id: entry for entry in batch.entries}.values())
    if made_from := {entry.document.id: entry.replaces for entry in entries if entry.replaces}:
        stored: dict[DocumentId, str] = column(session, "digest", made_from)
        stale = {id for id, digest in made_from.items() if stored.get(id) != digest}
        entries = [entry for entry in entries if entry.document.id not in stale]
    ids = [*batch.removed, *(entry.document.id for entry in entries)]
    deleted: dict[DocumentId, int] = column(session, "row", ids)
    rows = sorted(deleted.values())
    chunks = session.all(f"SELECT row, digest FROM chunks WHERE document {_THOSE}", [rows])
    # A document that is replaced stays in its community.
    communities = column(session, "community", deleted)
    links_before = links.stored_keys(session, deleted)
    terms = vocabulary.term_changes(session, rows, entries)
    if rows:
        session.run(f"DELETE FROM documents WHERE row {_THOSE}", [rows])
    return ChangedRows(
        batch,
        _insert(session, entries, communities, packing),
        deleted,
        sorted(row for row, _ in chunks),
        Counter(digest for _, digest in chunks),
        terms,
        links_before,
        links.new_keys(entries),
    )


def touch_documents(session: SqlSession, touched: Iterable[tuple[DocumentId, FileState]]) -> None:
    """Store the new file states of documents whose text did not change; part of the first phase."""
    files = dict(touched)
    dates = column(session, "date", files)
    session.many(
        "UPDATE documents SET size = ?, mtime_ns = ?, ctime_ns = ?, timestamp = ?"
        " WHERE collection = ? AND path = ?",
        (
            (*clamp_times(file), timestamp(dates.get(id), file.mtime_ns), *id)
            for id, file in files.items()
        ),
    )


def replace_failures(session: SqlSession, batch: Batch) -> None:
    """Delete the failures of documents that are gone or replaced, and store new ones; part of the first phase."""
    ids = [*batch.removed, *(entry.document.id for entry in batch.entries)]
    session.many("DELETE FROM failures WHERE collection = ? AND path = ?", ids)
    session.many(
        "INSERT INTO failures (collection, path, reason, size, mtime_ns, ctime_ns)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (collection, path) DO UPDATE SET reason = excluded.reason,"
        " size = excluded.size, mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns",
        (
            (
                *failure.document,
                failure.reason,
                *(clamp_times(failure.file) if failure.file else (None, None, None)),
            )
            for failure in batch.failures
        ),
    )


def finish(session: SqlSession, change: ChangedRows, added: AddedVectors | None = None) -> int:
    """Update counters, vocabulary, edges and manifest, and return the new generation: the second phase.

    The row of `state` must be locked, where several writers work at once.
    """
    batch = change.batch
    vocabulary.apply_changes(session, change.terms)
    _count_vectors(session, change, added)
    session.many(
        "INSERT INTO manifest (key, value) VALUES (?, ?)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        batch.manifest.items(),
    )
    if batch.communities is not None:
        session.run("UPDATE documents SET community = NULL WHERE community IS NOT NULL")
        session.many(
            "UPDATE documents SET community = ? WHERE collection = ? AND path = ?",
            ((community, *id) for id, community in batch.communities.items()),
        )
    inserted_chunks = sum(len(item.chunk_rows) for item in change.inserted)
    session.run(
        "UPDATE state SET generation = generation + 1, documents = documents + ?, chunks = chunks + ?,"
        " boilerplate_chunks = boilerplate_chunks + ?",
        [
            len(change.inserted) - len(change.deleted),
            inserted_chunks - len(change.deleted_chunks),
            change.inserted_digests[""] - change.deleted_digests[""],
        ],
    )
    if change.links_before != change.links_after:
        session.run("UPDATE state SET links_changed = generation")
    inserted = {item.entry.document.id: item.document for item in change.inserted}
    links.update(session, change.deleted, inserted, change.links_before, change.links_after)
    return int(session.value("SELECT generation FROM state"))


def _insert(
    session: SqlSession,
    entries: Sequence[Entry],
    communities: Mapping[DocumentId, int],
    packing: Packing | None,
) -> list[InsertedEntry]:
    if not entries:
        return []
    documents = session.next_rows("documents", len(entries))
    chunks = session.next_rows("chunks", sum(len(entry.chunks) for entry in entries))
    inserted, used = [], 0
    for document, entry in zip(documents, entries, strict=True):
        rows = chunks[used : used + len(entry.chunks)]
        inserted.append(InsertedEntry(entry, document, rows, packing))
        used += len(rows)
    if packing:
        packing.begin(inserted)
    _insert_documents(session, inserted, communities, packing.text if packing else str)
    _insert_passages(session, inserted, ", checksum" if packing else "")
    _insert_links(session, inserted)
    blocks.insert(session, inserted)
    return inserted


def _insert_documents(
    session: SqlSession,
    inserted: Sequence[InsertedEntry],
    communities: Mapping[DocumentId, int],
    pack: Callable[[str], Any],
) -> None:
    """Insert documents with all that belongs to them but passages and links."""
    documents = [(item.document, item.entry.document) for item in inserted]
    session.insert(
        "documents",
        "row, collection, path, size, mtime_ns, ctime_ns, digest, recipe, date, timestamp, community",
        (
            (
                row,
                *document.id,
                *clamp_times(document.file),
                document.digest,
                document.recipe,
                document.date,
                timestamp(document.date, document.file.mtime_ns),
                communities.get(document.id),
            )
            for row, document in documents
        ),
    )
    contents = (
        (row, pack(encode_record(document)), encode_texts(document.remarks), pack(document.text))
        for row, document in documents
    )
    session.insert("contents", "document, record, remarks, text", contents)
    session.insert(
        "metadata",
        "key, value, document",
        sorted((*pair, row) for row, document in documents for pair in metadata_pairs(document)),
    )
    session.insert(
        "names",
        "key, strength, document",
        (
            (name.key, str(name.strength), row)
            for row, document in documents
            for name in document.names
        ),
    )
    session.insert(
        "sections",
        "id, document, headings, anchor, first_line, last_line, span_from, span_to",
        (
            (
                *(section.id, item.document, encode_texts(section.headings), section.anchor),
                *(*section.lines, *section.span),
            )
            for item in inserted
            for section in item.entry.sections
        ),
    )
    session.insert(
        "titles",
        TITLE_COLUMNS,
        ((item.document, *title) for item in inserted for title in title_entries_of(item.entry)),
    )


def _insert_passages(
    session: SqlSession, inserted: Sequence[InsertedEntry], checksum_column: str
) -> None:
    session.insert(
        "chunks",
        _CHUNK_COLUMNS + checksum_column,
        (passage for item in inserted for passage in item.passages),
    )
    session.insert(
        "languages",
        "language, chunk",
        (
            (language, row)
            for item in inserted
            for row, chunk in zip(item.chunk_rows, item.entry.chunks, strict=True)
            for language in dict.fromkeys(map(normalize_language, chunk.languages))
        ),
    )


def _insert_links(session: SqlSession, inserted: Sequence[InsertedEntry]) -> None:
    """Insert links, with every key that they may resolve to."""
    pairs = [(item.document, link) for item in inserted for link in item.entry.document.links]
    if not pairs:
        return
    rows = session.next_rows("links", len(pairs))
    session.insert(
        "links",
        "row, document, type, target, fragment, text, line, keys",
        (
            (
                row,
                document,
                str(link.type),
                link.target,
                link.fragment,
                link.text,
                link.line,
                encode_json(link.keys),
            )
            for row, (document, link) in zip(rows, pairs, strict=True)
        ),
    )
    session.insert(
        "link_keys",
        "key, link",
        (
            (key, row)
            for row, (_, link) in zip(rows, pairs, strict=True)
            for key in dict.fromkeys(link.keys)
        ),
    )


def _count_vectors(session: SqlSession, change: ChangedRows, added: AddedVectors | None) -> None:
    """Update the counters of embedded passages and of unused vectors, from the digests that a commit changed."""
    inserted, deleted = change.inserted_digests, change.deleted_digests
    new = {(added.model_row, digest) for digest in added.digests} if added else set()
    touched = {*inserted, *deleted, *(digest for _, digest in new)}
    embedded: Counter[int] = Counter()
    unused = 0
    for digest, model, count in session.all(
        "SELECT t.value, v.model, (SELECT count(*) FROM chunks c WHERE c.digest = t.value)"
        " FROM texts(?) t CROSS JOIN vectors v ON v.digest = t.value",
        [list(touched)],
    ):
        before = count - inserted[digest] + deleted[digest]
        existed = (model, digest) not in new
        embedded[model] += count - (before if existed else 0)
        unused += (not count) - (existed and not before)
    session.many(
        "UPDATE models SET embedded = embedded + ? WHERE row = ?",
        ((difference, model) for model, difference in embedded.items() if difference),
    )
    if unused:
        session.run("UPDATE state SET unused_vectors = unused_vectors + ?", [unused])


def update_embedded_to(session: SqlSession, model_row: int) -> None:
    """Update the last row of a passage up to which all have a vector of a model."""
    session.run(
        "UPDATE models SET embedded_to = coalesce("
        " (SELECT c.row - 1 FROM chunks c WHERE c.row > models.embedded_to AND c.digest <> '' AND"
        "  (SELECT count(*) FROM vectors v WHERE v.digest = c.digest AND v.model = models.row) = 0"
        "  ORDER BY c.row LIMIT 1), (SELECT max(c.row) FROM chunks c), 0) WHERE row = ?",
        [model_row],
    )


def delete_unused_vectors(session: SqlSession, keep: Iterable[str]) -> int:
    """Delete vectors that no passage and no term of the vocabulary uses, and all of models not in `keep`; return how many."""
    kept = "(SELECT row FROM models WHERE name IN (SELECT value FROM texts(?) t))"
    models = [list(keep)]
    deleted = session.run(f"DELETE FROM vectors WHERE model NOT IN {kept}", models)
    deleted += session.run(f"DELETE FROM vectors WHERE {UNUSED_VECTOR}")
    deleted += session.run(
        f"DELETE FROM term_vectors WHERE model NOT IN {kept}"
        f" OR term NOT IN (SELECT term FROM ({vocabulary.VOCABULARY}) v)",
        models,
    )
    session.run(f"DELETE FROM models WHERE row NOT IN {kept}", models)
    session.run("UPDATE state SET unused_vectors = 0 WHERE unused_vectors <> 0")
    return deleted


UNUSED_VECTOR = "NOT EXISTS (SELECT 1 FROM chunks c WHERE c.digest = vectors.digest)"
"""SQL condition: no passage uses the vector."""

_COUNTERS = (
    ("state", "documents", "(SELECT count(*) FROM documents)"),
    ("state", "chunks", "(SELECT count(*) FROM chunks)"),
    ("state", "boilerplate_chunks", "(SELECT count(*) FROM chunks WHERE digest = '')"),
    ("state", "unused_vectors", f"(SELECT count(*) FROM vectors WHERE {UNUSED_VECTOR})"),
    (
        "models",
        "embedded",
        "(SELECT count(*) FROM chunks c JOIN vectors v ON v.digest = c.digest"
        " WHERE v.model = models.row)",
    ),
)
"""Table and column of each counter, with the query for its value."""


def repair_tables(session: SqlSession) -> list[str]:
    """Recompute what is wrong and return the findings; run in one transaction that no other writer disturbs."""
    findings = []
    for table, counter, truth in _COUNTERS:
        if session.run(f"UPDATE {table} SET {counter} = {truth} WHERE {counter} <> {truth}"):
            findings.append(f"The counter `{counter}` was wrong and has been corrected")
    if _repair_dates(session):
        findings.append("Dates of documents were wrong and have been recomputed")
    rebuilt = list(
        filter(None, [_repair_titles(session), _repair_terms(session), _repair_edges(session)])
    )
    if findings or rebuilt:
        # A new generation, so that no reader continues with cached values.
        session.run("UPDATE state SET generation = generation + 1")
    return [*findings, *rebuilt]


def _repair_dates(session: SqlSession) -> int:
    """Recompute the dates by which documents are sorted and filtered; return how many were wrong."""
    wrong = [
        (right, row)
        for row, date, mtime_ns, stored in session.all(
            "SELECT row, date, mtime_ns, timestamp FROM documents"
        )
        if (right := timestamp(date, mtime_ns)) != stored
    ]
    session.many("UPDATE documents SET timestamp = ? WHERE row = ?", wrong)
    return len(wrong)


def _repair_titles(session: SqlSession) -> str:
    rows = list(_title_rows(session))
    if sorted(session.all(f"SELECT {TITLE_COLUMNS} FROM titles")) == sorted(rows):
        return ""
    session.run("DELETE FROM titles")
    session.insert("titles", TITLE_COLUMNS, rows)
    return "The table of titles and headings was wrong and has been rebuilt"


def _title_rows(session: SqlSession) -> Iterator[Row]:
    """Yield the titles and headings of the stored documents, with `TITLE_COLUMNS`."""
    passages = session.each(
        "SELECT document, ordinal, headings, merged FROM chunks WHERE digest <> '' ORDER BY document"
    )
    for document, group in groupby(passages, key=lambda row: row[0]):
        path, record = session.all(
            "SELECT path, unpacked(record) FROM documents JOIN contents ON document = row WHERE row = ?",
            [document],
        )[0]
        stored = json.loads(record)
        headed = [
            HeadedPassage(ordinal, decode_texts(headings), decode_texts(merged))
            for _, ordinal, headings, merged in group
        ]
        for row in title_entries(path, stored["title"], stored["aliases"], headed):
            yield document, *row


def _repair_terms(session: SqlSession) -> str:
    if session.value("SELECT vocabulary FROM state") != vocabulary_fingerprint():
        return ""  # counted by another version: the next commit counts them again
    if dict(session.all("SELECT term, documents FROM terms")) == vocabulary.count_terms(session):
        return ""
    vocabulary.recount(session)
    return "Document frequencies of the vocabulary were wrong and have been recounted"


def _repair_edges(session: SqlSession) -> str:
    if set(session.all("SELECT source, target FROM edges")) == links.resolved_edges(session):
        return ""
    links.rebuild(session)
    return "The table of links between documents was wrong and has been rebuilt"
