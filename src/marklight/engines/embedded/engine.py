"""SQLite, tantivy and a matrix in one folder: readers see a commit, one writer makes the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from marklight.engines.embedded.counters import counting_waste
from marklight.engines.embedded.lexical_index import LexicalIndex
from marklight.engines.embedded.session import Session
from marklight.engines.embedded.snapshot import EmbeddedSnapshot, Parts
from marklight.engines.embedded.store import Store
from marklight.engines.embedded.vector_files import MappedVectors
from marklight.engines.embedded.write import apply
from marklight.engines.embedded.writer_lock import WriterLock
from marklight.errors import StoreError
from marklight.model import Batch

EXACT_MOST = 50_000
"""Vectors up to which every one is multiplied: it takes about as long as embedding the question, 3 ms.
Beyond, a look at the signs is 2 to 5 times as quick (benchmarks/binary_vectors.py)."""


class EmbeddedEngine:
    """A library in a folder; the default."""

    def __init__(self, folder: Path, exact_most: int = EXACT_MOST) -> None:
        self.folder = folder
        writer_lock, store = WriterLock(folder / "lock"), Store(folder)
        self._parts = Parts(
            folder,
            writer_lock,
            store,
            LexicalIndex(folder),
            MappedVectors(writer_lock, store),
            exact_most,
        )

    @contextmanager
    def snapshot(self) -> Iterator[EmbeddedSnapshot]:
        self._renew()
        with self._parts.store.snapshot() as session:
            yield EmbeddedSnapshot(self._parts, session)

    @contextmanager
    def writing(self, wait_seconds: float) -> Iterator[None]:
        self._renew()
        self._parts.store.make_room()
        with self._parts.writer_lock.hold(wait_seconds) as outermost:
            if outermost and self._renew():
                self._parts.store.make_room()
            self._parts.store.make()
            try:
                yield
            finally:
                if outermost:
                    self._parts.lexical.finish()
            if outermost:
                self._renew_words()

    def commit(self, batch: Batch) -> int:
        """The words and the matrix are written first: what they have too much, no view sees."""
        session = self._session()
        if batch:
            if any(entry.chunks for entry in batch.entries):
                self._parts.lexical.prepare(session)
            try:
                with session.transaction(), counting_waste(session, batch):
                    self._apply(session, batch)
            except BaseException:
                self._parts.lexical.abandon()
                raise
        return int(session.value("SELECT generation FROM state"))

    def _apply(self, session: Session, batch: Batch) -> None:
        placed = apply(session, batch)
        if any(each.entry.chunks for each in placed):
            self._parts.lexical.add(session, placed)
        if batch.vectors is not None:
            from marklight.engines.embedded import vector_writer

            vector_writer.add(
                session, self.folder, self._library(session), batch.vectors, self._parts.exact_most
            )
        if batch.concepts is not None:
            from marklight.engines.embedded import vocabulary

            vocabulary.add_vectors(session, batch.concepts)

    def _renew_words(self) -> None:
        if self._parts.lexical.drifted(self._session()):
            from marklight.engines.embedded.mend import renew

            # All is committed and can be searched: what fails now is tried at the end of the next turn.
            with suppress(StoreError):
                renew(self._parts.lexical, self._session())

    def clean(self, keep: Iterable[str]) -> int:
        from marklight.engines.embedded import vector_writer, vocabulary

        if not self._parts.store.exists:
            return 0
        with self.writing(WAIT_SECONDS):
            session = self._session()
            kept = tuple(keep)
            with session.transaction():
                dropped = vocabulary.delete_unused_vectors(session, kept)
                dropped += vector_writer.clean(session, self.folder, self._library(session), kept)
                if dropped:
                    session.run("UPDATE state SET generation = generation + 1")
            vector_writer.sweep(session, self.folder, self._library(session))
        return dropped

    def sizes(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for name, paths in (
            ("library", self.folder.glob("library.db*")),
            ("words", self.folder.glob("words/*")),
            ("vectors", self.folder.glob("vectors/*")),
        ):
            for path in paths:
                with suppress(OSError):  # merged away while we looked
                    found[name] = found.get(name, 0) + path.stat().st_size
        return found

    def count_unused_vectors(self) -> int:
        with self._parts.store.snapshot() as session:
            return int(session.value("SELECT waste FROM state"))

    def check(self) -> list[str]:
        from marklight.engines.embedded.check import check

        if reason := self._parts.store.replaced:
            return [f"The index {reason}: the next search or `marklight index` rebuilds it"]
        if not self._parts.store.exists:
            return []
        with self.writing(WAIT_SECONDS):
            return check(self._parts, self._session())

    def take_notices(self) -> list[str]:
        found: list[str] = []
        for news in (self._parts.store.news, self._parts.lexical.news):
            with suppress(IndexError):  # other threads take from it too
                while True:
                    found.append(news.popleft())
        return found

    def describe(self) -> str:
        return f"file:{self.folder}"

    def close(self) -> None:
        self._parts.forget()
        self._parts.store.close()

    def _renew(self) -> bool:
        """Forget all that was known of a library that is no longer there."""
        if not self._parts.store.lost():
            return False
        self._parts.forget()
        return True

    def _session(self) -> Session:
        if not self._parts.writer_lock.held:
            raise RuntimeError("Only the holder of the writer's place may write: use writing()")
        return self._parts.store.writing()

    def _library(self, session: Session) -> str:
        return str(session.value("SELECT library FROM state"))


WAIT_SECONDS = 10.0
"""How long cleaning and checking wait for another writer."""
