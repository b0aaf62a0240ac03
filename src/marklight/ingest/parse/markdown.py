"""Markdown: CommonMark with tables by markdown-it, and what notes and sites add to it."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from markdown_it.token import Token

from marklight.ingest.parse.blocks import blocks
from marklight.ingest.parse.form import Block, Code, Mention, Structure, Style, Title
from marklight.ingest.parse.inline import HREF, REF, WORTH, Inline, ref_target, too_costly
from marklight.model import Kind
from marklight.text import plain

FINGERPRINT = "markdown 2"

_HEADING_CHARS = 300
"""A longer line is no name for a section; the whole line stays in the section's text."""
_LEAVES = {
    "paragraph_open": Kind.PROSE,
    "heading_open": Kind.PROSE,
    "html_block": Kind.PROSE,
    "hr": Kind.PROSE,
    "fence": Kind.CODE,
    "code_block": Kind.CODE,
    "table_open": Kind.TABLE,
}
_MOST_HEADINGS = 20_000
"""Sections take far more memory than their text; the specification of HTML has 2,000 of them."""
_CONTAINERS = frozenset(
    ("bullet_list_open", "ordered_list_open", "list_item_open", "blockquote_open")
)
_LISTS = frozenset(("bullet_list_open", "ordered_list_open"))
_LIST_ENDS = frozenset(("bullet_list_close", "ordered_list_close"))
_CUSTOM_ANCHOR = re.compile(r"\s*\{:?\s*#([\w:.-]+)[^{}]*\}\s*$")
_MARKUP = re.compile(r"[\\`*_\[\]<&!~{#^]")
_SLUG_DROPS = re.compile(r"[^\w\- ]")
_EMPHASIS = re.compile(r"\*+|~~|(?<!\w)_+|_+(?!\w)")
_LANGUAGE = re.compile(r"[\w+#./-]+")


@cache
def _inline(*, text: bool) -> Inline:
    return Inline(text=text)


def parse(lines: list[str], first: int) -> Structure:
    """The structure of the lines from `first` on."""
    env: dict[str, Any] = {}
    walk = _Walk(first, env)
    for tokens in blocks("\n".join(lines[first:]) if first else "\n".join(lines), env):
        walk.over(tokens)
    walk.finish()
    return walk.found


class _Waiting(NamedTuple):
    """A text whose mentions can be read only when all link definitions are known."""

    content: str
    line: int
    end: int
    level: int
    """Of a heading; 0 for a paragraph."""


