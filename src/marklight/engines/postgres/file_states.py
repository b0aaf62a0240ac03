"""File states per machine: every clone of a repository has its own file times of the same documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from marklight.engines.metadata_filters import clamp_times
from marklight.engines.postgres.session import PostgresSession
from marklight.model import DocumentId, FileState
from marklight.ports import IndexedFile, PathRange

UNKNOWN = FileState(-1, 0, -1)
"""State of a file that this machine has not read: it equals no stat and is racy, so that the content is compared."""
_SELECT = (
    "SELECT d.collection, d.path, f.size, f.mtime_ns, f.ctime_ns, d.digest, d.recipe"
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
        DocumentId(collection, path): IndexedFile(
            UNKNOWN if size is None else FileState(size, mtime_ns, ctime_ns), digest, recipe
        )
        for collection, path, size, mtime_ns, ctime_ns, digest, recipe in session.all(query, values)
    }


def add(session: PostgresSession, machine: str, states: Iterable[tuple[int, FileState]]) -> None:
    """Store the states of the files of new documents, given by row."""
    session.insert(
        "file_states",
        "document, machine, size, mtime_ns, ctime_ns",
        ((document, machine, *clamp_times(file)) for document, file in states),
    )


def touch(
    session: PostgresSession, machine: str, touched: Sequence[tuple[DocumentId, FileState]]
) -> list[tuple[DocumentId, FileState]]:
    """Store new states of files with unchanged text; return those of which this machine had a state already.

    Only they got another time: the others are files of a clone that this machine sees for the first time.
    """
    if not touched:
        return []
    known = {
        id
        for id, indexed in files_of(session, machine, [id for id, _ in touched]).items()
        if indexed.file != UNKNOWN
    }
    session.many(
        "INSERT INTO file_states (document, machine, size, mtime_ns, ctime_ns)"
        " SELECT row, ?, ?, ?, ? FROM documents WHERE collection = ? AND path = ?"
        " ON CONFLICT (document, machine) DO UPDATE SET size = excluded.size,"
        " mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns",
        ((machine, *clamp_times(file), *id) for id, file in touched),
    )
    return [(id, file) for id, file in touched if id in known]
