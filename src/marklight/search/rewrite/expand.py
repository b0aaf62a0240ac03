"""Query expansion: add terms of the vocabulary whose vectors are nearest to the query's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from marklight.ports import Embedder, Snapshot, Tools
from marklight.query import Mode, Query
from marklight.settings import Within
from marklight.text import analyze

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector

CANDIDATES_PER_TERM = 8
"""Nearest terms fetched for each one added, as most are inflections of a word of the query. Hand-set; not measured."""
MAX_QUERY_TERMS = 3
"""Longer queries, stop words aside, are not expanded. Hand-set; not measured."""
MAX_ADDED = 20
"""Bound of the setting. Hand-set; not measured."""


@dataclass(frozen=True, slots=True)
class Expand:
    """Add the vocabulary terms closest to the query, for semantic search. Not used with `--hypothesis`."""

    max_terms: Annotated[int, Within(0, MAX_ADDED)] = 3  # hand-set; not measured
    """Maximum number of terms to add."""
    min_cosine: Annotated[float, Within(0, 1)] = 0.5
    """Minimum cosine of a term with the query, after the mean vector of the vocabulary is subtracted: with it
    `auth` (.68) and `db` (.75) get their long forms, and `k8s` does not get `kudos` (.39)."""

    def __call__(self, query: Query, tools: Tools) -> Query:
        uses_vectors = query.mode in (Mode.HYBRID, Mode.SEMANTIC)
        if tools.embedder is None or not uses_vectors or query.hypothesis or not self.max_terms:
            return query
        terms = set(analyze(query.text))
        if len(terms) > MAX_QUERY_TERMS:
            return query
        count = CANDIDATES_PER_TERM * self.max_terms
        nearest = _nearest(query.text, tools.snapshot, tools.embedder, count)
        close = {term: cosine for term, cosine in nearest if cosine >= self.min_cosine}
        added = islice(_new(close, terms), self.max_terms)
        return replace(query, expanded_with={term: close[term] for term in added})


def _nearest(text: str, snapshot: Snapshot, model: Embedder, limit: int) -> list[tuple[str, float]]:
    """Return terms by their cosine with the query, both centred on the mean vector of the vocabulary.

    Vectors of single words share a direction: over FastAPI's vocabulary their mean has length .74, and
    `kudos`, the nearest to `k8s`, has a cosine of .72. Centred it has .39, while `database` still has .75
    with `db` and `authentication` .68 with `auth`.
    """
    query = model.embed_query(text)
    nearest = snapshot.vocabulary.nearest_terms(query, model.fingerprint, limit)
    terms = [scored.term for scored in nearest]
    mean = snapshot.vocabulary.mean_vector(model.fingerprint)
    if mean is None or not terms:
        return []
    import numpy as np

    vectors = snapshot.vocabulary.term_vectors(model.fingerprint, terms)
    cosines = _cosines(np.stack([vectors[term] for term in terms]) - mean, query - mean)
    return sorted(zip(terms, cosines, strict=True), key=lambda pair: (-pair[1], pair[0]))


def _cosines(rows: Matrix, query: Vector) -> list[float]:
    import numpy as np

    lengths = np.sqrt(np.vecdot(rows, rows) * np.vecdot(query, query), dtype=np.float64)
    products = np.vecdot(rows, query).astype(np.float64)
    cosines = np.divide(products, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return [float(cosine) for cosine in cosines]


def _new(candidates: Iterable[str], stems: set[str]) -> Iterator[str]:
    """Yield terms that are not an inflection of one that is there already."""
    for term in candidates:
        own = set(analyze(term))
        if own - stems:
            stems |= own
            yield term