class _Walk:
    """One pass over the tokens of a document, then one over its texts."""

    def __init__(self, first: int, env: dict[str, Any]) -> None:
        self.found = Structure()
        self.first = first
        self.env = env
        self.anchors: dict[str, int] = {}
        self.waiting: list[_Waiting] = []
        self.headings = 0

    def over(self, tokens: list[Token]) -> None:
        """Note the blocks, and what is to be read later."""
        found, first = self.found, self.first
        opened: Token | None = None  # the outermost container that the next leaf begins
        lists = 0
        heading = 0
        for token in tokens:
            kind = token.type
            if kind == "inline":
                if heading or WORTH.search(token.content) or "[" in token.content:
                    assert token.map is not None
                    self.waiting.append(
                        _Waiting(token.content, token.map[0], token.map[1], heading)
                    )
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
                        self.waiting.append(_Waiting(token.content, token.map[0], token.map[1], -1))
                found.blocks.append(Block(leaf, line + first, depth))
            elif kind in _CONTAINERS:
                lists += kind in _LISTS
                if opened is None or opened.level > token.level:
                    opened = token
            elif kind in _LIST_ENDS:
                lists -= 1

    def finish(self) -> None:
        """Read the headings and paragraphs that waited for the link definitions."""
        references = self.env.get("references") or {}
        refers = any(
            not reference["href"].startswith(("http:", "https:", "mailto:"))
            for reference in references.values()
        )
        for text in self.waiting:
            if text.level > 0:
                self._heading(text)
            elif text.level < 0:
                self._html(text.content, text.line)
            elif refers or WORTH.search(text.content):
                self._paragraph(text)
        if self.headings == _MOST_HEADINGS:
            self.found.remarks.append(
                f"only the first {_MOST_HEADINGS:,} headings were read as such"
            )

    def _code(self, token: Token) -> None:
        assert token.map is not None
        fenced = token.type == "fence"
        found = _LANGUAGE.search(token.info) if fenced else None
        language = found[0].lstrip(".").lower() if found else ""
        start = token.map[0] + self.first + fenced
        lines = token.content.removesuffix("\n").split("\n")
        self.found.code.append(Code(start, language, lines))

    def _html(self, content: str, line: int) -> None:
        """Links of an HTML block: to a page, or to one that a shortcode names."""
        place = _Place(content, line + self.first)
        for found in HREF.finditer(content):
            inner = REF.match(found[1] or found[2] or "") or REF.match(content, found.end())
            target = ref_target(inner) if inner else found[1] or found[2] or ""
            self._mention(target, "", place.line(found.start()))

    def _heading(self, heading: _Waiting) -> None:
        content, custom = heading.content, ""
        if content.endswith("}") and (found := _CUSTOM_ANCHOR.search(content[-200:])):
            custom = found[1]
            content = content[: len(content) - len(found[0])]
        text = content
        if _MARKUP.search(content) and not too_costly(content):
            text = self._mentions(content, heading.line, heading=True)
        text = " ".join(text.split())
        if len(text) > _HEADING_CHARS:
            text = text[: _HEADING_CHARS - 1].rstrip() + "…"
        anchor = self._anchor(custom or _SLUG_DROPS.sub("", text.lower()).replace(" ", "-"))
        start, end = heading.line + self.first, heading.end + self.first
        self.found.titles.append(Title(heading.level, text, anchor, start, end))

    def _anchor(self, slug: str) -> str:
        """As GitHub does it: the second of its name ends in -1."""
        count = self.anchors.get(slug, -1) + 1
        self.anchors[slug] = count
        if not count:
            return slug
        unique = f"{slug}-{count}"
        return self._anchor(unique) if unique in self.anchors else self._claim(unique)

    def _claim(self, slug: str) -> str:
        self.anchors[slug] = 0
        return slug

    def _paragraph(self, paragraph: _Waiting) -> None:
        if too_costly(paragraph.content):
            self.found.remarks.append(
                f"line {paragraph.line + self.first + 1}: no links or tags were looked for "
                f"in a paragraph of {len(paragraph.content):,} characters"
            )
            return
        self._mentions(paragraph.content, paragraph.line, heading=False)

    def _mentions(self, content: str, line: int, *, heading: bool) -> str:
        """Note what a paragraph mentions; returns its text without markup."""
        found, shown, text_at = self.found, [], 0
        place = _Place(content, line + self.first)
        open_link: tuple[str, int] | None = None
        for token in _inline(text=heading).tokens(content, self.env):
            kind = token.type
            if kind in ("text", "code_inline", "wikilink", "tag", "image"):
                shown.append(token.content)
            elif kind in ("softbreak", "hardbreak"):
                shown.append(" ")
            elif kind == "shortcode":
                shown.append(plain(token.content))
            if kind == "link_open":
                open_link, text_at = (
                    (str(token.attrs["href"]), token.meta.get("pos", 0)),
                    len(shown),
                )
            elif kind == "link_close" and open_link:
                self._mention(open_link[0], "".join(shown[text_at:]), place.line(open_link[1]))
                open_link = None
            elif kind == "image":
                at = token.meta.get("pos", 0)
                self._mention(str(token.attrs["src"]), token.content, place.line(at))
            elif kind == "wikilink":
                at = place.line(token.meta["pos"])
                self._mention(
                    token.meta["target"], token.content, at, Style.WIKI, token.meta["embeds"]
                )
            elif kind == "tag":
                found.tags.append(token.meta["name"])
            elif kind == "shortcode" and token.meta["target"]:
                self._mention(token.meta["target"], "", place.line(token.meta["pos"]))
            elif kind == "block_id":
                at = place.line(token.meta["pos"])
                found.marks.setdefault(token.meta["name"].lower(), at)
        return "".join(shown)

    def _mention(
        self, target: str, text: str, line: int, style: Style = Style.MARKDOWN, embeds: bool = False
    ) -> None:
        shown = " ".join(_EMPHASIS.sub("", text).split())
        heading = len(self.found.titles) - 1
        self.found.mentions.append(Mention(style, target, shown, line, heading, embeds))


class _Place:
    """Lines of a paragraph, found in order: each line end is looked at once."""

    def __init__(self, content: str, line: int) -> None:
        self.content = content
        self.at = 0
        self.number = line

    def line(self, at: int) -> int:
        """The line of an offset that is not before the last one asked for."""
        if at > self.at:
            self.number += self.content.count("\n", self.at, at)
            self.at = at
        return self.number
