"""Compute the features of learned fusion: per passage (cosine, BM25, term coverage) and per query (answerability)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import log
from statistics import fmean
from typing import NamedTuple

from marklight.answer import Hit, Hits, Why, best_first
from marklight.model import Chunk
from marklight.ports import FULL_COVERAGE, TermCoverage, Tools
from marklight.query import Query
from marklight.text import (
    ENGLISH,
    contains_sequence,
    has_words,
    matches_phrases,
    query_analyses,
    query_terms,
    trim_stop_words,
)

POOL_SIZE = 50
"""Best candidates of each list that are normalised and that the softmax uses, so that scores do not depend on the
requested number of results. Mean nDCG@10 of eleven sets: .711 with 20, .714 with 30 and 50, .713 with 100."""
MIN_SCALE = 1e-6
"""Avoids a division by zero where no candidate has a query term, or all cosines are equal."""
TENTH, NEAR_COSINE = 9, 0.75
"""Index of the tenth passage, and the cosine above which it is near. With the fifth or twentieth and .7 or .8, the mean calibration
error of left-out sets is .052 to .057, and that of Vaswani, if learned from, .17 to .26."""
LEADERS = 2
"""Passages that may share the lead in coverage: the answer may occur twice. The log loss of the answer probability of left-out
sets is .158 to .160 with 1 to 9, and .163 without the feature."""
MAX_QUERY_LENGTH = 20
"""Terms beyond which a query counts as no longer: the development sets have hardly any longer ones."""
MIN_CORPUS_SIZE = 25
"""Passages below which nothing was learned about answerability; fewer that pass a filter count as so many."""
MAX_PHRASE_WORDS = 6
"""Longest query that is also matched as a phrase. Hand-set; not measured."""
PATH_CACHE_SIZE = 4096
"""Paths whose terms are cached."""
_NON_LATIN = re.compile(r"[^\W\d_A-Za-z\u00aa-\u024f\u1e00-\u1eff]")
NO_COVERAGE = TermCoverage(0.0, 0.0)


class PassageFeatures(NamedTuple):
    """Ranking features of one passage; 0 where a feature is unknown."""

    cosine: float
    """Ten times the cosine similarity of passage and query."""
    standard_cosine: float
    """Standard score (z-score) of the cosine among the candidates, for any embedding model."""
    relative_bm25: float
    """BM25 divided by the best BM25; that of the last one where keyword search did not return the passage."""
    lexical: float
    """Relative BM25 × term coverage: terms count less the more of the query is missing."""
    coverage: float
    """Term coverage: idf-weighted share of the query terms that the passage contains."""
    exact_phrase: float
    """1 if the query occurs as typed: a single term, a term such as `v1.20`, or several words in a row. Not weighted."""
    title: float
    """Squared term coverage of the title, so that a title with one of several terms counts little."""
    path: float
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
    coverage_lead: float
    """Highest coverage minus the third highest."""
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


def merge_lists(lists: Iterable[Hits]) -> dict[str, Hit]:
    """Return every passage of several lists once, by id, with the traces of all its hits."""
    merged: dict[str, Hit] = {}
    for hits in lists:
        for hit in hits:
            first = merged.get(hit.chunk.id)
            merged[hit.chunk.id] = replace(hit, why=first.why + hit.why) if first else hit
    return merged


def with_missing_cosines(
    lists: Mapping[str, Hits], query: Query, tools: Tools
) -> Mapping[str, Hits]:
    """Return the lists, with cosines for the candidates that vector search did not return.

    Without them a passage that contains the query's very words would count as unrelated in meaning.
    """
    near = lists.get("semantic", ())
    if not near or tools.embedder is None or query.hypothesis:
        return lists
    retrieved = {hit.chunk.id for hit in near}
    others = {
        hit.chunk.id: hit.chunk
        for name, hits in lists.items()
        if name != "semantic"
        for hit in hits
        if hit.chunk.id not in retrieved
    }
    embedding = tools.embedder.embed_query(query.text)
    vectors = tools.snapshot.vectors.get(tools.embedder.fingerprint, list(others)) if others else {}
    # Vector search may have used an expanded query, by which none of these was as near as its last.
    lowest = near[-1].score
    cosines = {id: min(lowest, float(vector @ embedding)) for id, vector in vectors.items()}
    more = (Hit(others[id], cosine, (Why("semantic", cosine),)) for id, cosine in cosines.items())
    return {**lists, "semantic": (*near, *best_first(more))}


def passage_features(
    lists: Mapping[str, Hits], query: Query, tools: Tools
) -> dict[str, PassageFeatures]:
    """Return the features of every passage in the lists, by passage id."""
    chunks = {hit.chunk.id: hit.chunk for hits in lists.values() for hit in hits}
    cosines = {hit.chunk.id: hit.score for hit in lists.get("semantic", ())}
    bm25 = {hit.chunk.id: hit.score for hit in lists.get("keyword") or lists.get("code", ())}
    nearest, farthest = _pool_ends(cosines)
    highest, last = _pool_ends(bm25)
    highest = max(highest, MIN_SCALE)
    in_pool = set(list(bm25)[:POOL_SIZE]) | (bm25.keys() - set(list(cosines)[:POOL_SIZE]))
    lexical = "keyword" in lists or "code" in lists
    by_spelling = term_coverage(query, tools, list(chunks)) if lexical else {}
    coverage = _best_spelling(by_spelling.values())
    term_sets = {terms for text in by_spelling for terms in _term_sets(text, query.languages)}
    phrases = [
        exact_phrase(text, chunks, covered, query.languages)
        for text, covered in by_spelling.items()
    ]
    features = {}
    # The cosine of a passage without a vector is estimated from its coverage.
    for id in unembedded_candidates(lists, query):
        share = coverage.get(id, NO_COVERAGE).anywhere
        cosines[id] = farthest + (nearest - farthest) * share
    mean, deviation = _standard_scale(lists, cosines)
    for id, chunk in chunks.items():
        covered_share, cosine = coverage.get(id, NO_COVERAGE), cosines.get(id, farthest)
        beyond = last if len(bm25) >= POOL_SIZE else 0.0
        relative_bm25 = max(0.0, bm25[id] if id in in_pool else beyond) / highest
        features[id] = PassageFeatures(
            cosine=10 * cosine,
            standard_cosine=(cosine - mean) / deviation,
            relative_bm25=relative_bm25,
            lexical=relative_bm25 * covered_share.anywhere,
            coverage=covered_share.anywhere,
            exact_phrase=max((values.get(id, 0.0) for values in phrases), default=0.0),
            title=covered_share.title**2,
            path=_path_coverage(chunk.path, term_sets) ** 2,
        )
    return features


def _standard_scale(lists: Mapping[str, Hits], cosines: Mapping[str, float]) -> tuple[float, float]:
    """Return mean and standard deviation of the cosines of the best candidates of each list."""
    pool = {hit.chunk.id for hits in lists.values() for hit in hits[:POOL_SIZE]}
    values = [cosines[id] for id in pool if id in cosines]
    if not values:
        return 0.0, 1.0
    # Not `statistics.pstdev`, which is many times slower.
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    return mean, max(variance**0.5, MIN_SCALE)


def query_features(
    lists: Mapping[str, Hits],
    features: Mapping[str, PassageFeatures],
    query: Query,
    tools: Tools,
) -> QueryFeatures:
    """Return the features of a query, computed over the best candidates of each list."""
    near = [
        *(hit.chunk.id for hit in lists.get("semantic", ())),
        *sorted(unembedded_candidates(lists, query)),
    ]
    nearest = sorted((features[id] for id in near), key=lambda one: -one.cosine)[:POOL_SIZE]
    by_terms = lists.get("keyword") or lists.get("code", ())
    lexical = [features[hit.chunk.id] for hit in by_terms[:POOL_SIZE]]
    pool = {hit.chunk.id for hits in lists.values() for hit in hits[:POOL_SIZE]}
    cosines = [one.cosine for one in nearest] or [0.0]
    coverage = [max(one.coverage, one.path) for one in (*nearest, *lexical)]
    is_phrase_match = any(one.exact_phrase for one in (*nearest, *lexical))
    terms = term_count(query.text, query.languages)
    length = 1 if is_phrase_match else min(terms, MAX_QUERY_LENGTH)
    tenth = cosines[TENTH] if len(cosines) > TENTH else 0.0
    near_tenth = max(0.0, tenth - 10 * NEAR_COSINE)
    return QueryFeatures(
        best_cosine=cosines[0],
        top5_cosine=fmean(cosines[:5]),
        cosine_range=cosines[0] - cosines[-1],
        best_coverage=max(coverage, default=0.0),
        coverage_lead=_lead([features[id].coverage for id in pool]),
        top3_coverage=fmean(coverage[:3]) if coverage else 0.0,
        query_length=log(1 + length),
        corpus_size=log(1 + _corpus_size(query, tools)),
        many_near=near_tenth,
        many_near_length=near_tenth * log(1 + length),
    )


def unembedded_candidates(lists: Mapping[str, Hits], query: Query) -> set[str]:
    """Return the candidates without a vector; none for a hypothesis, whose list is not completed."""
    near = lists.get("semantic")
    if not near or query.hypothesis:
        return set()
    return {hit.chunk.id for hits in lists.values() for hit in hits} - {
        hit.chunk.id for hit in near
    }


def needs_lexical_weights(
    lists: Mapping[str, Hits], features: Mapping[str, PassageFeatures], query: Query
) -> bool:
    """Return True if a candidate without a vector has the highest coverage: cosines then mislead."""
    unembedded = unembedded_candidates(lists, query)
    highest = max(
        (one.coverage for id, one in features.items() if id not in unembedded), default=0.0
    )
    return any(features[id].coverage > highest for id in unembedded)


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
    chunks: Mapping[str, Chunk],
    coverage: Mapping[str, TermCoverage],
    languages: Sequence[str] = (ENGLISH,),
) -> Mapping[str, float]:
    """Return the passages that contain the query as typed: a single term, or several words in a row.

    Of `when is the pen test` the subject is matched. A text typed without blanks, such as a version, a date or an
    address, must occur as a whole word.
    """
    if term_count(text, languages) == 1:
        return dict.fromkeys(coverage, 1.0)
    text = trim_stop_words(text, languages[0])
    word_count = len(text.split())
    if word_count > MAX_PHRASE_WORDS:
        return {}
    if word_count == 1:
        if not has_words(text):
            return {}
        matches = [
            id for id, chunk in chunks.items() if matches_phrases((text,), (), _fields(chunk))
        ]
        return dict.fromkeys(matches, 1.0)
    full = [id for id in chunks if coverage.get(id, NO_COVERAGE).anywhere > FULL_COVERAGE]
    matches = [id for id in full if contains_sequence(text, "\0".join(_fields(chunks[id])).lower())]
    return dict.fromkeys(matches, 1.0)


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


def _path_coverage(path: str, term_sets: Iterable[frozenset[str]]) -> float:
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


def _lead(coverage: Iterable[float]) -> float:
    ordered = sorted(coverage, reverse=True)
    follower = ordered[LEADERS] if len(ordered) > LEADERS else 0.0
    return ordered[0] - follower if ordered else 0.0


def _pool_ends(scores: Mapping[str, float]) -> tuple[float, float]:
    """Return the best score and the last one of the pool."""
    pool = list(scores.values())[:POOL_SIZE] or [0.0]
    return pool[0], pool[-1]


def filters_cover_query(query: Query) -> bool:
    """Return true if all terms of the query are terms of its filters, so that every passage that passes answers it."""
    filters = query.filters
    values = (value for _, value in filters.where)
    filter_text = " ".join((*filters.phrases, *filters.tags, *filters.languages, *values))
    terms = set(query_terms(query.text))
    return bool(terms) and terms <= set(query_terms(filter_text))
