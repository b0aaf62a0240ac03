"""Search by meaning: a product with the rows that may answer, of very many with the likely ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from marklight.engines.embedded.allowed import Allowed, which
from marklight.engines.embedded.binary_vectors import MIN_CANDIDATES, hamming_candidates
from marklight.engines.embedded.session import Session, json_list
from marklight.engines.unit_vectors import unit_rows
from marklight.model import DocumentId
from marklight.ports import ScoredChunk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from marklight.engines.embedded.binary_vectors import BinaryVectors
    from marklight.engines.embedded.kept import Standing
    from marklight.model import Matrix, Vector

_BLOCK = 8192


class Rows(NamedTuple):
    """The vectors of one model as a view has them."""

    model: int
    matrix: Matrix
    signs: BinaryVectors | None
    """Where there are so many that a first look at their signs is quicker."""
    standing: Standing
    whole: bool
    """Whether every vector is one of a passage."""


def nearest(
    session: Session, rows: Rows, vector: Vector, allowed: Allowed | None, limit: int
) -> list[ScoredChunk]:
    """The best passages by cosine, ties in the order of their ids."""
    question = unit_rows(vector)
    if allowed is None:
        wanted = None if rows.signs is None else hamming_candidates(rows.signs, question, limit)
        scores = _scores(rows.matrix, question, wanted)
        # Vectors that no passage uses any more may stand in front: then more are looked up, and at
        # last all. Each is a page of the store, so the first try asks for few.
        for ask in (limit if rows.whole else limit + limit // 4 + 8, 4 * limit + 64):
            best = top(scores, ask)
            places = best if wanted is None else wanted[best].tolist()
            found = _pairs_of(session, rows, places)
            if len(found) >= limit or not len(scores):
                return _ranked(dict(zip(places, scores[best].tolist(), strict=True)), found, limit)
    pairs = _pairs(session, rows.model, allowed)
    among = np.array([place for place, _ in pairs], dtype=np.int64)
    if rows.signs is not None and len(among) > MIN_CANDIDATES:
        near = hamming_candidates(rows.signs, question, limit, among=among)
        every = np.full(len(rows.matrix), -np.inf, dtype=np.float32)
        every[near] = _scores(rows.matrix, question, near)
        scores = every[among]
    else:
        scores = _scores(rows.matrix, question, among)
    found = [pairs[at] for at in top(scores, limit)]
    return _ranked(dict(zip(among.tolist(), scores.tolist(), strict=True)), found, limit)


def leading(
    session: Session, rows: Rows, vector: Vector, allowed: Allowed | None
) -> dict[DocumentId, ScoredChunk]:
    """The best passage of each document, of equals the first in it."""
    condition, values = which(allowed)
    found = session.all(
        "SELECT c.document, v.place, c.row FROM chunks c CROSS JOIN vectors v ON v.digest = c.digest"
        f" WHERE v.model = ? AND {condition} ORDER BY c.document, c.ordinal",
        [rows.model, *values],
    )
    places = np.array([place for _, place, _ in found], dtype=np.int64)
    scores = _scores(rows.matrix, unit_rows(vector), places)
    best: dict[int, int] = {}
    for at in np.argsort(-scores, kind="stable").tolist():
        best.setdefault(found[at][0], at)
    marks = {found[at][2]: float(scores[at]) for at in best.values()}
    named = session.all(
        "SELECT c.row, c.id, d.collection, d.path FROM chunks c JOIN documents d ON d.row = c.document"
        " WHERE c.row IN (SELECT value FROM json_each(?))",
        [json_list(marks)],
    )
    return {
        DocumentId(collection, path): ScoredChunk(id, marks[row])
        for row, id, collection, path in named
    }


def _scores(matrix: Matrix, question: Vector, wanted: NDArray[np.int64] | None) -> Vector:
    """A score for each of these places, in order, or for all."""
    # Row by row, not as one product: that would be shared among threads, which wait for each other
    # where others work too. 20,000 rows take 1.2 ms against 26 on busy cores, and no more on idle ones.
    if wanted is None:
        return np.asarray(np.vecdot(matrix, question))
    if 4 * len(wanted) > len(matrix):
        return np.asarray(np.vecdot(matrix, question)[wanted])
    scores = np.empty(len(wanted), dtype=np.float32)
    for start in range(0, len(wanted), _BLOCK):
        block = wanted[start : start + _BLOCK]
        scores[start : start + _BLOCK] = np.vecdot(matrix[block], question)
    return scores


def top(scores: Vector, count: int) -> list[int]:
    """The places of the best scores, with all that tie with the last of them."""
    if len(scores) <= count:
        return list(range(len(scores)))
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    found: list[int] = np.nonzero(scores >= least)[0].tolist()
    return found


def _ranked(
    scores: Mapping[int, float], pairs: list[tuple[int, str]], limit: int
) -> list[ScoredChunk]:
    found = [ScoredChunk(id, scores[place]) for place, id in pairs]
    return sorted(found, key=lambda each: (-each.score, each.chunk_id))[:limit]


def _pairs_of(session: Session, rows: Rows, places: list[int]) -> list[tuple[int, str]]:
    """The passages that these places belong to: several, where a text is repeated."""

    def read(some: list[int]) -> dict[int, tuple[str, ...]]:
        found: dict[int, tuple[str, ...]] = {}
        for place, id in session.all(
            "SELECT v.place, c.id FROM json_each(?) p CROSS JOIN vectors v ON v.place = p.value"
            " CROSS JOIN chunks c ON c.digest = v.digest WHERE v.model = ?",
            [json_list(some), rows.model],
        ):
            found[place] = (*found.get(place, ()), id)
        return found

    known = rows.standing.ids.of(places, read)
    pairs = [(place, id) for place, ids in known.items() for id in ids]
    rows.standing.places.note({id: place for place, id in pairs})
    return pairs


def places(session: Session, rows: Rows, chunks: Sequence[str]) -> dict[str, int]:
    """Where the vectors of these passages stand."""

    def read(some: list[str]) -> dict[str, int]:
        found = session.all(
            "SELECT c.id, v.place FROM json_each(?) i CROSS JOIN chunks c ON c.id = i.value"
            " CROSS JOIN vectors v ON v.digest = c.digest WHERE v.model = ?",
            [json_list(some), rows.model],
        )
        return dict(found)

    return rows.standing.places.of(chunks, read)


def _pairs(session: Session, model: int, allowed: Allowed | None) -> list[tuple[int, str]]:
    """Every passage that may answer, with the place of its vector."""
    condition, values = which(allowed)
    return session.all(
        "SELECT v.place, c.id FROM chunks c CROSS JOIN vectors v ON v.digest = c.digest"
        f" WHERE v.model = ? AND {condition}",
        [model, *values],
    )
