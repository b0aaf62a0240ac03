"""Lexical scoring, the same in all engines: the terms of a passage by field, idf, and term coverage."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import NamedTuple

from marklight.model import Chunk, Document, Entry, digest
from marklight.ports import BOILERPLATE, FIELD_BOOSTS, ScoredChunk, TermCoverage
from marklight.query import Filters
from marklight.text.analyzer import (
    ENGLISH,
    MAX_QUERY_TERMS,
    STEMMERS,
    analyze,
    code_terms,
    identifier_parts,
    query_analyses,
)

PROSE = tuple(FIELD_BOOSTS)
CODE = "code"
FIELDS = (*PROSE, CODE, BOILERPLATE)
"""All fields; the field `boilerplate` has the whole text of a passage with any boilerplate, which phrases may occur in."""
WHOLE = "whole"
"""The field with the text of all others but code."""
TITLE_TIMES = 3
"""Number of times the title is repeated in it: BM25F weights a field this way (Robertson, Zaragoza and Taylor, CIKM 2004).

By nDCG@10, mean of eight development sets: .670 once, .677 twice, .681 three times. Other fields occur
once: with headings, keywords, description and tags twice it is .002 less.
"""

SCORE_DIGITS = 4
"""Decimals of a score: summing the same numbers in another order changes later ones, which must not change ranks."""

SHARED = ("keywords", "description", "tags", "aliases", "author")
"""The fields that all passages of a document share."""

PHRASE_FIELDS = ("body", "title", "headings", BOILERPLATE)
"""The fields in one of which a phrase occurs: the text, the title, or a heading."""

K1, B = 1.2, 0.75
"""Parameters of BM25, as in tantivy."""


class DocumentTerms(NamedTuple):
    """The language of a document, and the terms of the fields that its passages share."""

    language: str
    fields: Mapping[str, list[str]]


NO_TERMS = DocumentTerms("", {})


def document_terms(document: Document) -> DocumentTerms:
    """Return the terms of the shared fields of a document; computed once for all its passages."""
    return shared_terms({field: getattr(document, field) for field in ("language", *SHARED)})


def shared_terms(values: Mapping[str, str | Sequence[str]]) -> DocumentTerms:
    """Return the terms of the shared fields, given as a mapping."""
    language = str(values.get("language", ""))
    texts = {field: values[field] for field in SHARED}
    fields = {
        field: field_terms(text if isinstance(text, str) else "\n".join(text), language)
        for field, text in texts.items()
    }
    return DocumentTerms(language, fields)


def field_terms(text: str, language: str) -> list[str]:
    """Return the terms of a text by the rules of its language, then those that the rules of English add.

    A query in any language has English terms too, so it finds names and loan words in documents of all languages.
    """
    if language in ("", ENGLISH):
        return analyze(text, language)
    terms_by_language, *english = query_analyses(text, (language, ENGLISH))
    distinct = set(terms_by_language)
    return terms_by_language + [term for terms in english for term in terms if term not in distinct]


def passage_terms(shared: DocumentTerms, chunk: Chunk) -> Mapping[str, Sequence[str]]:
    """Return the terms of all fields of a passage: the document's, its own, and the whole.

    One of nothing but boilerplate has no others: its title and headings are those of better passages.
    """
    language, headings = shared.language, "\n".join((*chunk.headings, *chunk.merged))
    full = field_terms(chunk.text, language) if chunk.boilerplate else []
    if chunk.is_boilerplate:
        return {**dict.fromkeys(FIELDS, ()), BOILERPLATE: full + field_terms(headings, language)}
    title, title_parts = _short_terms(chunk.title, language)
    heading, heading_parts = _short_terms(headings, language)
    text = chunk.own_text
    body = field_terms(text, language)
    whole = [*chain.from_iterable(shared.fields.values()), *(title + title_parts) * TITLE_TIMES]
    whole += heading + heading_parts + body + identifier_parts(text)
    code = code_terms(chunk.code) if chunk.code else []
    own_fields = {"title": title, "headings": heading, "body": body}
    return {**shared.fields, **own_fields, WHOLE: whole, CODE: code, BOILERPLATE: full}


def entry_terms(entry: Entry) -> Iterator[Mapping[str, str]]:
    """Yield the terms of every passage of a document by field, separated by blanks."""
    shared = document_terms(entry.document)
    for chunk in entry.chunks:
        yield joined(passage_terms(shared, chunk))


def joined(fields: Mapping[str, Sequence[str]]) -> Mapping[str, str]:
    """Return the terms of fields separated by blanks; empty fields are left out."""
    return {field: " ".join(terms) for field, terms in fields.items() if terms}


@lru_cache(maxsize=256)
def _short_terms(text: str, language: str) -> tuple[list[str], list[str]]:
    """Return the terms of a title or of headings, which several passages share, and of the parts of identifiers."""
    return field_terms(text, language), identifier_parts(text)


_SAMPLE = (
    "The Café's C++ and .NET parsers, 日本語 running_fast getUserById v1.27 naïve 漢 don't _so_ bought colours what's Ida’s"
    " der Häuser การค้น हिन्दी й مُلف"
)


@cache
def analyzer_fingerprint() -> str:
    """Return a digest that changes with the analyzer or the fields, and with it every lexical index."""
    output = (analyze(_SAMPLE), identifier_parts(_SAMPLE), code_terms(_SAMPLE), FIELDS)
    others = (field_terms(_SAMPLE, "de"), sorted(STEMMERS))
    return digest(*(" ".join(terms) for terms in (*output, *others)), str(TITLE_TIMES), size=6)


BACKGROUND_PASSAGES = 100
"""Passages without any query term, added to the library's own: in a library of ten passages a term
that two of them contain is not common."""


def distinct_terms(terms: Sequence[str]) -> list[str]:
    """Return each query term once, in order, up to the limit."""
    return list(dict.fromkeys(terms))[:MAX_QUERY_TERMS]


def idf(passages: int, frequency: int) -> float:
    """Return the inverse document frequency as in BM25."""
    return math.log(1 + (passages - min(frequency, passages) + 0.5) / (frequency + 0.5))


def term_weight(passages: int, frequency: int) -> float:
    """Return the weight of a query term: its idf, with background passages added."""
    return idf(passages + BACKGROUND_PASSAGES, max(1, frequency))


def coverage(
    weights: Mapping[str, float], held: Collection[str], in_title: Collection[str]
) -> TermCoverage:
    """Return the shares of the total weight of the terms that a passage contains."""
    total = math.fsum(weights.values())
    return TermCoverage(
        math.fsum(weights[term] for term in held) / total,
        math.fsum(weights[term] for term in in_title) / total,
    )


class RepeatableSearch(ABC):
    """Keyword search that keeps its last results: several retrievers of one query repeat it, some with a lower limit."""

    def __init__(self) -> None:
        self._last: tuple[tuple[object, ...], int, list[ScoredChunk]] = (), 0, []

    def search(
        self, terms: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
    ) -> list[ScoredChunk]:
        used = {field: boost for field, boost in boosts.items() if boost > 0}
        if not terms or not used or limit <= 0:
            return []
        key = (*terms, *used.items(), filters)
        last_key, last_limit, results = self._last  # another thread may replace it meanwhile
        if last_key != key or last_limit < limit:
            results = self.find(terms, used, filters, limit)
            self._last = key, limit, results
        return results[:limit]

    def search_code(self, terms: Sequence[str], filters: Filters, limit: int) -> list[ScoredChunk]:
        return self.search(terms, {CODE: 1.0}, filters, limit)

    @abstractmethod
    def find(
        self, terms: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
    ) -> list[ScoredChunk]:
        """Return the results of a search for some terms with positive boosts."""
