"""Find the units of a document: lists, numbered procedures, tables, definition lists and code blocks, which make sense as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from marklight.lazy import lazy_pattern
from marklight.model import Unit
from marklight.text.lines import DocumentLines, Lines

LIST, PROCEDURE, TABLE, DEFINITIONS, CODE = "list", "procedure", "table", "definition list", "code"
MAX_LINES_OF_STEP = 50
"""Lines between two steps of a procedure that are not indented, such as code; bounds the time. Hand-set; not measured."""

_ITEM = lazy_pattern(r"([ \t>]*)(?:[-*+•]|(\d{1,9})[.)])(?:[ \t]|$)")
_RULE = lazy_pattern(r"[ \t]*(?:(?:[-*_][ \t]*){3,}|=+)$")
_DEFINITION = lazy_pattern(r" {0,3}:[ \t]+\S")
_ELEMENT = lazy_pattern(r"[ \t>]*<(table|ul|ol|dl)\b", re.IGNORECASE)
_ELEMENTS = {"table": TABLE, "ul": LIST, "ol": PROCEDURE, "dl": DEFINITIONS}
_TAGS = ("{%", "{{", "{#", "<!--")
"""Starts of a line that is a tag of a template or a comment, which interrupts no list."""


_MARK = lazy_pattern(r"^[ \t>]*(?:[-*+•] |\d{1,9}[.)] |`{3}|~{3}|:[ \t]|<)|\|", re.MULTILINE)


def has_marks(text: str) -> bool:
    """Return true if a text has a mark of some unit; indented code and text inside an HTML element have none."""
    return _MARK.search(text) is not None


_MAY_GO_ON = lazy_pattern(r"^[ \t>]*(?:\d{1,9}[.)] |`{3}|~{3}|<)", re.MULTILINE)
"""A step of a procedure, a fence, or an HTML element: these go on below paragraphs without a mark."""


def may_end_in_unit(text: str) -> bool:
    """Return false for a text that ends in no unit: a cheap test of its last paragraph."""
    last = text.rstrip().rpartition("\n\n")[2]
    return last[:1].isspace() or bool(_MARK.search(last) or _MAY_GO_ON.search(text))


def units(page: DocumentLines, section: Lines) -> Iterator[Unit]:
    """Yield the units of a section, in order; the section has no heading but its own."""
    fences = dict(page.fenced)
    number, last = section
    while number <= last:
        unit = _unit_at(page, number, last, fences)
        if unit is not None:
            yield unit
            number = unit.lines[1]
        number += 1


def _unit_at(page: DocumentLines, number: int, last: int, fences: Mapping[int, int]) -> Unit | None:
    """Return the unit that starts at a line; None if none does."""
    line = page.line(number)
    if number in fences:
        return Unit(CODE, (number, min(last, fences[number])))
    if item := _item(line):
        kind = PROCEDURE if item[2] else LIST
        return Unit(kind, (number, _list_end(page, number, last, fences)))
    if element := _ELEMENT.match(line):
        name = element[1].lower()
        return Unit(_ELEMENTS[name], (number, _element_end(page, number, last, name)))
    if number == last or not line or line.isspace():
        return None
    below = page.line(number + 1)
    if "|" in line and _is_table_rule(below):
        return Unit(TABLE, (number, _table_end(page, number, last)))
    if _DEFINITION.match(below):
        return Unit(DEFINITIONS, (number, _definitions_end(page, number, last)))
    return None


def _item(line: str) -> re.Match[str] | None:
    """Match the beginning of a list item, which a thematic break is not."""
    item = _ITEM.match(line)
    return item if item and not _RULE.match(line) else None


def _is_blank(line: str) -> bool:
    text = line.strip(" \t>")
    return not text or (text.startswith(_TAGS) and text.endswith(("}", "-->")))


def _is_table_rule(line: str) -> bool:
    return "-" in line and "|" in line and not line.strip(" \t>|:-")


def _table_end(page: DocumentLines, number: int, last: int) -> int:
    while number < last and "|" in page.line(number + 1):
        number += 1
    return number


def _element_end(page: DocumentLines, number: int, last: int, name: str) -> int:
    """Return the line of the closing tag; the last line of the section if there is none."""
    depth = 0
    for at in range(number, last + 1):
        line = page.line(at).lower()
        depth += line.count(f"<{name}") - line.count(f"</{name}")
        if depth <= 0:
            return at
    return page.trimmed((number, last))[1]


def _definitions_end(page: DocumentLines, number: int, last: int) -> int:
    """Return the last line of a definition list: terms, each above its definitions."""
    end, after_blank = number, False
    for at in range(number + 1, last + 1):
        line = page.line(at)
        if _is_blank(line):
            after_blank = True
            continue
        is_term = at < last and _DEFINITION.match(page.line(at + 1))
        if after_blank and line[0] not in " \t:" and not is_term:
            break
        end, after_blank = at, False
    return end


def _list_end(page: DocumentLines, number: int, last: int, fences: Mapping[int, int]) -> int:
    """Return the last line of a list.

    A procedure goes on at the next number: blocks between two steps are often not indented.
    """
    steps: dict[int, int] = {}
    end, at, after_blank, interrupted = number, number, False, False
    while at <= min(last, end + MAX_LINES_OF_STEP):
        line = page.line(at)
        block_end = min(last, fences.get(at, at))
        if item := _item(line):
            indent, step = len(item[1]), int(item[2] or -1)
            if interrupted and steps.get(indent) != step:
                break
            if item[2]:
                steps[indent] = step + 1
            end, after_blank, interrupted = block_end, False, False
        elif _is_blank(line):
            after_blank = True
        elif interrupted:
            pass
        elif line[0] in " \t" or not (after_blank or _RULE.match(line)):
            end, after_blank = block_end, False
        elif steps:
            interrupted = True
        else:
            break
        at = block_end + 1
    return end
