"""Markdown parser: CommonMark with tables by markdown-it, plus wikilinks, tags and Hugo shortcodes.

Blocks are parsed one after the other, so that memory stays bounded whatever the length of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import mdTrim
from markdown_it.rules_block import StateBlock, blockquote, fence, heading, list_block, table
from markdown_it.token import Token

from marklight.ingest.parse import Block, Code, ParsedText, Table
from marklight.ingest.parse.inline import HTML, MAY_MENTION, Text, add_mentions
from marklight.model import Kind

_LEAVES = {
    "paragraph_open": Kind.PROSE,
    "heading_open": Kind.PROSE,
    "html_block": Kind.PROSE,
    "hr": Kind.PROSE,
    "fence": Kind.CODE,
    "code_block": Kind.CODE,
    "table_open": Kind.TABLE,
}
_CONTAINERS = frozenset(
    ("bullet_list_open", "ordered_list_open", "list_item_open", "blockquote_open")
)
_LISTS = frozenset(("bullet_list_open", "ordered_list_open"))
_LIST_ENDS = frozenset(("bullet_list_close", "ordered_list_close"))
_MAX_HEADINGS = 20_000
"""A section takes far more memory than its text; the specification of HTML has 2,000 of them."""
_LANGUAGE = re.compile(r"[\s{.]*([\w+#/-][\w+#./-]*)(?!\S*=)")
"""The first word after a fence, also as `{.python}`; `title=…` is no language."""

_WINDOW_LINES = 5_000
_WINDOW_CHARS = 200_000
"""A longer list, quote or table is parsed as several: tokens take 400 times the memory of their text."""
MAX_DEPTH = 60
"""Deeper lists and quotes are text; at its own limit the parser drops everything that follows."""
_MAX_COLUMNS = 1_000
_MAX_MISSING_CELLS = 2_000
"""Short table rows are padded: without a limit a few bytes become 65,536 cells."""

_MARK = re.compile(r"[#^{<]")
"""A paragraph without it and without a link has no mentions; most are found to have none in a tenth of the time."""
_BEGINS_BLOCK = frozenset("`~>*-_+<#|:=0123456789")
"""Characters that begin a line which may end a paragraph; others never do."""
_BEGINS_TEXT = re.compile(r"`{1,2}(?!`)|(\*\*?|__?)[^\s*_]|\d+[^\d.)]")
"""Code, emphasis or a number at the beginning of a line of a paragraph."""
_BEGINS_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])[ \t]")
_DEFINES_LINK = re.compile(r"\[(?:[^\[\]\\]|\\.)*+\]:", re.DOTALL)
_BEGINS_DELIMITER_ROW = frozenset("|-:")

_Rule = Callable[[StateBlock, int, int, bool], bool]


def parse(parsed: ParsedText) -> None:
    """Add the structure of a text."""
    env: dict[str, Any] = {}
    collector = _Collector(parsed)
    for tokens in blocks(parsed.text[parsed.body_start :], env, paragraph=collector.add_paragraph):
        collector.add(tokens)
    add_mentions(collector.texts, env, parsed)
    if collector.headings == _MAX_HEADINGS:
        parsed.remarks.append(f"only the first {_MAX_HEADINGS:,} headings are used")


class _Collector:
    """Collects the blocks of a document, and the texts to parse once all link definitions are known."""

    def __init__(self, parsed: ParsedText) -> None:
        self.parsed = parsed
        self.texts: list[Text] = []
        self.first = parsed.body
        self.headings = 0

    def add(self, tokens: list[Token]) -> None:
        """Add one top-level block."""
        opened: Token | None = None  # the outermost container that starts with the next leaf
        lists = 0
        heading = 0
        for token in tokens:
            kind = token.type
            if kind == "inline":
                if heading or _may_mention(token.content):
                    self._add_text(token, heading)
                heading = 0
            elif kind in _LEAVES:
                assert token.map is not None
                line, depth = token.map[0], token.level
                if opened is not None:
                    if opened.level <= depth and opened.map is not None:
                        line, depth = opened.map[0], opened.level
                    opened = None
                leaf = _LEAVES[kind]
                if leaf is Kind.CODE:
                    self._add_code(token)
                elif leaf is Kind.TABLE:
                    start, end = token.map
                    self.parsed.tables.append(Table(start + self.first, end + self.first))
                elif kind == "heading_open" and token.level == 0 and self.headings < _MAX_HEADINGS:
                    self.headings += 1
                    heading = int(token.tag[1])
                    continue
                elif leaf is Kind.PROSE:
                    leaf = Kind.LIST if lists else Kind.PROSE
                    if kind == "html_block" and "<a" in token.content:
                        self._add_text(token, HTML)
                self.parsed.blocks.append(Block(leaf, line + self.first, depth))
            elif kind in _CONTAINERS:
                lists += kind in _LISTS
                if opened is None or opened.level > token.level:
                    opened = token
            elif kind in _LIST_ENDS:
                lists -= 1

    def add_paragraph(self, content: str, start: int, end: int) -> None:
        """Add a top-level paragraph."""
        self.parsed.blocks.append(Block(Kind.PROSE, start + self.first, 0))
        if _may_mention(content):
            self.texts.append(Text(mdTrim(content), start + self.first, end + self.first, 0))

    def _add_text(self, token: Token, level: int) -> None:
        assert token.map is not None
        start, end = token.map
        self.texts.append(Text(token.content, start + self.first, end + self.first, level))

    def _add_code(self, token: Token) -> None:
        assert token.map is not None
        fenced = token.type == "fence"
        start = token.map[0] + self.first + fenced
        lines = token.content.removesuffix("\n").split("\n")
        self.parsed.code.append(Code(start, code_language(token), lines))


def _may_mention(content: str) -> bool:
    return "[" in content or bool(_MARK.search(content) and MAY_MENTION.search(content))


def code_language(token: Token) -> str:
    """Return the language of a code block; empty if it names none."""
    match = _LANGUAGE.match(token.info) if token.type == "fence" else None
    return match[1].lower() if match else ""


def blocks(
    source: str,
    env: dict[str, Any],
    md: MarkdownIt | None = None,
    paragraph: Callable[[str, int, int], None] | None = None,
) -> Iterator[list[Token]]:
    """Return the tokens of each top-level block; after the last one `env` has all link definitions.

    `paragraph` gets the text and the lines of most paragraphs in place of tokens, which take most of the time.
    """
    md = md or _parser()
    tokens: list[Token] = []
    state = StateBlock(source, md, env, tokens)
    rules = md.block.ruler.getRules("")
    end = state.lineMax
    line = state.skipEmptyLines(0)
    while line < end:
        state.line = line
        # Rules may leave another one behind, and a list that starts with 2 cannot interrupt a paragraph.
        state.parentType = "root"
        if paragraph and (below := _plain_paragraph_end(state, line, end)):
            paragraph(source[state.bMarks[line] : state.eMarks[below - 1]], line, below)
            line = state.skipEmptyLines(below)
            continue
        for rule in rules:
            if rule(state, line, end, False):
                break
        if tokens:
            yield tokens
            tokens.clear()
        line = state.skipEmptyLines(max(state.line, line + 1))


@cache
def _parser() -> MarkdownIt:
    return make_parser()


def make_parser() -> MarkdownIt:
    """Return the block rules; a caller may add others."""
    md = MarkdownIt("commonmark", {"maxNesting": 2 * MAX_DEPTH}).enable("table")
    after = ["paragraph", "reference"]
    md.block.ruler.at("table", _bounded_table, {"alt": after})
    md.block.ruler.before("table", "common", _common)
    md.block.ruler.at("list", _bounded(list_block), {"alt": [*after, "blockquote"]})
    md.block.ruler.at("blockquote", _bounded(blockquote), {"alt": [*after, "blockquote", "list"]})
    return md


def _common(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse the most frequent blocks without trying all rules: headings, fenced code, paragraphs of plain lines.

    Returns false wherever another rule might apply, so the outcome is the same.
    """
    first = state.bMarks[start] + state.tShift[start]
    if not 0 <= state.sCount[start] - state.blkIndent <= 3:
        return False
    character = state.src[first]
    if character == "#" or state.src.startswith(("```", "~~~"), first):
        below = state.bMarks[start + 1] + state.tShift[start + 1]
        if state.src[below : below + 1] in _BEGINS_DELIMITER_ROW:
            return False
        return (heading if character == "#" else fence)(state, start, end, silent)
    if not (below := _plain_paragraph_end(state, start, end)):
        return False
    state.line = below
    state.push("paragraph_open", "p", 1).map = [start, below]
    inline = state.push("inline", "", 0)
    inline.content = mdTrim(state.getLines(start, below, state.blkIndent, False))
    inline.map, inline.children = [start, below], []
    state.push("paragraph_close", "p", -1)
    return True


