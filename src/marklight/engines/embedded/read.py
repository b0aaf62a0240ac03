"""Plain questions to the tables of one view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from marklight.engines.embedded import records
from marklight.engines.embedded.allowed import Allowed, which
from marklight.engines.embedded.session import Session, json_list
from marklight.engines.metadata_filters import TAG, epoch_seconds, normalize_key
from marklight.model import (
    Counts,
    Document,
    DocumentId,
    Failure,
    FileState,
    Heading,
)
from marklight.ports import IndexedFile, PathRange

ASKED = (
    "json_each(?1) s CROSS JOIN documents x"
    " ON x.path = json_extract(s.value, '$[1]') AND x.collection = json_extract(s.value, '$[0]')"
)
"""Of a list of documents those that are there, each `x` with its place in the list as `s.key`."""
_COUNTED = 1_000
"""Documents whose passages are counted: a millisecond."""


def counts(session: Session, model: str) -> Counts:
    """From counters that every commit keeps, so the size of the library does not matter."""
    row = session.one("SELECT documents, chunks, generation FROM state")
    assert row
    return Counts(
        documents=row[0],
        chunks=row[1],
        embedded=session.value("SELECT embedded FROM models WHERE name = ?", [model]) or 0,
        failed=session.value("SELECT count(*) FROM failures"),
        generation=row[2],
        model=model,
    )


_FILE = "d.size, d.mtime_ns, d.ctime_ns, d.digest, d.recipe"
_FILES = f"SELECT d.collection, d.path, {_FILE} FROM documents d"


def files(session: Session) -> Mapping[DocumentId, IndexedFile]:
    """Every document with its file's state."""
    return _files(session.all(_FILES))


def files_within(session: Session, span: PathRange) -> Mapping[DocumentId, IndexedFile]:
    """The same of a part, by the index on paths: what the others are costs nothing."""
    within, values = "d.collection = ? AND d.path >= ?", [span.collection, span.first]
    if span.end is not None:
        within, values = f"{within} AND d.path < ?", [*values, span.end]
    return _files(session.all(f"{_FILES} WHERE {within}", values))


@records.stored
def _files(rows: Iterable[Sequence[Any]]) -> Mapping[DocumentId, IndexedFile]:
    return {
        DocumentId(collection, path): IndexedFile(
            FileState(size, mtime_ns, ctime_ns), digest, recipe
        )
        for collection, path, size, mtime_ns, ctime_ns, digest, recipe in rows
    }


def column(session: Session, name: str, documents: Iterable[DocumentId]) -> dict[DocumentId, Any]:
    """What a column of the documents holds of these; those without a value are left out.

    In one question: one for each would take twice as long.
    """
    asked = list(documents)
    found = session.all(f"SELECT s.key, x.{name} FROM {ASKED}", [json_list(asked)])
    return {asked[at]: value for at, value in found if value is not None}


class Facts(NamedTuple):
    """What stages ask of the document of every hit."""

    indexed: IndexedFile
    moment: float
    community: int | None


FACTS = f"{_FILE}, d.moment, d.community"
"""Their columns, as `facts_in` takes them."""


def facts(session: Session, documents: Sequence[DocumentId]) -> Mapping[DocumentId, Facts]:
    """The same of all that stages ask for, in one question too."""
    columns = FACTS.replace("d.", "x.")
    found = session.all(f"SELECT s.key, {columns} FROM {ASKED}", [json_list(documents)])
    return {documents[at]: facts_in(columns) for at, *columns in found}


@records.stored
def facts_in(columns: Sequence[Any]) -> Facts:
    """The same from the columns of `FACTS`."""
    *file, digest, recipe, moment, community = columns
    return Facts(IndexedFile(FileState(*file), digest, recipe), epoch_seconds(moment), community)


