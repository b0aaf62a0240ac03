"""Documents and passages as rows, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from marklight.answer import Level
from marklight.engines.embedded.session import Row
from marklight.engines.embedded.sqlite_errors import damaged_rows
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

CHUNK = (
    "c.id, d.collection, d.path, c.ordinal, c.title, c.headings, c.anchor, c.first_line,"
    " c.last_line, c.kind, c.text, c.parent, c.digest, c.merged, c.code, c.languages"
)
"""The columns of a passage, as `chunk` takes them."""

_KINDS = {str(kind): kind for kind in Kind}
LINK = "l.type, l.target, l.fragment, l.text, l.line, l.keys"


Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


def stored(read: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """Decorate a function that parses a row: raise StoreError with a hint for an invalid row."""

    @wraps(read)
    def reading(*given: Arguments.args, **named: Arguments.kwargs) -> Value:
        try:
            return read(*given, **named)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise damaged_rows() from error

    return reading


packed = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""A value as JSON, short; one encoder for all, which halves the time."""


def texts(values: tuple[str, ...]) -> str:
    """Several texts as one; most passages have none of most."""
    return packed(values) if values else ""


def unpacked(stored: str) -> tuple[str, ...]:
    """The same back."""
    if len(stored) <= len("[]"):
        return ()
    if "\\" in stored:
        return tuple(json.loads(stored))
    # Nothing in it is escaped, so it can be cut where texts meet: a fifth of the time.
    return tuple(stored[2:-2].split('","'))


def record(document: Document) -> str:
    """What a document says about itself, but for its text, links and names."""
    return packed(
        {
            "title": document.title,
            "description": document.description,
            "keywords": document.keywords,
            "tags": document.tags,
            "aliases": document.aliases,
            "author": document.author,
            "category": document.category,
            "metadata": document.metadata,
            "outline": [
                (each.level, each.text, each.anchor, each.lines) for each in document.outline
            ],
            "blocks": dict(document.blocks),
            "remarks": document.remarks,
        }
    )


@stored
def document(row: Row, text: str, links: list[Row], names: list[Row]) -> Document:
    """A document from `collection, path, size, mtime_ns, ctime_ns, digest, recipe, date, record`."""
    collection, path, *file, digest, recipe, date, said_record = row
    said = json.loads(said_record)
    return Document(
        id=DocumentId(collection, path),
        title=said["title"],
        text=text,
        file=FileState(*file),
        digest=digest,
        recipe=recipe,
        description=said["description"],
        keywords=tuple(said["keywords"]),
        tags=tuple(said["tags"]),
        aliases=tuple(said["aliases"]),
        author=said["author"],
        category=said["category"],
        date=date,
        metadata=said["metadata"],
        outline=outline(said_record),
        links=tuple(link(each) for each in links),
        names=tuple(Name(key, NameStrength(strength)) for key, strength in names),
        blocks=said["blocks"],
        remarks=tuple(said["remarks"]),
    )


@stored
def outline(record: str) -> tuple[Heading, ...]:
    """Return the headings in the record of a document."""
    return tuple(
        Heading(level, heading, anchor, (lines[0], lines[1]))
        for level, heading, anchor, lines in json.loads(record)["outline"]
    )


@stored
def link(row: Row) -> Link:
    """A link from the columns of `LINK`."""
    kind, target, fragment, text, line, keys = row
    return Link(LinkType(kind), target, fragment, text, line, unpacked(keys))


@stored
def chunk(row: Sequence[Any]) -> Chunk:
    """A passage from the columns of `CHUNK`."""
    id, collection, path, ordinal, title, headings, anchor, first, last, *rest = row
    kind, text, parent, digest, merged, code, languages = rest
    # By position: a search makes some sixty of them, and names would cost a fifth more.
    return Chunk(
        id,
        DocumentId(collection, path),
        ordinal,
        title,
        unpacked(headings),
        anchor,
        (first, last),
        _KINDS[kind],
        text,
        parent,
        digest,
        unpacked(merged),
        code,
        unpacked(languages),
    )


@stored
def section(row: Row) -> Section:
    """A section from `id, headings, anchor, first_line, last_line, span_from, span_to`."""
    id, headings, anchor, first, last, start, end = row
    return Section(id, unpacked(headings), anchor, (first, last), (start, end))


def levels_row(levels: Iterable[Level]) -> str:
    """How far a passage can be widened, as one text."""
    return packed([(each.name, *each.lines, each.characters) for each in levels])


@stored
def levels(row: str) -> tuple[Level, ...]:
    """The same back."""
    return tuple(
        Level(name, (first, last), characters) for name, first, last, characters in json.loads(row)
    )
