"""Words and vectors as one view sees them, mended on the way where they are not fit."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from marklight.engines.embedded.session import Session
from marklight.engines.embedded.words import GRACE_SECONDS, Unfit, Words, died, living, sound
from marklight.errors import StoreError

if TYPE_CHECKING:
    import tantivy

    from marklight.engines.embedded.allowed import Allowed
    from marklight.engines.embedded.matrix import Shelf
    from marklight.engines.embedded.store import Store
    from marklight.engines.embedded.turn import Turn
    from marklight.model import Matrix, Vector
    from marklight.ports import Scored


@dataclass(frozen=True, slots=True)
class Parts:
    """What an engine has one of."""

    folder: Path
    turn: Turn
    store: Store
    words: Words
    matrices: dict[Path, Matrix] = field(default_factory=dict)


class Derived:
    """The derived parts of one view; nothing is loaded before it is asked for."""

    def __init__(self, parts: Parts, session: Session) -> None:
        self._parts = parts
        self._session = session
        self._born = time.monotonic()
        self._searcher: tantivy.Searcher | None = None
        self.generation, self.library, self._opstamp, self._chunks = session.all(
            "SELECT generation, library, opstamp, chunks FROM state"
        )[0]
        self._died = died(session)
        if parts.words.loaded and self._chunks:
            # Taken now, so that no later commit can change what this view finds.
            try:
                self._searcher = self._on_disk()
            except Unfit:
                parts.words.forget()

    def best(
        self,
        words: Sequence[str],
        boosts: Mapping[str, float],
        allowed: Allowed | None,
        limit: int,
    ) -> list[Scored]:
        """The best passages by their words."""
        if not self._chunks:
            return []
        from marklight.engines.embedded.passages import best, question, schema

        query = question(schema(), words, boosts, allowed)
        for last_try in (False, True):
            self._searcher = self._searcher or self._fit()
            try:
                with sound():
                    return best(
                        self._searcher, query, limit, lambda rows: living(self._session, rows)
                    )
            except Unfit as error:
                self._searcher = None
                if last_try:
                    raise StoreError(
                        f"{self._parts.words.folder} cannot be searched ({error})",
                        "Run `marklight doctor`",
                    ) from error
                self._mend_words(anew=True)
        raise AssertionError("unreachable")

    def _on_disk(self) -> tantivy.Searcher:
        return self._parts.words.searcher(self.library, self.generation, self._opstamp, self._died)

    def _fit(self) -> tantivy.Searcher:
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
                self._parts.words.forget()
        return aside(self._session).searcher()

    def _is_past(self) -> bool:
        with self._parts.store.view() as session:
            return bool(session.value("SELECT generation FROM state") != self.generation)

    def _mend_words(self, anew: bool = False) -> None:
        """Where nobody else writes; otherwise the writer will do it, and we manage without."""
        from marklight.engines.embedded import mend

        words = self._parts.words
        words.forget()
        try:
            with self._parts.turn.hold(0):
                words.abandon()
                mend.words(words, self._parts.store.writing(), look=True, anew=anew)
        except StoreError:
            return

    def nearest(
        self, vector: Vector, model: str, allowed: Allowed | None, limit: int
    ) -> list[Scored]:
        """The best passages by their meaning."""
        from marklight.engines.embedded.matrix import shelf
        from marklight.engines.embedded.semantic import nearest

        place = shelf(self._session, model)
        if place is None:
            return []
        if len(vector) != place.dimension:
            raise StoreError(
                f"The question has {len(vector)} numbers, vectors of {model} have {place.dimension}",
                "A model that changed must have another fingerprint",
            )
        matrix = self._matrix(place)
        return nearest(self._session, place.row, matrix, vector, allowed, limit)

    def _matrix(self, place: Shelf) -> Matrix:
        from marklight.engines.embedded.matrix import MatrixFile, shelf

        file = MatrixFile.at(self._parts.folder, self.library, place)
        mapped = self._parts.matrices.get(file.path)
        if mapped is not None and len(mapped) >= place.places:
            return mapped[: place.places]
        if not file.is_whole():
            try:
                with self._parts.turn.hold(0):
                    session = self._parts.store.writing()
                    newest = shelf(session, place.name)
                    if newest and newest.epoch == place.epoch:
                        MatrixFile.at(self._parts.folder, self.library, newest).rebuild(session)
            except StoreError:
                pass
        if not file.is_whole():
            return file.read(self._session)
        self._parts.matrices.clear()
        self._parts.matrices[file.path] = matrix = file.map()
        return matrix
