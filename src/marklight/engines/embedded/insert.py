"""New documents into their tables, many rows with each statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from marklight.engines.embedded.checksums import passage_checksum
from marklight.engines.embedded.records import levels_row, packed, record, texts
from marklight.engines.embedded.refill import INSERT_CALLING
from marklight.engines.embedded.session import Session
from marklight.engines.metadata_filters import clamp_times, metadata_pairs, timestamp
from marklight.engines.titles import title_entries_of
from marklight.levels import entry_levels
from marklight.model import Entry


@dataclass(frozen=True)
class Placed:
    """An entry with the rows it got: its document's, and the first of its passages'."""

    entry: Entry
    document: int
    first_chunk: int
    key: bytes
    """Key of the checksums."""

    @cached_property
    def passages(self) -> list[tuple[Any, ...]]:
        """The rows of its passages; the last column is the checksum."""
        document = self.entry.document
        rows = []
        for row, (chunk, levels) in enumerate(
            zip(self.entry.chunks, entry_levels(self.entry), strict=True), self.first_chunk
        ):
            columns = (
                chunk.ordinal,
                chunk.digest,
                str(chunk.kind),
                chunk.parent,
                chunk.anchor,
                *chunk.lines,
                chunk.title,
                texts(chunk.headings),
                texts(chunk.merged),
                texts(chunk.languages),
                chunk.code,
                chunk.text,
                levels_row(levels),
            )
            sum = passage_checksum(self.key, document.digest, document.recipe, (chunk.id, *columns))
            rows.append((row, chunk.id, self.document, *columns, sum))
        return rows


def add_documents(session: Session, placed: Sequence[Placed]) -> None:
    """Documents with all that hangs on them but passages and links."""
    documents = [(each.document, each.entry.document) for each in placed]
    session.many(
        "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, 0)",
        (
            (
                row,
                *each.id,
                *clamp_times(each.file),
                each.digest,
                each.recipe,
                each.date,
                timestamp(each.date, each.file.mtime_ns),
            )
            for row, each in documents
        ),
    )
    session.many(
        "INSERT INTO contents VALUES (?, ?, ?)",
        ((row, record(each), each.text) for row, each in documents),
    )
    session.many(
        "INSERT INTO facts VALUES (?, ?, ?)",
        sorted((*fact, row) for row, each in documents for fact in metadata_pairs(each)),
    )
    session.many(
        "INSERT INTO names (key, strength, document) VALUES (?, ?, ?)",
        ((name.key, name.strength, row) for row, each in documents for name in each.names),
    )
    session.many(
        "INSERT INTO sections VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (part.id, each.document, texts(part.headings), part.anchor, *part.lines, *part.span)
            for each in placed
            for part in each.entry.sections
        ),
    )
    session.many(
        INSERT_CALLING,
        ((each.document, *calling) for each in placed for calling in title_entries_of(each.entry)),
    )


def add_chunks(session: Session, placed: Sequence[Placed]) -> None:
    """Passages under the rows that were set aside for them."""
    session.many(
        "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (passage for each in placed for passage in each.passages),
    )
    session.many(
        "INSERT OR IGNORE INTO languages VALUES (?, ?)",
        (
            (language.lower(), row)
            for each in placed
            for row, chunk in enumerate(each.entry.chunks, each.first_chunk)
            for language in chunk.languages
        ),
    )


def add_links(session: Session, placed: Sequence[Placed]) -> None:
    """Links, with every name that they may resolve to."""
    last = session.value("SELECT max(row) FROM links") or 0
    links = [
        (row, each.document, link)
        for row, (each, link) in enumerate(
            ((each, link) for each in placed for link in each.entry.document.links), last + 1
        )
    ]
    session.many(
        "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                row,
                document,
                each.type,
                each.target,
                each.fragment,
                each.text,
                each.line,
                packed(each.keys),
            )
            for row, document, each in links
        ),
    )
    session.many(
        "INSERT OR IGNORE INTO link_keys VALUES (?, ?)",
        ((key, row) for row, _, each in links for key in each.keys),
    )
