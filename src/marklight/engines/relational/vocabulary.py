"""Vocabulary: document frequencies of terms, updated with each commit, and vectors of the most frequent ones.

Term vectors are in a table and cached in memory while they stay the same. numpy is imported by the functions that need it:
counting terms must not load it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from marklight.lazy import dataclass
from marklight.model import Entry
from marklight.ports import MIN_VOCABULARY, VOCABULARY_SIZE, ScoredTerm
from marklight.text.analyzer import vocabulary_fingerprint, vocabulary_terms

if TYPE_CHECKING:
    from marklight.engines.relational import SqlSession
    from marklight.engines.relational.snapshot import RelationalSnapshot
    from marklight.model import Matrix, Vector, Vectors

VOCABULARY = (
    "SELECT term, documents FROM terms ORDER BY documents DESC, term LIMIT (SELECT CASE"
    f" WHEN chunks < {MIN_VOCABULARY} THEN {MIN_VOCABULARY}"
    f" WHEN chunks > {VOCABULARY_SIZE} THEN {VOCABULARY_SIZE} ELSE chunks END FROM state)"
)


@dataclass(frozen=True, slots=True, eq=False)
class TermVectors:
    """Terms of the vocabulary that have a vector of one model, in one generation."""

    library: str
    generation: int
    model: str
    terms: Sequence[str]
    places: Mapping[str, int]
    """Positions of the terms in the matrix."""
    matrix: Matrix
    mean: Vector


class RelationalVocabulary:
    """Terms with document frequencies and vectors."""

    def __init__(self, snapshot: RelationalSnapshot) -> None:
        self._snapshot = snapshot
        self._session = snapshot.session

    def document_frequencies(self, terms: Sequence[str]) -> Mapping[str, int]:
        """Return the number of documents that contain each term; those in none are skipped."""
        rows = self._session.all(
            "SELECT c.term, c.documents FROM texts(?) j CROSS JOIN terms c ON c.term = j.value",
            [list(terms)],
        )
        return dict(rows)

    def terms_with_prefix(
        self, prefix: str, min_length: int, max_length: int, limit: int
    ) -> Mapping[str, int]:
        """Return terms with a prefix and their document frequencies, most frequent first."""
        end = prefix + chr(sys.maxunicode)
        rows = self._session.all(
            "SELECT term, documents FROM terms WHERE term >= ? AND term < ?"
            " AND length(term) BETWEEN ? AND ? ORDER BY documents DESC, term LIMIT ?",
            [prefix, end, min_length, max_length, max(0, limit)],
        )
        return dict(rows)

    def nearest_terms(self, vector: Vector, model: str, limit: int) -> list[ScoredTerm]:
        """Return the nearest terms of the vocabulary by cosine, best first."""
        vectors = self._vectors(model) if limit > 0 else None
        if vectors is None or not vectors.terms:
            return []
        import numpy as np

        from marklight.vector_math import check_dimension, top, unit_rows

        check_dimension(vector, vectors.matrix.shape[1], model)
        # In this thread alone: on a busy machine, waiting for a second one costs more than it saves.
        scores = np.vecdot(vectors.matrix, unit_rows(vector))
        nearest = [ScoredTerm(vectors.terms[row], float(scores[row])) for row in top(scores, limit)]
        return sorted(nearest, key=lambda term: (-term.score, term.term))[:limit]

    def term_vectors(self, model: str, terms: Sequence[str]) -> Mapping[str, Vector]:
        """Return the unit vectors of terms; those outside the vocabulary are skipped."""
        vectors = self._vectors(model)
        if vectors is None:
            return {}
        places = {term: vectors.places[term] for term in terms if term in vectors.places}
        return {term: vectors.matrix[place].copy() for term, place in places.items()}

    def mean_vector(self, model: str) -> Vector | None:
        """Return the mean of all term vectors; None if there are none."""
        vectors = self._vectors(model)
        return vectors.mean if vectors and vectors.terms else None

    def terms_without_vector(self, model: str, limit: int) -> list[str]:
        """Return terms of the vocabulary without a vector of this model, most frequent first."""
        rows = self._session.all(
            f"SELECT w.term FROM ({VOCABULARY}) w WHERE NOT EXISTS (SELECT 1 FROM term_vectors v"
            " WHERE v.model = (SELECT row FROM models WHERE name = ?) AND v.term = w.term)"
            " ORDER BY w.documents DESC, w.term LIMIT ?",
            [model, max(0, limit)],
        )
        return [term for (term,) in rows]

    def _vectors(self, model: str) -> TermVectors | None:
        """Return the term vectors of this snapshot, read only where they differ from the cached ones."""
        snapshot, cache = self._snapshot, self._snapshot.caches.term_vectors
        last = cache.get(model)
        version = snapshot.library, snapshot.generation
        if last and (last.library, last.generation) == version:
            return last
        info = self._session.one("SELECT row, dimension FROM models WHERE name = ?", [model])
        if info is None:
            return None
        before = last if last and last.library == snapshot.library else None
        vectors = _read(self._session, model, info[0], info[1], version, before)
        if before is None or before.generation < snapshot.generation:
            cache[model] = vectors  # one assignment of an immutable value: needs no lock
        return vectors


def _read(
    session: SqlSession,
    model: str,
    model_row: int,
    dimension: int,
    version: tuple[str, int],
    before: TermVectors | None,
) -> TermVectors:
    """Read the vectors of the terms that were not cached: those of a model never change."""
    import numpy as np

    from marklight.vector_math import decode_vectors

    terms = [
        term
        for (term,) in session.all(
            f"SELECT w.term FROM ({VOCABULARY}) w CROSS JOIN term_vectors v"
            " ON v.model = ? AND v.term = w.term ORDER BY 1",
            [model_row],
        )
    ]
    if before and before.terms == terms:
        return TermVectors(*version, model, terms, before.places, before.matrix, before.mean)
    places = {term: place for place, term in enumerate(terms)}
    matrix = np.zeros((len(terms), dimension), dtype=np.float32)
    cached = [term for term in terms if term in before.places] if before else []
    if before and cached:
        matrix[[places[term] for term in cached]] = before.matrix[
            [before.places[term] for term in cached]
        ]
    stored = session.all(
        "SELECT term, vector FROM term_vectors WHERE model = ?"
        " AND term IN (SELECT value FROM texts(?) t) AND length(vector) = ?",
        [model_row, sorted(places.keys() - cached), dimension],
    )
    if stored:
        numbers = np.frombuffer(b"".join(vector for _, vector in stored), dtype=np.int8)
        rows = decode_vectors(numbers.reshape(len(stored), dimension))
        matrix[[places[term] for term, _ in stored]] = rows
    mean = matrix.mean(axis=0) if len(matrix) else np.zeros(dimension, np.float32)
    return TermVectors(*version, model, terms, places, matrix, mean)


def term_changes(
    session: SqlSession, deleted: Iterable[int], inserted: Iterable[Entry]
) -> Counter[str] | None:
    """Return the changes of document frequencies by a commit, before it deletes documents.

    None if the stored frequencies are of another version: what was added then cannot be subtracted now.
    """
    if session.value("SELECT vocabulary FROM state") != vocabulary_fingerprint():
        return None
    changes: Counter[str] = Counter()
    for (text,) in session.each(
        "SELECT unpacked(text) FROM contents WHERE document IN (SELECT value FROM integers(?) i)",
        [list(deleted)],
    ):
        changes.subtract(vocabulary_terms(text))
    for entry in inserted:
        terms = entry.vocabulary
        changes.update(vocabulary_terms(entry.document.text) if terms is None else terms)
    return changes


def apply_changes(session: SqlSession, changes: Counter[str] | None) -> None:
    """Update the document frequencies; None counts all terms again."""
    if changes is None:
        recount(session)
        return
    rows = sorted(item for item in changes.items() if item[1])
    if rows:
        session.run(
            "INSERT INTO terms (term, documents) SELECT value, count FROM counts(?) c WHERE true"
            " ON CONFLICT (term) DO UPDATE SET documents = terms.documents + excluded.documents",
            [rows],
        )
    if any(change < 0 for _, change in rows):
        session.run("DELETE FROM terms WHERE documents <= 0")


def recount(session: SqlSession) -> None:
    """Count the documents that contain each term, from the stored texts."""
    frequencies = count_terms(session)
    session.run("DELETE FROM terms")
    session.insert("terms", "term, documents", sorted(frequencies.items()))
    session.run("UPDATE state SET vocabulary = ?", [vocabulary_fingerprint()])


def count_terms(session: SqlSession) -> Counter[str]:
    """Return the document frequencies of the stored texts."""
    frequencies: Counter[str] = Counter()
    for (text,) in session.each("SELECT unpacked(text) FROM contents"):
        frequencies.update(vocabulary_terms(text))
    return frequencies


def add_vectors(
    session: SqlSession,
    model_row: int,
    vectors: Vectors,
    checksum: Callable[[str, bytes], int] | None = None,
) -> None:
    """Insert term vectors; existing ones stay as they are."""
    from marklight.vector_math import encode_vectors

    rows = encode_vectors(vectors.matrix)
    # In order of the terms, so that few pages are split, and concurrent commits wait but do not deadlock.
    places = sorted(range(len(rows)), key=vectors.digests.__getitem__)
    pairs = ((vectors.digests[place], rows[place].tobytes()) for place in places)
    columns, values = (", checksum", "?, ?, ?, ?") if checksum else ("", "?, ?, ?")
    session.many(
        f"INSERT INTO term_vectors (model, term, vector{columns}) VALUES ({values})"
        " ON CONFLICT (model, term) DO NOTHING",
        ((model_row, *pair, *([checksum(*pair)] if checksum else [])) for pair in pairs),
    )
