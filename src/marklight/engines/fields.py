"""The words of a passage, field by field, as every engine ranks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from marklight.model import Chunk, Document
from marklight.ports import FIELD_BOOSTS
from marklight.text import analyze, code_terms, digest, identifier_parts

PROSE = tuple(FIELD_BOOSTS)
CODE = "code"
WHOLE = "whole"
"""The field that holds what all others but code say, as one text."""
TITLE_TIMES = 3
"""How often the title stands in it: so BM25F weighs a field (Robertson, Zaragoza and Taylor, CIKM 2004).

By nDCG@10, mean of eight development sets: .670 if it stands there once, .677 twice, .681 three
times. Others stand there once: with headings, keywords, description and tags twice it is .002 less.
"""


SHARED = ("keywords", "description", "tags", "aliases", "author")
"""The fields that all passages of a document share."""


def document_words(document: Document) -> Mapping[str, list[str]]:
    """The words of these fields; made once for all passages."""
    return shared_words({field: getattr(document, field) for field in SHARED})


def shared_words(said: Mapping[str, str | Sequence[str]]) -> Mapping[str, list[str]]:
    """The same from what a document said, in whatever else it is kept."""
    texts = {field: said[field] for field in SHARED}
    return {
        field: analyze(text if isinstance(text, str) else "\n".join(text))
        for field, text in texts.items()
    }


def passage_words(shared: Mapping[str, list[str]], chunk: Chunk) -> Mapping[str, list[str]]:
    """All fields of a passage: those of its document, its own, and the whole of them."""
    headings = "\n".join((*chunk.headings, *chunk.merged))
    said = {"title": chunk.title, "headings": headings, "body": chunk.text}
    fields = {**shared, **{field: analyze(text) for field, text in said.items()}}
    whole: list[str] = []
    for field, found in fields.items():
        times = TITLE_TIMES if field == "title" else 1
        whole += (found + identifier_parts(said.get(field, ""))) * times
    return {**fields, WHOLE: whole, CODE: code_terms(chunk.code) if chunk.code else []}


def texts(chunk: Chunk) -> tuple[str, ...]:
    """Where a phrase may stand; it reaches from none of them into another."""
    return (chunk.text, chunk.title, *chunk.headings, *chunk.merged)


WORDED = ("body", "title", "headings")
"""The fields that hold the words of these texts."""

_SAMPLE = "The Café's C++ and .NET parsers, 日本語 running_fast getUserById v1.27 naïve 漢 don't _so_ bought colours what's Ida’s"


@cache
def recipe() -> str:
    """Changes when words are made in another way, and with it every index of words."""
    made = (analyze(_SAMPLE), identifier_parts(_SAMPLE), code_terms(_SAMPLE), PROSE)
    return digest(*(" ".join(each) for each in made), str(TITLE_TIMES), size=6)
