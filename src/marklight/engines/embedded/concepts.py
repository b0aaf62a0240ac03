"""The vectors of a library's words: kept in the tables, held in memory while they stay the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from marklight.engines.embedded.checksums import vector_checksum
from marklight.engines.embedded.semantic import top
from marklight.engines.embedded.session import Session, json_list
from marklight.engines.embedded.vector_files import VectorFileInfo, vector_file_info
from marklight.engines.embedded.vector_writer import model_file_info
from marklight.engines.embedded.vocabulary import VOCABULARY
from marklight.engines.unit_vectors import check_dimension, unit_rows
from marklight.ports import ScoredTerm

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector, Vectors

_BLOCK = 256


@dataclass(frozen=True, slots=True, eq=False)
class Concepts:
    """Words of the vocabulary that have a vector, as views of one generation see them."""

    library: str
    generation: int
    model: str
    rows: Sequence[int]
    """Of their vectors in the table, which are never changed."""
    terms: Sequence[str]
    places: Mapping[str, int]
    """The same, to be found by the word."""
    matrix: Matrix
    centre: Vector
    """The mean of the rows."""

    def nearest(self, vector: Vector, limit: int) -> list[ScoredTerm]:
        """By cosine, ties in the order of the words."""
        if not self.terms:
            return []
        check_dimension(vector, self.matrix.shape[1], self.model)
        # By this thread alone: on a busy machine, waiting for a second one costs more than it saves.
        scores = np.vecdot(self.matrix, unit_rows(vector))
        found = [ScoredTerm(self.terms[at], float(scores[at])) for at in top(scores, limit)]
        return sorted(found, key=lambda each: (-each.score, each.term))[:limit]

    def vectors(self, terms: Sequence[str]) -> Mapping[str, Vector]:
        """Of those that are there."""
        places = {term: self.places[term] for term in terms if term in self.places}
        return {term: self.matrix[at].copy() for term, at in places.items()}


def held(
    cache: dict[str, Concepts], session: Session, library: str, generation: int, model: str
) -> Concepts | None:
    """The words of this view, read only where they differ from those that were read last."""
    last = cache.get(model)
    if last and (last.library, last.generation) == (library, generation):
        return last
    place = vector_file_info(session, model)
    if place is None:
        return None
    pairs = session.all(
        f"SELECT v.row, w.term FROM ({VOCABULARY}) w CROSS JOIN concept_vectors v"
        " ON v.model = ? AND v.term = w.term ORDER BY v.row",
        [place.model_row],
    )
    rows, terms = [row for row, _ in pairs], [term for _, term in pairs]
    before = last if last and last.library == library else None
    matrix = _matrix(session, place, rows, before)
    if before and before.matrix is matrix:
        centre = before.centre
    else:
        centre = matrix.mean(axis=0) if len(matrix) else np.zeros(place.dimension, np.float32)
    places = {term: at for at, term in enumerate(terms)}
    now = Concepts(library, generation, model, rows, terms, places, matrix, centre)
    if before is None or before.generation < generation:
        cache[model] = now  # one assignment, and nobody changes what stands there
    return now


def _matrix(
    session: Session, place: VectorFileInfo, rows: Sequence[int], before: Concepts | None
) -> Matrix:
    if before and before.rows == rows:
        return before.matrix
    matrix = np.zeros((len(rows), place.dimension), dtype=np.float32)
    known = {row: at for at, row in enumerate(before.rows)} if before else {}
    kept = [at for at, row in enumerate(rows) if row in known]
    if before and kept:
        matrix[kept] = before.matrix[[known[rows[at]] for at in kept]]
    fresh = {row: at for at, row in enumerate(rows) if row not in known}
    read = session.each(
        "SELECT row, vector FROM concept_vectors WHERE row IN (SELECT value FROM json_each(?))"
        " AND length(vector) = ?",
        [json_list(fresh), 4 * place.dimension],
    )
    # Some at a time: together they would take their room three times over, and twice as long.
    while some := list(islice(read, _BLOCK)):
        block = np.frombuffer(b"".join(vector for _, vector in some), dtype="<f4")
        matrix[[fresh[row] for row, _ in some]] = unit_rows(
            block.reshape(len(some), place.dimension)
        )
    return matrix


def add(session: Session, vectors: Vectors) -> None:
    """New vectors; those that were there stay as they are."""
    if not vectors.digests:
        return
    place = model_file_info(session, vectors)
    rows = np.ascontiguousarray(vectors.matrix, dtype="<f4")
    session.many(
        "INSERT OR IGNORE INTO concept_vectors (model, term, vector, checksum) VALUES (?, ?, ?, ?)",
        (
            (place.model_row, term, vector, vector_checksum(session.key, term, vector))
            for term, row in zip(vectors.digests, rows, strict=True)
            for vector in (row.tobytes(),)
        ),
    )


def clean(session: Session, keep: Iterable[str]) -> int:
    """Drop vectors of other models, and of words that are no longer in the vocabulary."""
    return session.run(
        "DELETE FROM concept_vectors WHERE model NOT IN"
        " (SELECT row FROM models WHERE name IN (SELECT value FROM json_each(?)))"
        f" OR term NOT IN (SELECT term FROM ({VOCABULARY}))",
        [json_list(keep)],
    )
