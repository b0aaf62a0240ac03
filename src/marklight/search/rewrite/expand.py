"""Add words of the library that mean nearly the same as the question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from marklight.answer import Mode, Query
from marklight.ports import Embedder, Snapshot, Tools
from marklight.settings import demand_within
from marklight.text import analyze

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector

FORMS = 8
"""Nearest words looked at for each one added: most of them are forms of one that is there already."""


@dataclass(frozen=True, slots=True)
class Expand:
    """The nearest words of the vocabulary, for the search by meaning; a hypothesis needs none."""

    most: int = 3
    """Words added at most."""
    least: float = 0.5
    """Cosine that a word must have, without what all words of the library have in common."""
    words: int = 3
    """A question with more words of its own, stop words aside, says by itself what it means."""

    def __post_init__(self) -> None:
        demand_within("search.expand", self, most=(0, 20), least=(0, 1), words=(1, inf))

    def __call__(self, query: Query, tools: Tools) -> Query:
        by_meaning = query.mode in (Mode.HYBRID, Mode.SEMANTIC)
        if tools.embedder is None or not by_meaning or query.hypothesis or not self.most:
            return query
        own = set(analyze(query.text))
        if len(own) > self.words:
            return query
        near = _nearest(query.text, tools.snapshot, tools.embedder, FORMS * self.most)
        close = {term: cosine for term, cosine in near if cosine >= self.least}
        added = islice(_new(close, own), self.most)
        return replace(query, expanded_with={term: close[term] for term in added})


def _nearest(text: str, snapshot: Snapshot, model: Embedder, limit: int) -> list[tuple[str, float]]:
    """Words by their cosine with the question, both seen from the middle of the vocabulary.

    Vectors of single words all point the same way: over FastAPI's vocabulary their mean is .74
    long, and `kudos`, the nearest to `k8s`, has a cosine of .72. Seen from there it has .39, while
    `database` still has .75 for `db` and `authentication` .68 for `auth`.
    """
    question = model.embed_query(text)
    found = [
        each.term for each in snapshot.vocabulary.nearest_terms(question, model.fingerprint, limit)
    ]
    centre = snapshot.vocabulary.mean_vector(model.fingerprint)
    if centre is None or not found:
        return []
    import numpy as np

    known = snapshot.vocabulary.term_vectors(model.fingerprint, found)
    cosines = _cosines(np.stack([known[term] for term in found]) - centre, question - centre)
    return sorted(zip(found, cosines, strict=True), key=lambda each: (-each[1], each[0]))


def _cosines(rows: Matrix, question: Vector) -> list[float]:
    import numpy as np

    lengths = np.sqrt(np.vecdot(rows, rows) * np.vecdot(question, question), dtype=np.float64)
    products = np.vecdot(rows, question).astype(np.float64)
    cosines = np.divide(products, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return [float(each) for each in cosines]


def _new(terms: Iterable[str], stems: set[str]) -> Iterator[str]:
    """Words that are no other form of a word that is there."""
    for term in terms:
        own = set(analyze(term))
        if own - stems:
            stems |= own
            yield term
