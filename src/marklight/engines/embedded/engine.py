"""The embedded engine: SQLite, tantivy and memory-mapped vectors in one folder; snapshots for readers, one writer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marklight.engines.embedded import vector_files
from marklight.engines.embedded.lexical_index import (
    EmbeddedLexical,
    LexicalIndex,
    TableState,
)
from marklight.engines.embedded.session import SqliteSession, WriterLock
from marklight.engines.embedded.store import OTHER_VERSION, Store
from marklight.engines.relational.snapshot import Caches, RelationalSnapshot, RelationalStatus
from marklight.errors import StoreError
from marklight.lazy import dataclass, once
from marklight.model import Batch, DocumentId, Entry

if TYPE_CHECKING:
    from marklight.engines.embedded.vector_search import EmbeddedContents, EmbeddedVectors
    from marklight.engines.relational import Row
    from marklight.engines.relational.write import ChangedRows, InsertedEntry

MAX_EXACT_VECTORS = 50_000
"""Count of vectors up to which all are scored exactly: that takes about as long as embedding the query, 3 ms.
Beyond, a first pass over binary vectors is 2 to 5 times as fast (benchmarks/binary_vectors.py)."""
WAIT_SECONDS = 10.0
"""Seconds that cleaning and checking wait for the writer lock."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Resources of an engine that its snapshots share."""

    folder: Path
    writer_lock: WriterLock
    store: Store
    lexical: LexicalIndex
    mapped_vectors: vector_files.MappedVectors
    max_exact_vectors: int
    """Vectors up to which all are compared with the query."""
    caches: Caches = field(default_factory=Caches)

    def forget(self) -> None:
        """Drop everything that was read or mapped."""
        self.mapped_vectors.clear()
        self.caches.clear()
        self.lexical.forget()


class EmbeddedSnapshot(RelationalSnapshot):
    """Consistent view of one commit; its readers import what they need when they are first used."""

    session: SqliteSession

    def __init__(self, parts: Parts, session: SqliteSession) -> None:
        ((generation, library, *state, lexical, commit, opstamp, last_row),) = session.all(
            "SELECT generation, library, chunks, unused_vectors, lexical, lexical_commit, opstamp,"
            " (SELECT seq FROM sqlite_sequence WHERE name = 'chunks') FROM state"
        )
        super().__init__(session, parts.caches, library, generation)
        self.parts = parts
        self.opened_at = time.monotonic()
        self.chunk_count: int = state[0]
        self.unused_vectors: int = state[1]
        self.lexical_state = TableState(lexical, commit, opstamp)
        self.deleted_count: int = (last_row or 0) - self.chunk_count
        """Passages that were ever deleted: row numbers are never reused, so all but the existing ones."""
        if parts.lexical.is_open:
            self.lexical.open_early()

    @once
    def lexical(self) -> EmbeddedLexical:
        return EmbeddedLexical(self)

    @once
    def vectors(self) -> EmbeddedVectors:
        from marklight.engines.embedded.vector_search import EmbeddedVectors

        return EmbeddedVectors(self)

    @once
    def contents(self) -> EmbeddedContents:
        from marklight.engines.embedded.vector_search import EmbeddedContents

        return EmbeddedContents(self)

    @once
    def status(self) -> EmbeddedStatus:
        return EmbeddedStatus(self)


class EmbeddedStatus(RelationalStatus):
    """Counts, manifest, failures and integrity of the tables."""

    VERSION = f"{RelationalStatus.VERSION}, lexical_commit"
    """Two continuations of one backup may agree in counts, but never in the random id of a commit."""

    def __init__(self, snapshot: EmbeddedSnapshot) -> None:
        super().__init__(snapshot)
        self._checked = snapshot.session

    def damaged_chunks(self, ids: Sequence[str]) -> set[DocumentId]:
        from marklight.engines.embedded.stored_rows import damaged_passages

        return damaged_passages(self._checked, ids)

    def damaged_documents(self, documents: Iterable[DocumentId]) -> set[DocumentId]:
        from marklight.engines.embedded import stored_rows
        from marklight.engines.relational.documents import column

        rows: Mapping[DocumentId, int] = column(self._checked, "row", documents)
        damaged = set(stored_rows.damaged_documents(self._checked, list(rows.values())))
        return {id for id, row in rows.items() if row in damaged}


