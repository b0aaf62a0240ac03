"""File states and failures per machine: every clone of a repository has its own file times of the same documents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from marklight.engines.metadata_filters import clamp_times
from marklight.engines.relational.documents import RelationalDocuments
from marklight.engines.relational.snapshot import RelationalStatus
from marklight.engines.relational.write import touch_documents
from marklight.engines.server.postgres.session import PostgresSession
from marklight.model import DocumentId, Entry, Failure, FileState

if TYPE_CHECKING:
    from marklight.engines.server.postgres.engine import PostgresSnapshot
    from marklight.ports import IndexedFile

_GIVEN = "(d.collection, d.path) IN (SELECT i.collection, i.path FROM document_ids(?) i)"


class PostgresDocuments(RelationalDocuments):
    """Documents with the states of their files on this machine."""

    _session: PostgresSession

    def __init__(self, snapshot: PostgresSnapshot) -> None:
        super().__init__(snapshot)
        self._machine = snapshot.engine.settings.machine

    def files_of(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, IndexedFile]:
        return self._read_files(_GIVEN, [list(documents)])

    def _read_files(
        self, condition: str, values: Sequence[Any]
    ) -> Mapping[DocumentId, IndexedFile]:
        return _indexed_files(self._session, self._machine, condition, values)


class PostgresStatus(RelationalStatus):
    """Counts, manifest and remarks of the library, and the failures of this machine."""

    def __init__(self, snapshot: PostgresSnapshot) -> None:
        super().__init__(snapshot)
        self._own_failures = "machine = ?", [snapshot.engine.settings.machine]


def _indexed_files(
    session: PostgresSession, machine: str, condition: str, values: Sequence[Any]
) -> dict[DocumentId, IndexedFile]:
    """Return the documents that match a condition, with the states of their files on a machine."""
    from marklight.ports import IndexedFile

    rows = session.all(
        "SELECT d.collection, d.path, d.size, d.mtime_ns, f.size, f.mtime_ns, f.ctime_ns, d.digest,"
        " d.recipe FROM documents d LEFT JOIN file_states f ON f.document = d.row AND f.machine = ?"
        f" WHERE {condition}",
        [machine, *values],
    )
    return {
        DocumentId(*row[:2]): IndexedFile(
            FileState.elsewhere(*row[2:4]) if row[4] is None else FileState(*row[4:7]), *row[7:]
        )
        for row in rows
    }


def add_file_states(
    session: PostgresSession, machine: str, states: Iterable[tuple[int, FileState]]
) -> None:
    """Store the states of the files of new documents, given by row."""
    session.insert(
        "file_states",
        "document, machine, size, mtime_ns, ctime_ns",
        ((document, machine, *clamp_times(file)) for document, file in states),
    )


def states_on_other_machines(
    session: PostgresSession, machine: str, entries: Iterable[Entry]
) -> Mapping[DocumentId, Sequence[tuple[str, FileState]]]:
    """Return the states that other machines have stored for documents whose text stays the same; they remain valid."""
    made_from = {entry.document.id: entry.replaces for entry in entries if entry.replaces}
    states: dict[DocumentId, list[tuple[str, FileState]]] = defaultdict(list)
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
            states[DocumentId(*id)].append((other, FileState(size, mtime_ns, ctime_ns)))
    return states


def touch_files(
    session: PostgresSession, machine: str, touched: Sequence[tuple[DocumentId, FileState]]
) -> None:
    """Store new states of files with unchanged text, and the times of documents that this machine has read before.

    Others are files of a clone that it sees for the first time, whose times say nothing about the document.
    """
    if not touched:
        return
    ids = [id for id, _ in touched]
    read_before = {
        id
        for id, indexed in _indexed_files(session, machine, _GIVEN, [ids]).items()
        if not indexed.file.is_elsewhere
    }
    session.many(
        "INSERT INTO file_states (document, machine, size, mtime_ns, ctime_ns)"
        " SELECT row, ?, ?, ?, ? FROM documents WHERE collection = ? AND path = ?"
        " ON CONFLICT (document, machine) DO UPDATE SET size = excluded.size,"
        " mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns",
        ((machine, *clamp_times(file), *id) for id, file in touched),
    )
    touch_documents(session, [(id, file) for id, file in touched if id in read_before])


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
