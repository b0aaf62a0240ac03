"""Query expansion and retrievers: find candidates for a query by its terms, by its embedding, or by names in code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from marklight.lazy import dataclass
from marklight.ports import BOILERPLATE, FIELD_BOOSTS, Embedder, ScoredChunk, Snapshot, Tools
from marklight.query import Mode, Query
from marklight.text.analyzer import analyze, code_terms, query_terms
from marklight.text.languages import main_languages

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector

CANDIDATES_PER_TERM = 8
"""Nearest terms fetched for each one added, as most are inflections of a word of the query. Hand-set; not measured."""
MAX_QUERY_TERMS = 3
"""Longer queries, stop words aside, are not expanded. Hand-set; not measured."""


@dataclass(frozen=True, slots=True)
class Expand:
    """Add the vocabulary terms closest to the query, for semantic search. Not used with `--hypothesis`."""

    max_terms: ClassVar[int] = 3
    """Maximum number of terms to add, hand-set; not measured."""
    min_cosine: ClassVar[float] = 0.5
    """Minimum cosine of a term with the query, after the mean vector of the vocabulary is subtracted: with it
    `auth` (.68) and `db` (.75) get their long forms, and `k8s` does not get `kudos` (.39)."""

    def __call__(self, query: Query, tools: Tools) -> Query:
        uses_vectors = query.mode in (Mode.HYBRID, Mode.SEMANTIC)
        if tools.embedder is None or not uses_vectors or query.hypothesis:
            return query
        terms = set(analyze(query.text))
        if len(terms) > MAX_QUERY_TERMS:
            return query
        count = CANDIDATES_PER_TERM * self.max_terms
        nearest = _nearest(query.text, tools.snapshot, tools.embedder, count)
        close = {term: cosine for term, cosine in nearest if cosine >= self.min_cosine}
        if not close:
            return query
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
        term_stems = set(analyze(term))
        if term_stems - stems:
            stems |= term_stems
            yield term


EXPANSION_WEIGHT = 0.3
"""Total weight of the terms added by `expand`, relative to one term of the query. Hand-set; not measured."""
SCALE, SHIFT = 0.6, 0.46
"""Linear map from cosines of the multilingual model to those of the default one, by which unrelated texts have the same
mean and deviation: .53 ± .065 between English headings and sections of FastAPI's manual by the default model, .11 ± .107
between English headings and German, French and Japanese sections by the multilingual one."""


@dataclass(frozen=True, slots=True)
class Semantic:
    """Cosine similarity of the query's vector to the passages'; in large indexes binary vectors preselect passages.

    A hypothesis is a hypothetical answer (HyDE), so it is embedded as a passage.
    """

    def __call__(self, query: Query, limit: int, tools: Tools) -> Sequence[ScoredChunk]:
        embedder = tools.embedder
        if embedder is None:
            return ()
        vector = self._query_vector(query, embedder, tools)
        candidates = tools.snapshot.vectors.search(
            vector, embedder.fingerprint, query.filters, limit
        )
        if tools.multilingual is not None:
            return _with_other_languages(candidates, query, tools, limit)
        return candidates

    def _query_vector(self, query: Query, embedder: Embedder, tools: Tools) -> Vector:
        """Return the vector to search for; engines normalise it, so a sum need not have length one."""
        vector: Vector
        if query.hypothesis:
            vector = embedder.embed_passages([query.hypothesis])[0]
            return vector
        vector = embedder.embed_query(query.text)
        if not query.expanded_with:
            return vector
        added = tools.snapshot.vocabulary.term_vectors(
            embedder.fingerprint, list(query.expanded_with)
        )
        # The longer a query, the less it needs added terms: one weight for all lengths costs twice as
        # much of nDCG@10 on the Kubernetes documentation (.779 without expansion, .777, .773).
        weight = EXPANSION_WEIGHT / max(1, len(query_terms(query.text)))
        for term_vector in added.values():
            vector = vector + weight / len(added) * term_vector
        return vector


def _with_other_languages(
    candidates: Sequence[ScoredChunk], query: Query, tools: Tools, limit: int
) -> list[ScoredChunk]:
    """Replace candidates in languages that the model does not know by those of the multilingual model."""
    first, second, snapshot = tools.embedder, tools.multilingual, tools.snapshot
    assert first is not None
    assert second is not None
    vector = (
        second.embed_passages([query.hypothesis])[0]
        if query.hypothesis
        else second.embed_query(query.text)
    )
    owners = snapshot.documents.owners([candidate.chunk_id for candidate in candidates])
    merged = list(candidates)
    for language in main_languages(snapshot.metadata.languages()):
        if language in first.languages or language not in second.languages:
            continue
        written_in = replace(query.filters, where=(*query.filters.where, ("language", language)))
        theirs = snapshot.vectors.search(vector, second.fingerprint, written_in, limit)
        documents = tuple(set(owners.values()))
        in_language = (
            snapshot.metadata.matching_documents(
                replace(written_in, documents=documents), len(documents)
            )
            if documents
            else []
        )
        merged = [
            candidate for candidate in merged if owners.get(candidate.chunk_id) not in in_language
        ]
        merged += [ScoredChunk(id, SCALE * score + SHIFT) for id, score in theirs]
    return sorted(merged, key=lambda candidate: (-candidate.score, candidate.chunk_id))[:limit]


QUOTED_BOOSTS = {**FIELD_BOOSTS, BOILERPLATE: 1.0}
"""Fields and weights where the query has a quoted phrase: boilerplate is found by quoting it."""


@dataclass(frozen=True, slots=True)
class Keyword:
    """BM25 over title, headings, frontmatter and body, each with its own weight."""

    def __call__(self, query: Query, limit: int, tools: Tools) -> Sequence[ScoredChunk]:
        terms = query_terms(*query.spellings, languages=query.languages)
        if not terms:
            return ()
        boosts = QUOTED_BOOSTS if query.filters.has_phrases else FIELD_BOOSTS
        return tools.snapshot.lexical.search(terms, boosts, query.filters, limit)


@dataclass(frozen=True, slots=True)
class Code:
    """BM25 over the terms of code, where `getUserById` matches `get_user_by_id`."""

    def __call__(self, query: Query, limit: int, tools: Tools) -> Sequence[ScoredChunk]:
        terms = code_terms(query.text)
        if not terms:
            return ()
        return tools.snapshot.lexical.search_code(terms, query.filters, limit)
