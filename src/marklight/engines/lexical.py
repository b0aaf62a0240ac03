"""Lexical scoring shared by engines: the terms of a passage by field, idf, and term coverage."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from marklight.model import Chunk, Document
from marklight.ports import BOILERPLATE, FIELD_BOOSTS, ScoredChunk, TermCoverage
from marklight.text import (
    ENGLISH,
    MAX_QUERY_TERMS,
    STEMMERS,
    analyze,
    code_terms,
    digest,
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
"""The fields that contain the terms of `phrase_texts`."""


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
    own, *english = query_analyses(text, (language, ENGLISH))
    known = set(own)
    return own + [term for terms in english for term in terms if term not in known]


def passage_terms(shared: DocumentTerms, chunk: Chunk) -> Mapping[str, Sequence[str]]:
    """Return the terms of all fields of a passage: the document's, its own, and the whole.

    One of nothing but boilerplate has no others: its title and headings are those of better passages.
    """
    language, headings = shared.language, "\n".join((*chunk.headings, *chunk.merged))
    full = field_terms(chunk.text, language) if chunk.boilerplate else []
    if chunk.is_boilerplate:
        return {**dict.fromkeys(FIELDS, ()), BOILERPLATE: full + field_terms(headings, language)}
    own = {"title": chunk.title, "headings": headings, "body": chunk.own_text}
    terms_of = {field: field_terms(text, language) for field, text in own.items()}
    fields = {**shared.fields, **terms_of}
    whole: list[str] = []
    for field, terms in fields.items():
        times = TITLE_TIMES if field == "title" else 1
        whole += (terms + identifier_parts(own.get(field, ""))) * times
    code = code_terms(chunk.code) if chunk.code else []
    return {**fields, WHOLE: whole, CODE: code, BOILERPLATE: full}


def phrase_texts(chunk: Chunk) -> tuple[str, ...]:
    """Return the texts in which a phrase may occur; it never spans two of them."""
    return (chunk.text, chunk.title, *chunk.headings, *chunk.merged)


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


class LastSearch(NamedTuple):
    """The last search: several retrievers of one query repeat it, some with a lower limit."""

    key: tuple[object, ...]
    limit: int
    results: list[ScoredChunk]
