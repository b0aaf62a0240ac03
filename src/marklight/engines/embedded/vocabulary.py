"""Vocabulary: document frequencies of terms, updated with each commit, and vectors of the most frequent ones.

Term vectors are in a table and cached in memory while they stay the same. numpy is imported by the functions that need it:
counting terms must not load it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from marklight.engines.embedded.session import Session, json_list
from marklight.engines.embedded.vector_files import VectorFileInfo, vector_file_info
from marklight.model import Entry
from marklight.ports import VOCABULARY_SIZE, ScoredTerm
from marklight.text import vocabulary_fingerprint, vocabulary_terms

if TYPE_CHECKING:
    from marklight.engines.embedded.snapshot import EmbeddedSnapshot
    from marklight.model import Matrix, Vector, Vectors

VOCABULARY = (
    f"SELECT term, documents FROM terms ORDER BY documents DESC, term LIMIT {VOCABULARY_SIZE}"
)
_BLOCK_ROWS = 256
"""Vectors decoded at once: all together would take three times their memory, and twice as long."""


@dataclass(frozen=True, slots=True, eq=False)
class TermVectors:
    """Terms of the vocabulary that have a vector of one model, in one generation."""

    library: str
    generation: int
    model: str
    rows: Sequence[int]
    """Rows of the vectors in the table, which are never changed."""
    terms: Sequence[str]
    places: Mapping[str, int]
    """Positions of the terms in the matrix."""
    matrix: Matrix
    mean: Vector


class EmbeddedVocabulary:
    """Terms with document frequencies and vectors."""

    def __init__(self, snapshot: EmbeddedSnapshot) -> None:
        self._snapshot = snapshot
        self._session = snapshot.session

    def document_frequencies(self, terms: Sequence[str]) -> Mapping[str, int]:
        rows = self._session.all(
            "SELECT c.term, c.documents FROM json_each(?) j CROSS JOIN terms c ON c.term = j.value",
            [json_list(terms)],
        )
        return dict(rows)

    def terms_with_prefix(
        self, prefix: str, min_length: int, max_length: int, limit: int
    ) -> Mapping[str, int]:
        end = prefix + chr(sys.maxunicode)
        rows = self._session.all(
            "SELECT term, documents FROM terms WHERE term >= ? AND term < ?"
            " AND length(term) BETWEEN ? AND ? ORDER BY documents DESC, term LIMIT ?",
            [prefix, end, min_length, max_length, max(0, limit)],
        )
        return dict(rows)

    def nearest_terms(self, vector: Vector, model: str, limit: int) -> list[ScoredTerm]:
        known = self._vectors(model) if limit > 0 else None
        if known is None or not known.terms:
            return []
        import numpy as np

        from marklight.engines.embedded.vector_search import top
        from marklight.engines.vector_math import check_dimension, unit_rows

        check_dimension(vector, known.matrix.shape[1], model)
        # In this thread alone: on a busy machine, waiting for a second one costs more than it saves.
        scores = np.vecdot(known.matrix, unit_rows(vector))
        nearest = [ScoredTerm(known.terms[at], float(scores[at])) for at in top(scores, limit)]
        return sorted(nearest, key=lambda term: (-term.score, term.term))[:limit]

    def term_vectors(self, model: str, terms: Sequence[str]) -> Mapping[str, Vector]:
        known = self._vectors(model)
        if known is None:
            return {}
        places = {term: known.places[term] for term in terms if term in known.places}
        return {term: known.matrix[at].copy() for term, at in places.items()}

    def mean_vector(self, model: str) -> Vector | None:
        known = self._vectors(model)
        return known.mean if known and known.terms else None

    def terms_without_vector(self, model: str, limit: int) -> list[str]:
        rows = self._session.all(
            f"SELECT w.term FROM ({VOCABULARY}) w WHERE NOT EXISTS (SELECT 1 FROM term_vectors v"
            " WHERE v.model = (SELECT row FROM models WHERE name = ?) AND v.term = w.term)"
            " ORDER BY w.documents DESC, w.term LIMIT ?",
            [model, max(0, limit)],
        )
        return [term for (term,) in rows]

    def _vectors(self, model: str) -> TermVectors | None:
        """Return the term vectors of this snapshot, read only where they differ from the cached ones."""
        snapshot, cache = self._snapshot, self._snapshot.parts.term_vectors
        last = cache.get(model)
        version = snapshot.library, snapshot.generation
        if last and (last.library, last.generation) == version:
            return last
        info = vector_file_info(self._session, model)
        if info is None:
            return None
        before = last if last and last.library == snapshot.library else None
        vectors = _read(self._session, info, version, before)
        if before is None or before.generation < snapshot.generation:
            cache[model] = vectors  # one assignment of an immutable value: needs no lock
        return vectors


def _read(
    session: Session, info: VectorFileInfo, version: tuple[str, int], before: TermVectors | None
) -> TermVectors:
    import numpy as np

    pairs = session.all(
        f"SELECT v.row, w.term FROM ({VOCABULARY}) w CROSS JOIN term_vectors v"
        " ON v.model = ? AND v.term = w.term ORDER BY v.row",
        [info.model_row],
    )
    rows, terms = [row for row, _ in pairs], [term for _, term in pairs]
    matrix = _matrix(session, info, rows, before)
    if before and before.matrix is matrix:
        mean = before.mean
    else:
        mean = matrix.mean(axis=0) if len(matrix) else np.zeros(info.dimension, np.float32)
    places = {term: at for at, term in enumerate(terms)}
    return TermVectors(*version, info.model, rows, terms, places, matrix, mean)


def _matrix(
    session: Session, info: VectorFileInfo, rows: Sequence[int], before: TermVectors | None
) -> Matrix:
    """Return the vectors of these rows; those that were cached are copied, others read."""
    import numpy as np

    from marklight.engines.vector_math import unit_rows

    if before and before.rows == rows:
        return before.matrix
    matrix = np.zeros((len(rows), info.dimension), dtype=np.float32)
    known = {row: at for at, row in enumerate(before.rows)} if before else {}
    cached = [at for at, row in enumerate(rows) if row in known]
    if before and cached:
        matrix[cached] = before.matrix[[known[rows[at]] for at in cached]]
    missing = {row: at for at, row in enumerate(rows) if row not in known}
    stored = session.each(
        "SELECT row, vector FROM term_vectors WHERE row IN (SELECT value FROM json_each(?))"
        " AND length(vector) = ?",
        [json_list(missing), 4 * info.dimension],
    )
    while block := list(islice(stored, _BLOCK_ROWS)):
        numbers = np.frombuffer(b"".join(vector for _, vector in block), dtype="<f4")
        places = [missing[row] for row, _ in block]
        matrix[places] = unit_rows(numbers.reshape(len(block), info.dimension))
    return matrix


@contextmanager
def counting(session: Session, deleted: Iterable[int], inserted: Sequence[Entry]) -> Iterator[None]:
    """Update the document frequencies over a commit, by the texts that are deleted and inserted."""
    change: Counter[str] = Counter()
    current = session.value("SELECT vocabulary FROM state") == vocabulary_fingerprint()
    if current:
        for (text,) in session.each(
            "SELECT text FROM contents WHERE document IN (SELECT value FROM json_each(?))",
            [json_list(deleted)],
        ):
            change.subtract(vocabulary_terms(text))
        for entry in inserted:
            change.update(vocabulary_terms(entry.document.text))
    yield
    if not current:
        from marklight.engines.embedded.repair import recount_terms

        # Terms were extracted in another way: what was added then cannot be subtracted now.
        recount_terms(session)
        return
    session.many(
        "INSERT INTO terms VALUES (?, ?)"
        " ON CONFLICT (term) DO UPDATE SET documents = documents + excluded.documents",
        sorted(item for item in change.items() if item[1]),
    )
    session.run("DELETE FROM terms WHERE documents <= 0")


def add_vectors(session: Session, vectors: Vectors) -> None:
    """Insert term vectors; existing ones stay as they are."""
    if not vectors.digests:
        return
    import numpy as np

    from marklight.engines.embedded.checksums import vector_checksum
    from marklight.engines.embedded.vector_writer import model_file_info

    info = model_file_info(session, vectors)
    rows = np.ascontiguousarray(vectors.matrix, dtype="<f4")
    session.many(
        "INSERT OR IGNORE INTO term_vectors (model, term, vector, checksum) VALUES (?, ?, ?, ?)",
        (
            (info.model_row, term, vector, vector_checksum(session.key, term, vector))
            for term, row in zip(vectors.digests, rows, strict=True)
            for vector in (row.tobytes(),)
        ),
    )


def delete_unused_vectors(session: Session, models: Iterable[str]) -> int:
    """Delete vectors of other models, and of terms that left the vocabulary; return how many."""
    return session.run(
        "DELETE FROM term_vectors WHERE model NOT IN"
        " (SELECT row FROM models WHERE name IN (SELECT value FROM json_each(?)))"
        f" OR term NOT IN (SELECT term FROM ({VOCABULARY}))",
        [json_list(models)],
    )
