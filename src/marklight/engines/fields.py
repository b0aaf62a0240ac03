"""The words of a passage, field by field, as every engine ranks them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from marklight.model import Chunk, Document
from marklight.ports import FIELD_BOOSTS
from marklight.text import digest, identifiers, words

PROSE = tuple(FIELD_BOOSTS)
CODE = "code"


def document_words(document: Document) -> Mapping[str, list[str]]:
    """What all passages of a document share; made once for all of them."""
    return {
        "keywords": words("\n".join(document.keywords)),
        "description": words(document.description),
        "tags": words("\n".join(document.tags)),
        "aliases": words("\n".join(document.aliases)),
        "author": words(document.author),
    }


def chunk_words(chunk: Chunk) -> Mapping[str, list[str]]:
    """What a passage adds to them."""
    return {
        "title": words(chunk.title),
        "headings": words("\n".join((*chunk.headings, *chunk.merged))),
        "body": words(chunk.text),
        CODE: identifiers(chunk.code) if chunk.code else [],
    }


_SAMPLE = "The Café's C++ and .NET parsers, 日本語 running_fast getUserById v1.27 naïve 漢 don't"


@cache
def recipe() -> str:
    """Changes when words are made in another way, and with it every index of words."""
    return digest(" ".join(words(_SAMPLE)), " ".join(identifiers(_SAMPLE)), ",".join(PROSE), size=6)