class EmbeddedEngine:
    """An index in a folder; the default engine."""

    def __init__(
        self,
        folder: Path,
        max_exact_vectors: int = MAX_EXACT_VECTORS,
        documents: Path | None = None,
    ) -> None:
        self.folder = folder
        writer_lock, store = WriterLock(folder / "lock"), Store(folder, documents)
        self._parts = Parts(
            folder,
            writer_lock,
            store,
            LexicalIndex(folder),
            vector_files.MappedVectors(writer_lock, store, max_exact_vectors),
            max_exact_vectors,
        )

    @contextmanager
    def snapshot(self) -> Iterator[EmbeddedSnapshot]:
        self._forget_if_replaced()
        with self._parts.store.snapshot() as session:
            snapshot = EmbeddedSnapshot(self._parts, session)
            try:
                yield snapshot
            finally:
                # Its readers refer to it: the lexical index would stay open until Python looks for such cycles.
                snapshot.__dict__.clear()

    @contextmanager
    def writing(self, wait_seconds: float) -> Iterator[None]:
        self._forget_if_replaced()
        self._parts.store.make_folder()
        with self._parts.writer_lock.hold(wait_seconds) as outermost:
            if outermost and self._forget_if_replaced():
                self._parts.store.make_folder()
            self._parts.store.make_database()
            try:
                yield
            finally:
                if outermost and self._parts.lexical.writer is not None:
                    from marklight.engines.embedded import lexical_writer

                    lexical_writer.finish(self._parts.lexical, self._writer_session())
            if outermost:
                self._purge_lexical_index()

    def commit(self, batch: Batch) -> int:
        """Apply a batch: lexical index and vector files first, as no snapshot sees rows that the tables lack."""
        session = self._writer_session()
        if batch:
            if any(entry.chunks for entry in batch.entries):
                from marklight.engines.embedded import lexical_writer

                lexical_writer.prepare(self._parts.lexical, session)
            try:
                with session.transaction():
                    self._apply(session, batch)
            except BaseException:
                self._parts.lexical.abandon_writer()
                raise
        return int(session.value("SELECT generation FROM state"))

    def _apply(self, session: SqliteSession, batch: Batch) -> None:
        from marklight.engines.relational.write import finish

        # A commit without passages loads no tantivy, one without vectors no numpy.
        recording = list[Callable[[], None]]()

        def index(inserted: Sequence[InsertedEntry]) -> None:
            if any(item.entry.chunks for item in inserted):
                from marklight.engines.embedded import lexical_writer

                recording.append(lexical_writer.add(self._parts.lexical, session, inserted))

        change = replace_documents(session, batch, index)
        added = None
        if batch.vectors is not None:
            library, most = _library_id(session), self._parts.max_exact_vectors
            added = vector_files.add(session, self.folder, library, batch.vectors, most)
        if batch.concepts is not None:
            vector_files.add_term_vectors(session, batch.concepts)
        finish(session, change, added)
        for record in recording:
            record()

    def _purge_lexical_index(self) -> None:
        """Rebuild the lexical index if too many of its passages were deleted."""
        session = self._writer_session()
        if self._parts.lexical.has_many_deleted(session):
            from marklight.engines.embedded.lexical_writer import rebuild

            # Everything is committed and searchable: the next writer tries again what fails now.
            with suppress(StoreError):
                rebuild(self._parts.lexical, session)

    def clean(self, keep: Iterable[str]) -> int:
        from marklight.engines.relational.write import delete_unused_vectors

        if not self._parts.store.exists:
            return 0
        with self.writing(WAIT_SECONDS):
            session = self._writer_session()
            library = _library_id(session)
            with session.transaction():
                deleted = delete_unused_vectors(session, keep)
                vector_files.compact(session, self.folder, library)
                if deleted:
                    session.run("UPDATE state SET generation = generation + 1")
            self._parts.mapped_vectors.clear()
            vector_files.sweep(session, self.folder, library)
        return deleted

    def sizes(self) -> Mapping[str, int]:
        sizes: dict[str, int] = {}
        for name, paths in (
            ("library", self.folder.glob("library.db*")),
            ("lexical", self.folder.glob("lexical/*/*")),
            ("vectors", self.folder.glob("vectors/*")),
        ):
            for path in paths:
                with suppress(OSError):  # deleted by a merge meanwhile
                    sizes[name] = sizes.get(name, 0) + path.stat().st_size
        return sizes

    def count_unused_vectors(self) -> int:
        with self._parts.store.snapshot() as session:
            return int(session.value("SELECT unused_vectors FROM state"))

    def check(self) -> list[str]:
        from marklight.engines.embedded.repair import check

        if self._parts.store.is_outdated:
            return [f"The index {OTHER_VERSION}; the next search or `marklight index` rebuilds it"]
        if not self._parts.store.exists:
            return []
        with self.writing(WAIT_SECONDS):
            return check(self._parts, self._writer_session())

    def take_notices(self) -> list[str]:
        notices: list[str] = []
        for queue in (self._parts.store.notices, self._parts.lexical.notices):
            with suppress(IndexError):  # other threads take from it too
                while queue:
                    notices.append(queue.popleft())
        return notices

    def describe(self) -> str:
        return f"file:{self.folder}"

    def read_only(self) -> bool:
        return False

    def server(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        self._parts.forget()
        self._parts.store.close()

    def _forget_if_replaced(self) -> bool:
        """Clear all caches if the database was deleted or replaced; return true then."""
        if not self._parts.store.forget_if_replaced():
            return False
        self._parts.forget()
        return True

    def _writer_session(self) -> SqliteSession:
        if not self._parts.writer_lock.held:
            raise RuntimeError("Writing requires the writer lock: use `with engine.writing(…)`")
        return self._parts.store.writer_session()


def replace_documents(
    session: SqliteSession,
    batch: Batch,
    index: Callable[[Sequence[InsertedEntry]], None] = lambda _: None,
) -> ChangedRows:
    """Delete and insert documents, with checksums; deleted passages are tombstones until the lexical index drops them."""
    from marklight.engines.embedded import stored_rows
    from marklight.engines.relational import write
    from marklight.text.lines import DocumentLines

    def pack_passages(entry: Entry, rows: list[Row]) -> list[Row]:
        document, lines, text = (
            entry.document,
            DocumentLines(entry.document.text),
            write.TEXT_COLUMN,
        )
        return [
            (
                *row[:text],
                stored_rows.pack_passage(chunk, lines),
                *row[text + 1 :],
                stored_rows.passage_checksum(
                    session.key, document.digest, document.recipe, (chunk.id, *row[3:])
                ),
            )
            for chunk, row in zip(entry.chunks, rows, strict=True)
        ]

    packing = write.Packing(stored_rows.pack, pack_passages, index)
    change = write.replace_documents(session, batch, packing)
    now = time.time()
    session.insert("tombstones", "chunk, since", ((row, now) for row in change.deleted_chunks))
    stored_rows.store_checksums(session, [item.document for item in change.inserted])
    write.touch_documents(session, batch.touched)
    write.replace_failures(session, batch)
    return change


@contextmanager
def empty_snapshot() -> Iterator[EmbeddedSnapshot]:
    """Open a snapshot of an index that does not exist."""
    from secrets import token_hex
    from tempfile import gettempdir

    with EmbeddedEngine(Path(gettempdir(), token_hex(16))).snapshot() as snapshot:
        yield snapshot


def _library_id(session: SqliteSession) -> str:
    return str(session.value("SELECT library FROM state"))
