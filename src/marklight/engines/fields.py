"""The words of a passage, field by field, as every engine ranks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from marklight.model import Chunk, Document
from marklight.ports import FIELD_BOOSTS
from marklight.text import digest, identifiers, words

PROSE = tuple(FIELD_BOOSTS)
CODE = "code"


SHARED = ("keywords", "description", "tags", "aliases", "author")
"""The fields that all passages of a document share."""


def document_words(document: Document) -> Mapping[str, list[str]]:
    """The words of these fields; made once for all passages."""
    return shared_words({field: getattr(document, field) for field in SHARED})


def shared_words(said: Mapping[str, str | Sequence[str]]) -> Mapping[str, list[str]]:
    """The same from what a document said, in whatever else it is kept."""
    texts = {field: said[field] for field in SHARED}
    return {
        field: words(text if isinstance(text, str) else "\n".join(text))
        for field, text in texts.items()
    }


def chunk_words(chunk: Chunk) -> Mapping[str, list[str]]:
    """What a passage adds to them."""
    return {
        "title": words(chunk.title),
        "headings": words("\n".join((*chunk.headings, *chunk.merged))),
        "body": words(chunk.text),
        CODE: identifiers(chunk.code) if chunk.code else [],
    }


def texts(chunk: Chunk) -> tuple[str, ...]:
    """Where a phrase may stand; it reaches from none of them into another."""
    return (chunk.text, chunk.title, *chunk.headings, *chunk.merged)


WORDED = ("body", "title", "headings")
"""The fields that hold the words of these texts."""

_SAMPLE = (
    "The Café's C++ and .NET parsers, 日本語 running_fast getUserById v1.27 naïve 漢 don't _so_"
)


@cache
def recipe() -> str:
    """Changes when words are made in another way, and with it every index of words."""
    return digest(" ".join(words(_SAMPLE)), " ".join(identifiers(_SAMPLE)), ",".join(PROSE), size=6)
