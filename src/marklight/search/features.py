"""Compute the features of learned fusion: per passage (cosine, BM25, term coverage) and per query (answerability)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from math import fsum, log
from typing import NamedTuple

from marklight.lazy import lazy_pattern
from marklight.model import Chunk
from marklight.ports import FULL_COVERAGE, Pool, TermCoverage, Tools
from marklight.query import Query
from marklight.text.analyzer import (
    ENGLISH,
    contains_sequence,
    fold,
    has_words,
    matches_phrases,
    query_analyses,
    query_terms,
    surface_prefixes,
    trim_stop_words,
)

POOL_SIZE = 30
"""Best candidates of each list that are normalised and that the softmax uses, so that scores do not depend on the
requested number of results. Nineteen sets, left out, with 50 candidates and with 30: mean nDCG@10 .779, calibration error .075
and .076, off-topic queries answered .092 and .093; a search takes less time with 30."""
MIN_SCALE = 1e-6
"""Avoids a division by zero where no candidate has a query term, or all cosines are equal."""
TENTH, NEAR_COSINE = 9, 0.75
"""Index of the tenth passage, and the cosine above which it is near. With the fifth or twentieth and .7 or .8, the mean calibration
error of left-out sets is .052 to .057, and that of Vaswani, if learned from, .17 to .26."""
MAX_QUERY_LENGTH = 20
"""Terms beyond which a query counts as no longer: the development sets have hardly any longer ones."""
MIN_CORPUS_SIZE = 25
"""Passages below which nothing was learned about answerability; fewer that pass a filter count as so many."""
MAX_PHRASE_WORDS = 6
"""Longest query that is also matched as a phrase. Hand-set; not measured."""
COVERAGE_POWER = 1.5
"""Exponent of term coverage in the feature `lexical`. With 1, 1.5 and 2, the mean reciprocal rank of the right document over 248
questions about seven vaults is .784, .794 and .795, but nDCG@10 falls by at most 0, .003 and .010 on any of five judged sets."""
FIRST_READ = 4
"""Passages that are searched for the query as a phrase before all others are read."""
PATH_CACHE_SIZE = 4096
"""Paths whose terms are cached."""
_NON_LATIN = lazy_pattern(r"[^\W\d_A-Za-z\u00aa-\u024f\u1e00-\u1eff]")
NO_COVERAGE = TermCoverage(0.0, 0.0)
HEADING_MARK = len("# ")

Column = Sequence[float]


class PassageFeatures(NamedTuple):
    """Ranking features of the candidates, a column each, by row of the pool; 0 where a feature is unknown."""

    cosine: Column
    """Ten times the cosine similarity of passage and query."""
    standard_cosine: Column
    """Standard score (z-score) of the cosine among the candidates, for any embedding model."""
    relative_bm25: Column
    """BM25 divided by the best BM25; that of the last one where keyword search did not return the passage."""
    lexical: Column
    """Relative BM25 × a power of term coverage: terms count less the more of the query is missing."""
    coverage: Column
    """Term coverage: idf-weighted share of the query terms that the passage contains."""
    exact_phrase: Column
    """1 if the query occurs as typed: a single term, or a term such as `v1.20`. Of passages with several words in a row,
    one has it, as it only matters if there is any. Not weighted."""
    title: Column
    """Squared term coverage of the title, so that a title with one of several terms counts little; 0 for a passage that
    consists of the title, which would count twice."""
    path: Column
    """Squared share of the query terms that occur in the path, unweighted."""


class QueryFeatures(NamedTuple):
    """Features of a query and its candidates from which the answer probability is computed."""

    best_cosine: float
    """Ten times the highest cosine."""
    top5_cosine: float
    """Ten times the mean of the five highest cosines."""
    cosine_range: float
    """Ten times the difference between the highest and the last cosine of the pool."""
    best_coverage: float
    """Highest term coverage of a passage, or of its path."""
    top3_coverage: float
    """Mean coverage of the three nearest passages by cosine, or by BM25 without vectors."""
    query_length: float
    """log(1 + number of query terms)."""
    corpus_size: float
    """log(1 + number of passages that pass the filters)."""
    many_near: float
    """Ten times the tenth highest cosine above `NEAR_COSINE`, else 0: high where many passages may be relevant."""
    many_near_length: float
    """`many_near` × `query_length`: among passages near a long query more are relevant."""
    absent_share: float
    """Share of the idf of the query that is of words which no document contains."""


def with_missing_cosines(pool: Pool, query: Query, tools: Tools) -> Pool:
    """Return the pool with cosines for the candidates that vector search did not return.

    Without them a passage that contains the query's very words would count as unrelated in meaning.
    """
    near = pool.scores.get("semantic")
    if not near or tools.embedder is None or query.hypothesis:
        return pool
    others = [chunk.id for row, chunk in enumerate(pool.chunks) if row not in near]
    vectors = tools.snapshot.vectors.get(tools.embedder.fingerprint, others) if others else {}
    if not vectors:
        return pool
    import numpy as np

    embedding = tools.embedder.embed_query(query.text)
    rows = np.concatenate(list(vectors.values())).reshape(len(vectors), -1)
    cosines = np.vecdot(rows, embedding).tolist()
    # Vector search may have used an expanded query, by which none of these was as near as its last.
    lowest = min(near.values())
    more = sorted((-min(lowest, cosine), id) for cosine, id in zip(cosines, vectors, strict=True))
    completed = {**near, **{pool.rows[id]: -opposite for opposite, id in more}}
    return pool._replace(scores={**pool.scores, "semantic": completed})


def passage_features(pool: Pool, query: Query, tools: Tools) -> PassageFeatures:
    """Return the features of every candidate."""
    rows = range(len(pool.chunks))
    cosines = {**pool.scores.get("semantic", {})}
    bm25 = pool.scores.get("keyword") or pool.scores.get("code", {})
    nearest, farthest = _pool_ends(cosines)
    highest, last = _pool_ends(bm25)
    highest = max(highest, MIN_SCALE)
    beyond = last if len(bm25) >= POOL_SIZE else 0.0
    relative_bm25 = [max(0.0, beyond) / highest] * len(rows)
    near = {*islice(cosines, POOL_SIZE)} if len(bm25) > POOL_SIZE else set()
    for place, (row, score) in enumerate(bm25.items()):
        if place < POOL_SIZE or row not in near:
            relative_bm25[row] = max(0.0, score) / highest
    lexical = "keyword" in pool.scores or "code" in pool.scores
    ids = list(pool.rows)
    by_spelling = term_coverage(query, tools, ids) if lexical else {}
    covered = _best_spelling(by_spelling.values())
    coverage, title = [0.0] * len(rows), [0.0] * len(rows)
    for id, (anywhere, in_title) in covered.items():
        row = pool.rows[id]
        coverage[row], chunk = anywhere, pool.chunks[row]
        # The text is read only if it is as long as the title: comparing lengths takes no time.
        excess = chunk.prose_length - len(chunk.title)
        if excess not in (0, HEADING_MARK) or not chunk.is_title:
            title[row] = in_title**2
    in_pool = pool.best(POOL_SIZE)
    by_terms = sorted(dict.fromkeys((*bm25, *rows)), key=lambda row: row not in in_pool)
    ordered = [ids[row] for row in by_terms]
    phrases: set[str] = set()
    for text, by_id in by_spelling.items():
        phrases |= exact_phrase(text, by_id, ordered, query.languages, tools)
    term_sets = {terms for text in by_spelling for terms in _term_sets(text, query.languages)}
    prefixes = {
        prefix for terms in term_sets for term in terms for prefix in surface_prefixes(term)
    }
    paths = {
        path: _path_coverage(path, term_sets, prefixes) ** 2
        for path in {chunk.document.path for chunk in pool.chunks}
    }
    # The cosine of a passage without a vector is estimated from its coverage.
    for row in unembedded_candidates(pool, query):
        cosines[row] = farthest + (nearest - farthest) * coverage[row]
    mean, deviation = _standard_scale(pool, cosines)
    cosine = [cosines.get(row, farthest) for row in rows]
    return PassageFeatures(
        cosine=[10 * one for one in cosine],
        standard_cosine=[(one - mean) / deviation for one in cosine],
        relative_bm25=relative_bm25,
        lexical=[
            one * share**COVERAGE_POWER for one, share in zip(relative_bm25, coverage, strict=True)
        ],
        coverage=coverage,
        exact_phrase=[float(id in phrases) for id in ids],
        title=title,
        path=[paths[chunk.document.path] for chunk in pool.chunks],
    )


def _standard_scale(pool: Pool, cosines: Mapping[int, float]) -> tuple[float, float]:
    """Return mean and standard deviation of the cosines of the best candidates of each list."""
    values = [cosines[row] for row in pool.best(POOL_SIZE) if row in cosines]
    if not values:
        return 0.0, 1.0
    # Not `statistics.pstdev`, which is many times slower.
    mean = sum(values) / len(values)
    variance = sum([(value - mean) ** 2 for value in values]) / len(values)
    return mean, max(variance**0.5, MIN_SCALE)


def query_features(
    pool: Pool, features: PassageFeatures, query: Query, tools: Tools
) -> QueryFeatures:
    """Return the features of a query, computed over the best candidates of each list."""
    unembedded = unembedded_candidates(pool, query)
    near = [*pool.scores.get("semantic", ()), *unembedded]
    if unembedded:  # others are sorted already
        near.sort(key=lambda row: -features.cosine[row])
    nearest = near[:POOL_SIZE]
    by_terms = pool.scores.get("keyword") or pool.scores.get("code", {})
    best = [*nearest, *islice(by_terms, POOL_SIZE)]
    cosines = [features.cosine[row] for row in nearest] or [0.0]
    coverage = [max(features.coverage[row], features.path[row]) for row in best]
    is_phrase_match = any(features.exact_phrase[row] for row in best)
    terms = term_count(query.text, query.languages)
    length = 1 if is_phrase_match else min(terms, MAX_QUERY_LENGTH)
    tenth = cosines[TENTH] if len(cosines) > TENTH else 0.0
    near_tenth = max(0.0, tenth - 10 * NEAR_COSINE)
    return QueryFeatures(
        best_cosine=cosines[0],
        top5_cosine=_mean(cosines[:5]),
        cosine_range=cosines[0] - cosines[-1],
        best_coverage=max(coverage, default=0.0),
        top3_coverage=_mean(coverage[:3]),
        query_length=log(1 + length),
        corpus_size=log(1 + _corpus_size(query, tools)),
        many_near=near_tenth,
        many_near_length=near_tenth * log(1 + length),
        absent_share=query.absent_share,
    )


def unembedded_candidates(pool: Pool, query: Query) -> list[int]:
    """Return the candidates without a vector, by id; none for a hypothesis, whose list is not completed."""
    near = pool.scores.get("semantic")
    if not near or query.hypothesis or len(near) == len(pool.rows):
        return []
    return [row for id, row in sorted(pool.rows.items()) if row not in near]


def needs_lexical_weights(pool: Pool, features: PassageFeatures, query: Query) -> bool:
    """Return True if a candidate without a vector has the highest coverage: cosines then mislead."""
    unembedded = unembedded_candidates(pool, query)
    if not unembedded:
        return False
    embedded = pool.scores["semantic"]
    highest = max((features.coverage[row] for row in embedded), default=0.0)
    return any(features.coverage[row] > highest for row in unembedded)


def is_non_latin(query: Query) -> bool:
    """Return True if most letters are not Latin, unlike the queries that the weights were learned from.

    An English model places all Chinese text close together, relevant or not.
    """
    text = query.hypothesis or query.text
    if text.isascii():
        return False
    return 2 * len(_NON_LATIN.findall(text)) > sum(map(str.isalpha, text))


def term_count(text: str, languages: Sequence[str] = (ENGLISH,)) -> int:
    """Return the number of query terms; `PostgreSQL` counts once, though its parts are searched too."""
    first = languages[:1]  # other languages make other terms of the same words
    names = set(query_analyses(text, first)[0])
    return 1 if len(names) == 1 else len(set(query_terms(text, languages=first)))


def term_coverage(
    query: Query, tools: Tools, chunks: Sequence[str]
) -> dict[str, Mapping[str, TermCoverage]]:
    """Return the term coverage of passages by spelling of the query, else by the terms it was expanded with.

    A passage with an expansion term counts by the similarity of the two terms. For single words that
    occur nowhere, expansion found the right answer in 1 of 7 cases, although scores said 9 of 10.
    """
    by_spelling = {
        text: _coverage(text, tools, chunks, query.languages) for text in query.spellings
    }
    if any(by_spelling.values()) or not query.expanded_with:
        return by_spelling
    expanded = (
        {
            id: TermCoverage(similarity * own.anywhere, similarity * own.title)
            for id, own in _coverage(term, tools, chunks).items()
        }
        for term, similarity in query.expanded_with.items()
    )
    return {query.text: _best_spelling(expanded)}


def exact_phrase(
    text: str,
    coverage: Mapping[str, TermCoverage],
    candidates: Sequence[str],
    languages: Sequence[str],
    tools: Tools,
) -> set[str]:
    """Return the passages that contain the query as typed, if it is a single term; else one with all its words in a row.

    Of `when is the pen test` the subject is matched. A text typed without blanks, such as a version, a date or an
    address, must occur as a whole word.
    """
    if term_count(text, languages) == 1:
        return set(coverage)
    text = trim_stop_words(text, languages[0])
    word_count = len(text.split())
    if word_count > MAX_PHRASE_WORDS or (word_count == 1 and not has_words(text)):
        return set()
    read = tools.snapshot.documents.chunks
    if word_count == 1:
        return {
            chunk.id for chunk in read(candidates) if matches_phrases((text,), (), _fields(chunk))
        }
    full = [id for id in candidates if id in coverage and coverage[id].anywhere > FULL_COVERAGE]
    # One passage with the phrase is enough, and most often it is among the best.
    for ids in (full[:FIRST_READ], full[FIRST_READ:]):
        for chunk in read(ids):
            if contains_sequence(text, "\0".join(_fields(chunk)).lower()):
                return {chunk.id}
    return set()


def _fields(chunk: Chunk) -> tuple[str, ...]:
    return (chunk.own_text, chunk.title, *chunk.headings, *chunk.merged)


def _coverage(
    text: str, tools: Tools, chunks: Sequence[str], languages: Sequence[str] = (ENGLISH,)
) -> Mapping[str, TermCoverage]:
    """Return the coverage by compound names or by their parts, by the rules of the language for which it is highest."""
    own, *others = query_analyses(text, languages)
    parts = query_terms(text, languages=languages[:1])
    best = tools.snapshot.lexical.term_coverage(parts, chunks)
    for names in ([] if not own or len(own) == len(parts) else own, *others):
        if names:
            best = _higher(best, tools.snapshot.lexical.term_coverage(names, chunks))
    return best


def _best_spelling(by_spelling: Iterable[Mapping[str, TermCoverage]]) -> Mapping[str, TermCoverage]:
    best: Mapping[str, TermCoverage] = {}
    for coverage in by_spelling:
        best = _higher(best, coverage) if best else coverage
    return best


def _higher(
    one: Mapping[str, TermCoverage], two: Mapping[str, TermCoverage]
) -> dict[str, TermCoverage]:
    return {
        id: TermCoverage(*map(max, one.get(id, NO_COVERAGE), two.get(id, NO_COVERAGE)))
        for id in one.keys() | two.keys()
    }


def _term_sets(text: str, languages: Sequence[str]) -> set[frozenset[str]]:
    """Return the terms of a query with compound names whole, and with their parts."""
    analyses = map(frozenset, query_analyses(text, languages))
    return {*analyses, frozenset(query_terms(text, languages=languages[:1]))} - {frozenset()}


def _path_coverage(
    path: str, term_sets: Iterable[frozenset[str]], prefixes: Iterable[str]
) -> float:
    folded = fold(path)
    if not any(prefix in folded for prefix in prefixes):
        return 0.0  # most paths: analyzing one takes many times as long
    path_terms = _path_terms(path)
    return max((len(terms & path_terms) / len(terms) for terms in term_sets), default=0.0)


@lru_cache(maxsize=PATH_CACHE_SIZE)
def _path_terms(path: str) -> frozenset[str]:
    return frozenset().union(*map(_part_terms, path.split("/")))


@lru_cache(maxsize=PATH_CACHE_SIZE)
def _part_terms(part: str) -> frozenset[str]:
    return frozenset(query_terms(part))


def _corpus_size(query: Query, tools: Tools) -> int:
    """Return the number of passages that pass the filters, at least `MIN_CORPUS_SIZE` if there are so many."""
    total = tools.snapshot.status.counts("").chunks
    if not query.filters:
        return total
    return min(total, max(MIN_CORPUS_SIZE, tools.snapshot.metadata.count_matching(query.filters)))


def _mean(values: Sequence[float]) -> float:
    """Return the mean, or 0. (`statistics.fmean` does the same; importing it takes 3 ms.)"""
    return fsum(values) / len(values) if values else 0.0


def _pool_ends(scores: Mapping[int, float]) -> tuple[float, float]:
    """Return the best score and the last one of the pool."""
    pool = list(islice(scores.values(), POOL_SIZE)) or [0.0]
    return pool[0], pool[-1]


def filters_cover_query(query: Query) -> bool:
    """Return true if all terms of the query are terms of its filters, so that every passage that passes answers it."""
    filters = query.filters
    values = (value for _, value in filters.where)
    filter_text = " ".join((*filters.phrases, *filters.tags, *filters.languages, *values))
    terms = set(query_terms(query.text))
    return bool(terms) and terms <= set(query_terms(filter_text))
