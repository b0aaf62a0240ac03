"""Return whole sections in place of the passages found in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from marklight.answer import Hit, Hits, Query, best_first
from marklight.model import Chunk
from marklight.ports import Tools
from marklight.text import digest, passage


@dataclass(frozen=True, slots=True)
class Parents:
    """Each section once, with the score of its best passage; only where the asker wants sections."""

    invents: ClassVar[bool] = True
    """What it returns is called by the section's id."""

    def __call__(self, query: Query, hits: Hits, tools: Tools) -> Hits:
        if not query.parents:
            return hits
        found: dict[str, Hit] = {}
        for hit in hits:
            section = whole(hit.chunk, tools)
            found.setdefault(section.id, replace(hit, chunk=section))
        return best_first(found.values())


def whole(chunk: Chunk, tools: Tools) -> Chunk:
    """The section of this passage in the shape of a passage; itself where the index has no section."""
    known = tools.reader.section(chunk.parent)
    text = tools.reader.text_of(chunk.document)
    if known is None or text is None:
        return chunk
    section = known[1]
    start, end = section.span
    shown = text[0][start:end]
    return replace(
        chunk,
        id=section.id,
        headings=section.headings,
        anchor=section.anchor,
        lines=section.lines,
        text=shown,
        digest=digest(passage(chunk.title, section.headings, shown)),
        merged=(),
    )
