"""Markdown: CommonMark with tables by markdown-it, and what notes and sites add to it."""

from __future__ import annotations

import re
from typing import Any

from markdown_it.token import Token

from marklight.ingest.parse import Block, Code, Structure
from marklight.ingest.parse.blocks import blocks
from marklight.ingest.parse.inline import WORTH
from marklight.ingest.parse.mentions import HTML, Text, mentions
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
_MOST_HEADINGS = 20_000
"""Sections take far more memory than their text; the specification of HTML has 2,000 of them."""
_LANGUAGE = re.compile(r"[\s{.]*([\w+#/-][\w+#./-]*)(?!\S*=)")
"""The first word after a fence, also as `{.python}`; `title=…` is none."""


def parse(lines: list[str], first: int) -> Structure:
    """The structure of the lines from `first` on."""
    env: dict[str, Any] = {}
    walk = _Walk(first)
    for tokens in blocks("\n".join(lines[first:]) if first else "\n".join(lines), env):
        walk.over(tokens)
    mentions(walk.texts, env, walk.found)
    if walk.headings == _MOST_HEADINGS:
        walk.found.remarks.append(f"only the first {_MOST_HEADINGS:,} headings were read as such")
    return walk.found


class _Walk:
    """Notes the blocks of a document, and the texts that are read when all links are defined."""

    def __init__(self, first: int) -> None:
        self.found = Structure()
        self.texts: list[Text] = []
        self.first = first
        self.headings = 0

    def over(self, tokens: list[Token]) -> None:
        """One top-level block."""
        found, first = self.found, self.first
        opened: Token | None = None  # the outermost container that the next leaf begins
        lists = 0
        heading = 0
        for token in tokens:
            kind = token.type
            if kind == "inline":
                if heading or WORTH.search(token.content) or "[" in token.content:
                    self._text(token, heading)
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
                    self._code(token)
                elif kind == "heading_open" and token.level == 0 and self.headings < _MOST_HEADINGS:
                    self.headings += 1
                    heading = int(token.tag[1])
                    continue
                elif leaf is Kind.PROSE:
                    leaf = Kind.LIST if lists else Kind.PROSE
                    if kind == "html_block" and "<a" in token.content:
                        self._text(token, HTML)
                found.blocks.append(Block(leaf, line + first, depth))
            elif kind in _CONTAINERS:
                lists += kind in _LISTS
                if opened is None or opened.level > token.level:
                    opened = token
            elif kind in _LIST_ENDS:
                lists -= 1

    def _text(self, token: Token, level: int) -> None:
        assert token.map is not None
        start, end = token.map
        self.texts.append(Text(token.content, start + self.first, end + self.first, level))

    def _code(self, token: Token) -> None:
        assert token.map is not None
        fenced = token.type == "fence"
        found = _LANGUAGE.match(token.info) if fenced else None
        language = found[1].lower() if found else ""
        start = token.map[0] + self.first + fenced
        lines = token.content.removesuffix("\n").split("\n")
        self.found.code.append(Code(start, language, lines))
