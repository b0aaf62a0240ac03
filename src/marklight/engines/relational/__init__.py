"""SQL that SQLite and PostgreSQL share: rules, tables, and rows as documents, passages and links.

The package writes each statement once. A session turns it into the SQL of its database by a few replacements. Rules:

- Parameters are `?`, unnumbered. A parameter is a text, an integer, a float, bytes, None, or a `list`, which is one parameter.
- Lists are read by table functions, always with an alias: `texts(?) t` and `integers(?) t` with the columns `key` and `value`,
  `document_ids(?) t` with `key`, `collection` and `path`, and `counts(?) t` with `value` and `count`. `key` is the position, from 0.
- `CROSS JOIN b ON …` fixes the join order in SQLite: the table on the left is the outer loop. It means `JOIN b ON …`.
- `CROSS JOIN LATERAL [SELECT … AS value …] n ON true` joins each row with the integers of a query that refers to it, mostly with a LIMIT.
- `any_glob(path, ?)` is true if one of a list of globs matches, as `metadata_filters.matches_any_glob` defines it.
- `unpacked(column)` is the text of a document or its record, and `PASSAGE_TEXT` that of a passage `c`: SQLite compresses them.
- `instr(text, part) > 0` is true if a text contains another.
- Upserts are `ON CONFLICT (…) DO UPDATE` or `DO NOTHING`; existing columns are qualified by the table, new ones by `excluded`.
- Texts compare by code point: `COLLATE "C"` in PostgreSQL, the default in SQLite.
- A subquery in FROM has an alias, and no query depends on the type of a boolean or on `rowid`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

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

Row = tuple[Any, ...]


class SqlSession(Protocol):
    """Statements within one transaction of one connection, or of several that share a snapshot.

    Errors of the database are raised as `StoreError`. Methods may be called from several threads.
    """

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of a query as tuples."""

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        """Return the first row of a query; None where there is none."""

    def value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Return the first column of the first row; None where there is none."""

    def each(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        """Yield the rows of a query without holding all of them in memory; other statements may run meanwhile."""

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Execute a statement; return the number of rows that it changed."""

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement once for each row of values, in order."""

    def insert(self, table: str, columns: str, rows: Iterable[Sequence[Any]]) -> None:
        """Insert many rows that conflict with none; `columns` is a list separated by commas.

        A missing column `row` is numbered in ascending order of the rows.
        """

    def next_rows(self, table: str, count: int) -> Sequence[int]:
        """Reserve row numbers for a table, ascending, above all that it ever had in this transaction's view.

        They may have gaps where several transactions write at once, and are never given twice.
        """


SHARED_TABLES = """
CREATE TABLE manifest (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- Columns that every run reads, without the long texts.
CREATE TABLE documents (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    collection TEXT NOT NULL, path TEXT NOT NULL,
    size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL,
    digest TEXT NOT NULL, recipe TEXT NOT NULL,
    date TEXT, timestamp TEXT NOT NULL,  -- the own date as written, and that date or the file time in UTC
    community INTEGER,
    checksum INTEGER NOT NULL DEFAULT 0, -- of everything stored about the document but its passages, in SQLite
    UNIQUE (path, collection)            -- in this order a path alone is found by it too
);
CREATE TABLE contents (
    document INTEGER PRIMARY KEY REFERENCES documents ON DELETE CASCADE,
    record TEXT NOT NULL, remarks TEXT NOT NULL, text TEXT NOT NULL
);
CREATE INDEX contents_with_remarks ON contents (document) WHERE (remarks <> '');
-- Frontmatter, tags and other metadata, as pairs of key and value in lower case.
CREATE TABLE metadata (
    key TEXT NOT NULL, value TEXT NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    PRIMARY KEY (key, value, document)
) WITHOUT ROWID;
CREATE INDEX metadata_of ON metadata (document);

CREATE TABLE chunks (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    ordinal INTEGER NOT NULL, digest TEXT NOT NULL,
    kind TEXT NOT NULL, parent TEXT NOT NULL, anchor TEXT NOT NULL,
    first_line INTEGER NOT NULL, last_line INTEGER NOT NULL,
    title TEXT NOT NULL, headings TEXT NOT NULL, merged TEXT NOT NULL, languages TEXT NOT NULL,
    code TEXT NOT NULL, text TEXT NOT NULL,
    checksum INTEGER NOT NULL,           -- of this row, in SQLite
    boilerplate TEXT NOT NULL,           -- parts of the text that many documents share
    levels TEXT NOT NULL                 -- context levels of the passage
);
-- Covering indexes for vector search, filtered or not, so that it never reads the long rows.
CREATE INDEX chunks_of ON chunks (document, ordinal, digest, id);
CREATE INDEX chunks_by_digest ON chunks (digest, id);
CREATE TABLE languages (
    language TEXT NOT NULL,
    chunk INTEGER NOT NULL REFERENCES chunks ON DELETE CASCADE,
    PRIMARY KEY (language, chunk)
) WITHOUT ROWID;
CREATE INDEX languages_of ON languages (chunk);
CREATE TABLE sections (
    row INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    headings TEXT NOT NULL, anchor TEXT NOT NULL,
    first_line INTEGER NOT NULL, last_line INTEGER NOT NULL,
    span_from INTEGER NOT NULL, span_to INTEGER NOT NULL
);
CREATE INDEX sections_by_id ON sections (id);
CREATE INDEX sections_of ON sections (document);
-- Blocks of text of documents, by digest. The origin is a digest of title and file name, which copies of a document share.
CREATE TABLE blocks (
    digest INTEGER NOT NULL, origin INTEGER NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    boilerplate INTEGER NOT NULL,        -- 1 if the document was chunked with the block as boilerplate
    PRIMARY KEY (digest, origin, document)
) WITHOUT ROWID;
CREATE INDEX blocks_of ON blocks (document);
CREATE INDEX shared_blocks ON blocks (digest) WHERE (boilerplate = 1);

CREATE TABLE links (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    type TEXT NOT NULL, target TEXT NOT NULL, fragment TEXT NOT NULL, text TEXT NOT NULL,
    line INTEGER NOT NULL, keys TEXT NOT NULL
);
CREATE INDEX links_of ON links (document);
CREATE TABLE link_keys (
    key TEXT NOT NULL,
    link INTEGER NOT NULL REFERENCES links ON DELETE CASCADE,
    PRIMARY KEY (key, link)
) WITHOUT ROWID;
CREATE INDEX link_keys_of ON link_keys (link);
CREATE TABLE names (
    row INTEGER PRIMARY KEY,
    key TEXT NOT NULL, strength TEXT NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE
);
CREATE INDEX names_by_key ON names (key, document, strength);
CREATE INDEX names_of ON names (document);
-- Rows of the source and the target document of resolved links. Without foreign keys: in PostgreSQL they would lock documents.
CREATE TABLE edges (
    source INTEGER NOT NULL, target INTEGER NOT NULL,
    PRIMARY KEY (source, target)
) WITHOUT ROWID;
CREATE INDEX edges_to ON edges (target, source);
-- Titles, aliases and headings, folded, with the ordinals of the passages below them.
CREATE TABLE titles (
    title TEXT NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    first INTEGER NOT NULL, last INTEGER NOT NULL, score REAL NOT NULL,
    PRIMARY KEY (title, document, first, last, score)
) WITHOUT ROWID;
CREATE INDEX titles_of ON titles (document);
"""
"""Tables of both databases, in the SQL of SQLite."""

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