def listed_documents(session: Session, may: Allowed | None, limit: int) -> list[DocumentId]:
    """Those with a passage that may answer."""
    condition, values = which(may)
    # Few that may answer are looked up; else each document is asked whether it has a passage.
    passing = (
        f"d.row IN (SELECT c.document FROM chunks c WHERE {condition})"
        if may and not may.but
        else f"EXISTS (SELECT 1 FROM chunks c WHERE c.document = d.row AND {condition})"
    )
    found = session.all(
        f"SELECT d.collection, d.path FROM documents d WHERE {passing} ORDER BY 1, 2 LIMIT ?",
        [*values, max(0, limit)],
    )
    return [DocumentId(*row) for row in found]


def passing(session: Session, may: Allowed | None) -> int:
    """Counted where few documents may answer, else by their part of all: to count many takes longer than to search."""
    documents, chunks = map(int, session.all("SELECT documents, chunks FROM state")[0])
    if may is None:
        return chunks
    if may.column == "row":
        return chunks - len(may.rows) if may.but else len(may.rows)
    those = documents - len(may.rows) if may.but else len(may.rows)
    if those > _COUNTED:
        return round(chunks * those / documents)
    condition, values = which(may)
    return int(session.value(f"SELECT count(*) FROM chunks c WHERE {condition}", values))


def knows(session: Session, key: str) -> bool:
    """By the key of the facts, whatever their number."""
    return bool(session.value("SELECT 1 FROM facts WHERE key = ? LIMIT 1", [normalize_key(key)]))


def values_of(session: Session, key: str, limit: int) -> Mapping[str, int]:
    """By the key of the facts."""
    counted = "SELECT value, count(*) FROM facts WHERE key = ? GROUP BY value ORDER BY 2 DESC, 1"
    return dict(session.all(f"{counted} LIMIT ?", [normalize_key(key), max(0, limit)]))


def tags(session: Session) -> Mapping[str, int]:
    """By the facts that every tag and those above it have."""
    return dict(
        session.all("SELECT value, count(*) FROM facts WHERE key = ? GROUP BY value", [TAG])
    )


def find(session: Session, path: str) -> list[DocumentId]:
    """By the index on paths, whatever the number of documents."""
    found = session.all("SELECT collection, path FROM documents WHERE path = ? ORDER BY 1", [path])
    return [DocumentId(*row) for row in found]


@records.stored
def remarks(session: Session) -> list[tuple[DocumentId, str]]:
    """In the order of their paths."""
    return [
        (DocumentId(collection, path), said)
        for collection, path, said in session.all(
            "SELECT d.collection, d.path, each.value FROM documents d"
            " JOIN contents c ON c.document = d.row, json_each(c.record, '$.remarks') each"
            " ORDER BY d.collection, d.path, each.key"
        )
    ]


@records.stored
def failures(session: Session) -> list[Failure]:
    """In the order of their paths."""
    return [
        Failure(
            DocumentId(collection, path),
            reason,
            None if size is None else FileState(size, mtime_ns, ctime_ns),
        )
        for collection, path, reason, size, mtime_ns, ctime_ns in session.all(
            "SELECT collection, path, reason, size, mtime_ns, ctime_ns FROM failures ORDER BY 1, 2"
        )
    ]


def document_row(session: Session, id: DocumentId) -> int | None:
    """The row of a document."""
    row: int | None = session.value(
        "SELECT row FROM documents WHERE collection = ? AND path = ?", id
    )
    return row


def document(session: Session, id: DocumentId) -> Document | None:
    """A document whole."""
    row = document_row(session, id)
    found = session.one(
        "SELECT collection, path, size, mtime_ns, ctime_ns, digest, recipe, date, record, text"
        " FROM documents JOIN contents ON document = row WHERE row = ?",
        [row],
    )
    if found is None:
        return None
    return records.document(
        found[:-1],
        found[-1],
        session.all(f"SELECT {records.LINK} FROM links l WHERE document = ? ORDER BY row", [row]),
        session.all("SELECT key, strength FROM names WHERE document = ? ORDER BY row", [row]),
    )


def text_of(session: Session, id: DocumentId) -> tuple[str, tuple[Heading, ...]] | None:
    """Without its links and names, which are as many rows again."""
    row = session.one(
        "SELECT text, record FROM contents WHERE document ="
        " (SELECT row FROM documents WHERE collection = ? AND path = ?)",
        id,
    )
    return (row[0], records.outline(row[1])) if row else None
