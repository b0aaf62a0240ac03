"""Encode documents, passages and links as rows of the tables, and decode them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from marklight.answer import Level
from marklight.errors import StoreError
from marklight.model import (
    Chunk,
    Document,
    DocumentId,
    FileState,
    Heading,
    Kind,
    Link,
    LinkType,
    Name,
    NameStrength,
    Section,
)

if TYPE_CHECKING:
    from marklight.engines.relational import Row

CHUNK = (
    "c.id, d.collection, d.path, c.ordinal, c.title, c.headings, c.anchor, c.first_line,"
    " c.last_line, c.kind, PASSAGE_TEXT, c.parent, c.digest, c.merged, c.code, c.languages,"
    " c.boilerplate"
)
"""The columns of a passage, for `chunk`."""

_KINDS = {str(kind): kind for kind in Kind}
_RECORD = "title description keywords tags aliases author category language metadata".split()
"""Fields of a document that its record contains as they are."""
LINK = "l.type, l.target, l.fragment, l.text, l.line, l.keys"
"""The columns of a link, for `link`."""


Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


def damaged_rows() -> StoreError:
    """Return the error for rows of the tables that cannot be parsed."""
    return StoreError(
        "Part of the index is damaged",
        "Run `marklight doctor`, which reads the affected documents again",
    )


def raises_damaged(decode: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """Decorate a function that decodes a row: raise StoreError with a hint for an invalid row."""

    @wraps(decode)
    def wrapper(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        try:
            return decode(*args, **kwargs)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise damaged_rows() from error

    return wrapper


encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Encode a value as compact JSON; one encoder for all calls, which halves the time."""


def encode_texts(values: tuple[str, ...]) -> str:
    """Encode several texts as one; no text as the empty one, which is the most frequent case."""
    return encode_json(values) if values else ""


def decode_texts(stored: str) -> tuple[str, ...]:
    """Decode what `encode_texts` returned."""
    if len(stored) <= len("[]"):
        return ()
    if "\\" in stored:
        return tuple(json.loads(stored))
    # Nothing in it is escaped, so it can be split between the texts: a fifth of the time.
    return tuple(stored[2:-2].split('","'))


def encode_spans(spans: Iterable[tuple[int, int]]) -> str:
    """Encode parts of a text as one text; no part as the empty one."""
    return " ".join(f"{start}-{end}" for start, end in spans)


def decode_spans(stored: str) -> tuple[tuple[int, int], ...]:
    """Decode what `encode_spans` returned."""
    pairs = (part.partition("-") for part in stored.split())
    return tuple((int(start), int(end)) for start, _, end in pairs)


def encode_record(document: Document) -> str:
    """Encode the metadata of a document: all but its text, links and names."""
    values = {name: getattr(document, name) for name in _RECORD}
    outline = [
        (heading.level, heading.text, heading.anchor, heading.lines) for heading in document.outline
    ]
    return encode_json({**values, "outline": outline, "blocks": dict(document.blocks)})


@raises_damaged
def document(row: Row, text: str, links: list[Row], names: list[Row]) -> Document:
    """Decode a document from `collection, path, size, mtime_ns, ctime_ns, digest, recipe, date, record, remarks`."""
    collection, path, *file, digest, recipe, date, record, remarks = row
    metadata = json.loads(record)
    return Document(
        id=DocumentId(collection, path),
        title=metadata["title"],
        text=text,
        file=FileState(*file),
        digest=digest,
        recipe=recipe,
        description=metadata["description"],
        keywords=tuple(metadata["keywords"]),
        tags=tuple(metadata["tags"]),
        aliases=tuple(metadata["aliases"]),
        author=metadata["author"],
        category=metadata["category"],
        language=metadata["language"],
        date=date,
        metadata=metadata["metadata"],
        outline=outline(record),
        links=tuple(link(columns) for columns in links),
        names=tuple(Name(key, NameStrength(strength)) for key, strength in names),
        blocks=metadata["blocks"],
        remarks=decode_texts(remarks),
    )


@raises_damaged
def outline(record: str) -> tuple[Heading, ...]:
    """Return the headings in the record of a document."""
    return tuple(
        Heading(level, heading, anchor, (lines[0], lines[1]))
        for level, heading, anchor, lines in json.loads(record)["outline"]
    )


@raises_damaged
def link(row: Row) -> Link:
    """Decode a link from the columns of `LINK`."""
    kind, target, fragment, text, line, keys = row
    return Link(LinkType(kind), target, fragment, text, line, decode_texts(keys))


@raises_damaged
def chunk(row: Sequence[Any]) -> Chunk:
    """Decode a passage from the columns of `CHUNK`."""
    id, collection, path, ordinal, title, headings, anchor, first, last, *rest = row
    kind, text, parent, digest, merged, code, languages, boilerplate = rest
    # By position: a search decodes some sixty of them, and keywords would cost a fifth more.
    return Chunk(
        id,
        DocumentId(collection, path),
        ordinal,
        title,
        decode_texts(headings),
        anchor,
        (first, last),
        _KINDS[kind],
        text,
        parent,
        digest,
        decode_texts(merged),
        code,
        decode_texts(languages),
        decode_spans(boilerplate) if boilerplate else (),
    )


@raises_damaged
def section(row: Row) -> Section:
    """Decode a section from `id, headings, anchor, first_line, last_line, span_from, span_to`."""
    id, headings, anchor, first, last, start, end = row
    return Section(id, decode_texts(headings), anchor, (first, last), (start, end))


@raises_damaged
def decode_levels(row: str) -> tuple[Level, ...]:
    """Decode the context levels that `encoded_levels` encoded."""
    from marklight.levels import LEVELS

    return tuple(
        Level(LEVELS[name], (first, last), characters)
        for name, first, last, characters in (
            map(int, part.split(",")) for part in row.split() if ";" not in part
        )
    )


@raises_damaged
def ranking(stored: str) -> tuple[int, str]:
    """Decode prose length and text key, which `encode_levels` encoded after the levels."""
    length, key = stored.rpartition(" ")[2].split(";")
    return int(length), key
