"""Words and vectors as one view sees them, mended on the way where they are not fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from marklight.engines.embedded.kept import Kept, kept
from marklight.engines.embedded.lexical_files import Unfit, sound
from marklight.engines.embedded.lexical_index import GRACE_SECONDS, LexicalIndex, Opened, died
from marklight.engines.embedded.session import Session
from marklight.errors import StoreError

if TYPE_CHECKING:
    from marklight.engines.embedded.allowed import Allowed
    from marklight.engines.embedded.binary_vectors import BinaryVectors
    from marklight.engines.embedded.concepts import Concepts
    from marklight.engines.embedded.semantic import Rows
    from marklight.engines.embedded.store import Store
    from marklight.engines.embedded.vector_files import MappedVectors, VectorFileInfo
    from marklight.engines.embedded.writer_lock import WriterLock
    from marklight.model import DocumentId, Matrix, Vector
    from marklight.ports import ScoredChunk, TermCoverage

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Parts:
    """What an engine has one of."""

    folder: Path
    writer_lock: WriterLock
    store: Store
    lexical: LexicalIndex
    mapped_vectors: MappedVectors
    exact_most: int
    """Vectors up to which every one is multiplied with the question."""
    concepts: dict[str, Concepts] = field(default_factory=dict)
    kept: dict[str, Kept] = field(default_factory=dict)


class Derived:
    """The derived parts of one view; nothing is loaded before it is asked for.

    Several threads may ask at once: what is loaded is loaded by one of them, and asked without a lock.
    """

    def __init__(self, parts: Parts, session: Session) -> None:
        self._parts = parts
        self._session = session
        self._born = time.monotonic()
        self._index: Opened | None = None
        self._fitting = Lock()
        self._models: dict[str, Rows | None] = {}
        state = session.all(
            "SELECT generation, library, opstamp, lexical_commit, chunks, waste FROM state"
        )[0]
        self.generation, self.library, self._opstamp = state[:3]
        self._commit, self._chunks, self._waste = state[3:]
        self.kept = kept(parts.kept, self.library, self.generation)
        self._died = died(session)
        if parts.lexical.loaded and self._chunks:
            # Taken now, so that no later commit can change what this view finds.
            try:
                self._index = self._on_disk()
            except Unfit:
                parts.lexical.forget()

    def best(
        self,
        words: Sequence[str],
        boosts: Mapping[str, float],
        allowed: Allowed | None,
        limit: int,
    ) -> list[ScoredChunk]:
        """The best passages by their words."""
        if not self._chunks:
            return []
        from marklight.engines.embedded.passages import best, question, schema

        query = question(schema(), words, boosts, allowed)
        return self._searched(
            lambda index: best(
                index.searcher, query, limit, lambda rows: self.kept.living(self._session, rows)
            )
        )

    def covered(self, words: Sequence[str], chunks: Sequence[str]) -> Mapping[str, TermCoverage]:
        """How much of these words each of these passages has."""
        from marklight.engines.embedded.covering import covered

        rows = self.kept.rows_of(self._session, chunks)
        return self._searched(lambda index: covered(index.searcher, words, rows)) if rows else {}

    def known(self, words: Sequence[str]) -> set[str]:
        """Those of these words that a passage of this view has."""
        if not self._chunks:
            return set()
        from marklight.engines.embedded.passages import held

        def ask(index: Opened) -> set[str]:
            # Of what the index holds beyond this view: what died since it was built, and what is newer.
            beyond = self._died - index.died + max(0, index.searcher.num_docs - self._chunks)
            return held(
                index.searcher, words, beyond, lambda rows: self.kept.living(self._session, rows)
            )

        return self._searched(ask)

    def holding(self, words: Sequence[str], may: Allowed | None) -> list[int]:
        """Every passage with all of these words in one of its texts; some may be dead."""
        if not self._chunks:
            return []
        from marklight.engines.embedded.passages import holders, schema

        return self._searched(lambda index: holders(index.searcher, schema(), words, may))

    def _searched(self, ask: Callable[[Opened], Value]) -> Value:
        """What the index of words answers, mended once if it is not fit to."""
        for last_try in (False, True):
            index = self._index or self._first_index()
            try:
                with sound():
                    return ask(index)
            except Unfit as error:
                if last_try:
                    raise StoreError(
                        f"{self._parts.lexical.folder} cannot be searched ({error})",
                        "Run `marklight doctor`",
                    ) from error
                self._replace(index)
        raise AssertionError("unreachable")

    def _first_index(self) -> Opened:
        with self._fitting:
            self._index = self._index or self._fit()
            return self._index

    def _replace(self, unfit: Opened) -> None:
        with self._fitting:
            if self._index is unfit:  # else another thread has done it
                self._index = None
                self._mend_words(anew=True)

    def _on_disk(self) -> Opened:
        found = self._open()
        return self._open() if found.ahead and self._settled() else found

    def _open(self) -> Opened:
        return self._parts.lexical.opened(
            self.library, self.generation, self._opstamp, self._commit, self._died
        )

    def _settled(self) -> bool:
        """Catch the index up where it is ahead of the newest tables too and nobody is writing.

        That is so after a crash, and where an older copy of the tables was put back.
        """
        from marklight.engines.embedded import mend

        parts = self._parts
        if parts.writer_lock.held:
            return False
        try:
            with parts.writer_lock.hold(0):
                session = parts.store.writing()
                newest = session.value("SELECT lexical_commit FROM state")
                if parts.lexical.stamp().commits[-1:] == [newest]:
                    return False  # the view is an older one
                parts.lexical.forget()
                parts.lexical.abandon()
                mend.words(parts.lexical, session, look=True)
                return True
        except StoreError:
            return False

    def _fit(self) -> Opened:
        from marklight.engines.embedded.mend import aside

        # Passages that this view still has may be gone from the index by now.
        late = time.monotonic() - self._born > GRACE_SECONDS / 2 and self._is_past()
        if not late:
            try:
                return self._on_disk()
            except Unfit:
                self._mend_words()
            try:
                return self._on_disk()
            except Unfit:
                self._parts.lexical.forget()
        return Opened(aside(self._session).searcher(), self._died)

    def _is_past(self) -> bool:
        with self._parts.store.snapshot() as session:
            return bool(session.value("SELECT generation FROM state") != self.generation)

    def _mend_words(self, anew: bool = False) -> None:
        """Where nobody else writes; otherwise the writer will do it, and we manage without."""
        from marklight.engines.embedded import mend

        words = self._parts.lexical
        words.forget()
        try:
            with self._parts.writer_lock.hold(0):
                words.abandon()
                mend.words(words, self._parts.store.writing(), look=True, anew=anew)
        except StoreError:
            return

    def nearest(
        self, vector: Vector, model: str, allowed: Allowed | None, limit: int
    ) -> list[ScoredChunk]:
        """The best passages by their meaning."""
        from marklight.engines.embedded.semantic import nearest

        rows = self._rows(vector, model)
        return nearest(self._session, rows, vector, allowed, limit) if rows else []

    def leading(
        self, vector: Vector, model: str, allowed: Allowed | None
    ) -> Mapping[DocumentId, ScoredChunk]:
        """The best passage of each document by its meaning."""
        from marklight.engines.embedded.semantic import leading

        rows = self._rows(vector, model)
        return leading(self._session, rows, vector, allowed) if rows else {}

    def _rows(self, vector: Vector, model: str) -> Rows | None:
        from marklight.engines.unit_vectors import check_dimension

        rows = self._opened(model)
        if rows:
            check_dimension(vector, rows.matrix.shape[1], model)
        return rows

    def vectors(self, model: str, chunks: Sequence[str]) -> Mapping[str, Vector]:
        """Of these passages, by the places where they stand."""
        from marklight.engines.embedded.semantic import places

        rows = self._opened(model)
        found = places(self._session, rows, chunks) if rows else {}
        return {id: rows.matrix[at].copy() for id, at in found.items()} if rows else {}

    def _opened(self, model: str) -> Rows | None:
        """The vectors of a model, looked for once in a view; None where it has none."""
        from marklight.engines.embedded.semantic import Rows
        from marklight.engines.embedded.vector_files import vector_file_info

        if model not in self._models:
            info = vector_file_info(self._session, model)
            self._models[model] = (
                Rows(
                    info.model_row,
                    self._matrix(info),
                    self._signs(info),
                    self.kept.standing(info),
                    whole=not self._waste,
                )
                if info and info.row_count
                else None
            )
        return self._models[model]

    def concepts(self, model: str) -> Concepts | None:
        """The words that have a vector, held by the engine."""
        from marklight.engines.embedded.concepts import held

        return held(self._parts.concepts, self._session, self.library, self.generation, model)

    def _matrix(self, info: VectorFileInfo) -> Matrix:
        from marklight.engines.embedded.vector_files import VectorFile

        file = VectorFile.at(self._parts.folder, self.library, info)
        rows = self._parts.mapped_vectors.rows(file)
        return file.read_tables(self._session) if rows is None else rows

    def _signs(self, info: VectorFileInfo) -> BinaryVectors | None:
        """Where there are many vectors; else, or where the file cannot be had, all are multiplied."""
        if info.row_count <= self._parts.exact_most:
            return None
        from marklight.engines.embedded.binary_vectors import BinaryVectorFile

        return self._parts.mapped_vectors.rows(
            BinaryVectorFile.at(self._parts.folder, self.library, info)
        )
