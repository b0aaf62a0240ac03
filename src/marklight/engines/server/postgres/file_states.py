"""File states and failures per machine: every clone of a repository has its own file times of the same documents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from marklight.batch import Entry, Failure
from marklight.engines.metadata_filters import clamp_times
from marklight.engines.relational.write import touch_documents
from marklight.engines.server.postgres.session import PostgresSession
from marklight.model import DocumentId, FileState
from marklight.ports import IndexedFile, PathRange

_SELECT = (
    "SELECT d.collection, d.path, d.size, d.mtime_ns, f.size, f.mtime_ns, f.ctime_ns, d.digest, d.recipe"
    " FROM {} LEFT JOIN file_states f ON f.document = d.row AND f.machine = ?"
)


def files(
    session: PostgresSession, machine: str, ranges: Sequence[PathRange] | None
) -> Mapping[DocumentId, IndexedFile]:
    """Return all documents, or those in some ranges, with the state of their files on a machine."""
    if ranges is None:
        return _indexed_files(session, _SELECT.format("documents d"), [machine])
    found: dict[DocumentId, IndexedFile] = {}
    for each in ranges:
        condition = " WHERE d.collection = ? AND d.path >= ?"
        values = [machine, each.collection, each.first]
        if each.end is not None:
            condition += " AND d.path < ?"
            values.append(each.end)
        found.update(_indexed_files(session, _SELECT.format("documents d") + condition, values))
    return found


def files_of(
    session: PostgresSession, machine: str, documents: Iterable[DocumentId]
) -> Mapping[DocumentId, IndexedFile]:
    """Return the states of the files of these documents on a machine; missing ids are skipped."""
    table = "document_ids(?) i JOIN documents d ON d.collection = i.collection AND d.path = i.path"
    return _indexed_files(session, _SELECT.format(table), [list(documents), machine])


def _indexed_files(
    session: PostgresSession, query: str, values: Sequence[object]
) -> dict[DocumentId, IndexedFile]:
    return {
        DocumentId(*row[:2]): IndexedFile(
            FileState.elsewhere(*row[2:4]) if row[4] is None else FileState(*row[4:7]), *row[7:]
        )
        for row in session.all(query, values)
    }


def add(session: PostgresSession, machine: str, states: Iterable[tuple[int, FileState]]) -> None:
    """Store the states of the files of new documents, given by row."""
    session.insert(
        "file_states",
        "document, machine, size, mtime_ns, ctime_ns",
        ((document, machine, *clamp_times(file)) for document, file in states),
    )


def of_other_machines(
    session: PostgresSession, machine: str, entries: Iterable[Entry]
) -> Mapping[DocumentId, Sequence[tuple[str, FileState]]]:
    """Return the states that other machines have stored for documents whose text stays the same; they remain valid."""
    made_from = {entry.document.id: entry.replaces for entry in entries if entry.replaces}
    found: dict[DocumentId, list[tuple[str, FileState]]] = defaultdict(list)
    for *id, text, other, size, mtime_ns, ctime_ns in (
        session.all(
            "SELECT d.collection, d.path, d.digest, f.machine, f.size, f.mtime_ns, f.ctime_ns"
            " FROM document_ids(?) i JOIN documents d ON d.collection = i.collection AND d.path = i.path"
            " JOIN file_states f ON f.document = d.row AND f.machine <> ?",
            [list(made_from), machine],
        )
        if made_from
        else ()
    ):
        if made_from[DocumentId(*id)] == text:
            found[DocumentId(*id)].append((other, FileState(size, mtime_ns, ctime_ns)))
    return found


def touch(
    session: PostgresSession, machine: str, touched: Sequence[tuple[DocumentId, FileState]]
) -> list[DocumentId]:
    """Store new states of files with unchanged text; return the documents that got another time.

    Those are the files that this machine has read before. Others are files of a clone that it sees for the first time,
    whose times say nothing about the document.
    """
    if not touched:
        return []
    known = {
        id
        for id, indexed in files_of(session, machine, [id for id, _ in touched]).items()
        if not indexed.file.is_elsewhere
    }
    session.many(
        "INSERT INTO file_states (document, machine, size, mtime_ns, ctime_ns)"
        " SELECT row, ?, ?, ?, ? FROM documents WHERE collection = ? AND path = ?"
        " ON CONFLICT (document, machine) DO UPDATE SET size = excluded.size,"
        " mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns",
        ((machine, *clamp_times(file), *id) for id, file in touched),
    )
    changed = [(id, file) for id, file in touched if id in known]
    touch_documents(session, changed)
    return [id for id, _ in changed]


def failures(session: PostgresSession, machine: str) -> list[Failure]:
    """Return the files that a machine could not index, ordered by path."""
    return [
        Failure(DocumentId(*row[:2]), row[2], None if row[3] is None else FileState(*row[3:]))
        for row in session.all(
            "SELECT collection, path, reason, size, mtime_ns, ctime_ns FROM failures"
            " WHERE machine = ? ORDER BY 1, 2",
            [machine],
        )
    ]


def count_failures(session: PostgresSession, machine: str) -> int:
    """Return the number of files that a machine could not index."""
    return int(session.value("SELECT count(*) FROM failures WHERE machine = ?", [machine]))


def replace_failures(
    session: PostgresSession,
    machine: str,
    documents: Sequence[DocumentId],
    failures: Iterable[Failure],
) -> None:
    """Delete the failures of a machine for these documents, and store new ones."""
    if documents:
        session.run(
            "DELETE FROM failures f USING document_ids(?) i"
            " WHERE f.machine = ? AND f.collection = i.collection AND f.path = i.path",
            [documents, machine],
        )
    session.many(
        "INSERT INTO failures (machine, collection, path, reason, size, mtime_ns, ctime_ns)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (machine, collection, path) DO UPDATE"
        " SET reason = excluded.reason, size = excluded.size, mtime_ns = excluded.mtime_ns,"
        " ctime_ns = excluded.ctime_ns",
        (
            (
                *(machine, *failure.document, failure.reason),
                *(clamp_times(failure.file) if failure.file else (None, None, None)),
            )
            for failure in failures
        ),
    )
