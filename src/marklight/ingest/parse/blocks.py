"""Blocks of Markdown one after the other, by markdown-it, in memory that a long text cannot exhaust."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, blockquote, list_block, table
from markdown_it.token import Token

_Rule = Callable[[StateBlock, int, int, bool], bool]

_WINDOW_LINES = 5_000
_WINDOW_CHARS = 200_000
"""A list, quote or table longer than this goes on as a second one; tokens take 400 times their text."""
_DEEPEST = 60
"""Lists and quotes deeper than this are text; at its own bound the parser drops all that follows."""
_COLUMNS = 1_000
_MISSING_CELLS = 2_000
"""Short rows are filled up: without a bound a few bytes become 65,536 cells."""


def blocks(source: str, env: dict[str, Any]) -> Iterator[list[Token]]:
    """The tokens of each top-level block; `env` has all link definitions after the last."""
    md = _parser()
    tokens: list[Token] = []
    state = StateBlock(source, md, env, tokens)
    rules = md.block.ruler.getRules("")
    end = state.lineMax
    line = state.skipEmptyLines(0)
    while line < end:
        state.line = line
        for rule in rules:
            if rule(state, line, end, False):
                break
        if tokens:
            yield tokens
            tokens.clear()
        line = state.skipEmptyLines(max(state.line, line + 1))


@cache
def _parser() -> MarkdownIt:
    md = MarkdownIt("commonmark", {"maxNesting": 2 * _DEEPEST}).enable("table")
    after = ["paragraph", "reference"]
    md.block.ruler.at("table", _table, {"alt": after})
    md.block.ruler.at("list", _bounded(list_block), {"alt": [*after, "blockquote"]})
    md.block.ruler.at("blockquote", _bounded(blockquote), {"alt": [*after, "blockquote", "list"]})
    return md


def _bounded(rule: _Rule) -> _Rule:
    def within(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        if state.level > _DEEPEST:
            return False
        if silent or state.level:
            return rule(state, start, end, silent)
        begins = rule(state, start, end, True)
        return begins and rule(state, start, _window(state, start, end), False)

    return within


def _window(state: StateBlock, start: int, end: int) -> int:
    """A line so far below the start that what lies between is still small, but at least one."""
    last = min(end, start + _WINDOW_LINES)
    return max(
        start + 1, bisect_right(state.eMarks, state.bMarks[start] + _WINDOW_CHARS, start, last)
    )


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    begins = table(state, start, end, True)
    if silent or not begins:
        return begins
    columns = _cells(state, start)
    if columns > _COLUMNS:
        return False
    missing, last = 0, start + 2
    end = max(last, _window(state, start, end))
    while last < end and not state.isEmpty(last) and missing <= _MISSING_CELLS:
        missing += max(0, columns - _cells(state, last))
        last += 1
    return table(state, start, last, False)


def _cells(state: StateBlock, line: int) -> int:
    return state.src.count("|", state.bMarks[line], state.eMarks[line])
