"""Plain text parser: paragraphs separated by blank lines."""

from __future__ import annotations

from marklight.ingest.parse import Block, Structure
from marklight.model import Kind


def parse(lines: list[str], first: int) -> Structure:
    """Return every paragraph of the lines from `first` on as a block."""
    blocks: list[Block] = []
    blank = True
    for number in range(first, len(lines)):
        if not lines[number] or lines[number].isspace():
            blank = True
        elif blank:
            blocks.append(Block(Kind.PROSE, number, 0))
            blank = False
    return Structure(blocks=blocks)
