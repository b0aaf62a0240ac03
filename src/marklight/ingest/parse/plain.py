"""Plain text parser: paragraphs separated by blank lines."""

from __future__ import annotations

from marklight.ingest.parse import Block, ParsedText
from marklight.model import Kind


def parse(parsed: ParsedText) -> None:
    """Add every paragraph as a block."""
    blank = True
    for number, line in enumerate(parsed.lines[parsed.body :], parsed.body):
        if not line or line.isspace():
            blank = True
        elif blank:
            parsed.blocks.append(Block(Kind.PROSE, number, 0))
            blank = False