def _plain_paragraph_end(state: StateBlock, start: int, end: int) -> int:
    """Return the line below a paragraph none of whose lines may begin or end another block; else 0."""
    source, line, indent = state.src, start, state.blkIndent
    first = state.bMarks[start] + state.tShift[start]
    if source[first] == "[" and _DEFINES_LINK.match(source, first):
        return 0
    while line < state.lineMax:
        offset = state.bMarks[line] + state.tShift[line]
        if offset >= state.eMarks[line]:
            break
        if state.sCount[line] < indent and _begins_next_item(state, line, offset):
            break
        if line >= end or not 0 <= state.sCount[line] - indent <= 3:
            return 0
        if source[offset] in _BEGINS_BLOCK and not _BEGINS_TEXT.match(source, offset):
            return 0
        line += 1
    return line


def _begins_next_item(state: StateBlock, line: int, offset: int) -> bool:
    """Return true if a line begins an item that is not part of the current one."""
    return (
        state.listIndent >= 0
        and 0 <= state.sCount[line] < state.listIndent + 4
        and state.level <= MAX_DEPTH
        and bool(_BEGINS_ITEM.match(state.src, offset))
    )


def _bounded(rule: _Rule) -> _Rule:
    """Return a block rule with limits on nesting and length."""

    def within(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        if state.level > MAX_DEPTH:
            return False
        if silent or state.level:
            return rule(state, start, end, silent)
        begins = rule(state, start, end, True)
        return begins and rule(state, start, _window_end(state, start, end), False)

    return within


def _window_end(state: StateBlock, start: int, end: int) -> int:
    """Return the last line of a window of limited size, at least one line below the start."""
    last = min(end, start + _WINDOW_LINES)
    return max(
        start + 1, bisect_right(state.eMarks, state.bMarks[start] + _WINDOW_CHARS, start, last)
    )


def _bounded_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    begins = table(state, start, end, True)
    if silent or not begins:
        return begins
    columns = _cells(state, start)
    if columns > _MAX_COLUMNS:
        return False
    missing, last = 0, start + 2
    end = max(last, _window_end(state, start, end))
    while last < end and not state.isEmpty(last) and missing <= _MAX_MISSING_CELLS:
        missing += max(0, columns - _cells(state, last))
        last += 1
    return table(state, start, last, False)


def _cells(state: StateBlock, line: int) -> int:
    return state.src.count("|", state.bMarks[line], state.eMarks[line])
