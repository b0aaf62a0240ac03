"""Fold long lines to the width of a terminal, so that no part of a line can pose as a line of its own.

A terminal continues a line that is too long in the first column. A document could use that: enough characters, then
`[2] policy.md:1-4 § Policy (0.99)`, and its text stands where a header of ours would. Folded here, the rest of a
quoted line is quoted again, and the rest of any other line is indented.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from unicodedata import category

from wcwidth import wcwidth

from marklight.escaping import QUOTE

INDENT = " " * 4
"""Before what is left of a line that is not quoted; no line of ours that stands alone begins so."""
LEAST_WIDTH = 20
_TAB_STOP = 8
EMOJI_FORM = "\ufe0f"
"""After a character of one column; makes it an emoji of two."""
_JOINERS = "\u200c\u200d"
_UNIT = re.compile(rf"\x1b\[\d*m|\x1b\]8;;[^\x1b]*\x1b\\|[^\n]{EMOJI_FORM}?")
"""A style or a link of ours, which takes no room, or one character. Documents have none: they are escaped."""


def folded(text: str, width: int) -> str:
    """Break lines that are longer than `width` columns, between words where there are any."""
    room = max(width, LEAST_WIDTH)
    return "\n".join(row for line in text.split("\n") for row in _rows(line, room))


def _rows(line: str, room: int) -> Iterator[str]:
    if len(line) * 2 <= room and "\t" not in line:
        yield line
        return
    again = QUOTE if line.startswith(QUOTE) else INDENT
    row, used, blank = "", 0, 0
    for unit in _UNIT.findall(line):
        taken = _columns(unit, used)
        if used + taken > room:
            # Not within the first half: a row of one short word is harder to read than a word in two rows.
            at = blank if blank > room // 2 else len(row)
            yield row[:at].rstrip(" ")
            row = again + row[at:]
            used, blank = sum(_columns(each, 0) for each in _UNIT.findall(row)), 0
        row += unit
        used += taken
        if unit == " ":
            blank = len(row)
    yield row


def _columns(unit: str, used: int) -> int:
    """Count the columns on the terminal that takes most: they differ about spacing marks and emoji selectors."""
    if unit.startswith("\x1b"):
        return 0
    if unit == "\t":
        return _TAB_STOP - used % _TAB_STOP
    return sum(wcwidth(each) if wcwidth(each) > 0 else _may_take_room(each) for each in unit)


def _may_take_room(character: str) -> bool:
    """Return true for a character without width of its own that some terminal gives a column."""
    return character == EMOJI_FORM or not (
        character in _JOINERS or category(character) in ("Mn", "Me")
    )
