"""The texts of a document: its headings, and what its paragraphs mention."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from marklight.ingest.parse import Mention, Structure, Style, Title
from marklight.ingest.parse.inline import HREF, REF, WORTH, Inline, ref_target, too_costly
from marklight.text import strip_markup

HTML = -1

_HEADING_CHARS = 300
"""A longer line is no name for a section; the whole line stays in the section's text."""
CUSTOM_ANCHOR = re.compile(r"\s*\{:?\s*#([\w:.-]+)[^{}]*\}\s*$")
_MARKUP = re.compile(r"[\\`*_\[\]<&!~{#^]")
_SLUG_DROPS = re.compile(r"[^\w\- ]")
_EMPHASIS = re.compile(r"\*+|~~|(?<!\w)_+|_+(?!\w)")


class Text(NamedTuple):
    """A text of the source, which can be read only when all links are defined."""

    content: str
    line: int
    end: int
    level: int
    """Of a heading; 0 for a paragraph, `HTML` for a block of it."""


@cache
def _inline(*, text: bool) -> Inline:
    return Inline(text=text)


def mentions(texts: Iterable[Text], env: dict[str, Any], found: Structure) -> None:
    """Add the headings and all that is mentioned to what was found."""
    reader = _Reader(env, found)
    references = env.get("references") or {}
    refers = any(
        not reference["href"].startswith(("http:", "https:", "mailto:"))
        for reference in references.values()
    )
    for text in texts:
        if text.level > 0:
            reader.heading(text)
        elif text.level == HTML:
            reader.html(text)
        elif refers or WORTH.search(text.content):
            reader.paragraph(text)


class _Reader:
    """Reads the texts of one document in their order."""

    def __init__(self, env: dict[str, Any], found: Structure) -> None:
        self.env = env
        self.found = found
        self.anchors: dict[str, int] = {}

    def html(self, text: Text) -> None:
        """The links of an HTML block."""
        content, place = text.content, _Place(text)
        for found in HREF.finditer(content):
            self._mention(_address(found), "", place.line(found.start()))

    def heading(self, heading: Text) -> None:
        """Its words without markup, and its anchor."""
        content, custom = heading.content, ""
        if content.endswith("}") and (found := CUSTOM_ANCHOR.search(content[-200:])):
            custom = found[1]
            content = content[: len(content) - len(found[0])]
        text = content
        if _MARKUP.search(content) and not too_costly(content):
            text = self._read(heading._replace(content=content))
        text = " ".join(text.split())
        if len(text) > _HEADING_CHARS:
            text = text[: _HEADING_CHARS - 1].rstrip() + "…"
        anchor = self._anchor(custom or _SLUG_DROPS.sub("", text.lower()).replace(" ", "-"))
        self.found.titles.append(Title(heading.level, text, anchor, heading.line, heading.end))

    def _anchor(self, slug: str) -> str:
        """As GitHub does it: the second of its name ends in -1."""
        unique = slug
        while unique in self.anchors:
            self.anchors[slug] += 1
            unique = f"{slug}-{self.anchors[slug]}"
        self.anchors[unique] = 0
        return unique

    def paragraph(self, paragraph: Text) -> None:
        """What it mentions, unless it is made to take forever."""
        if too_costly(paragraph.content):
            self.found.remarks.append(
                f"line {paragraph.line + 1}: no links or tags were looked for "
                f"in a paragraph of {len(paragraph.content):,} characters"
            )
            return
        self._read(paragraph)

    def _read(self, text: Text) -> str:
        """Note what a text mentions; returns its words without markup."""
        found, shown, text_at = self.found, [], 0
        place = _Place(text)
        open_link: tuple[str, int] | None = None
        for token in _inline(text=text.level > 0).tokens(text.content, self.env):
            kind = token.type
            if kind in ("text", "code_inline", "wikilink", "tag", "image"):
                shown.append(token.content)
            elif kind in ("softbreak", "hardbreak"):
                shown.append(" ")
            elif kind == "shortcode":
                shown.append(strip_markup(token.content))
            if kind == "link_open":
                open_link = str(token.attrs["href"]), token.meta.get("pos", 0)
                text_at = len(shown)
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
            elif kind == "html_inline" and (address := HREF.match(token.content)):
                self._mention(_address(address), "", place.number)
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

    def __init__(self, text: Text) -> None:
        self.content = text.content
        self.at = 0
        self.number = text.line

    def line(self, at: int) -> int:
        """The line of an offset that is not before the last one asked for."""
        if at > self.at:
            self.number += self.content.count("\n", self.at, at)
            self.at = at
        return self.number


def _address(found: re.Match[str]) -> str:
    """Where an HTML link leads: to a page, or to one that a shortcode names."""
    inner = REF.match(found[1] or found[2] or "") or REF.match(found.string, found.end())
    return ref_target(inner) if inner else found[1] or found[2] or ""
