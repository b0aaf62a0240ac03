"""Parse the inline text of headings and paragraphs: heading text, anchors, mentions and tags."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from marklight.ingest.parse import Mention, Structure, Style, Title
from marklight.ingest.parse.inline import HREF, MAY_MENTION, REF, Inline, ref_target, too_costly
from marklight.text.markdown import strip_markup

HTML = -1
"""In place of a heading level: an HTML block."""

_HEADING_CHARS = 300
"""A longer heading is cut; the whole line stays in the section's text."""
CUSTOM_ANCHOR = re.compile(r"\s*\{:?\s*#([\w:.-]+)[^{}]*\}\s*$")
_MARKUP = re.compile(r"[\\`*_\[\]<&!~{#^]")
_SLUG_DROPS = re.compile(r"[^\w\- ]")
_EMPHASIS = re.compile(r"\*+|~~|(?<!\w)_+|_+(?!\w)")


class Text(NamedTuple):
    """Inline text of the source, parsed once all link definitions are known."""

    content: str
    line: int
    end: int
    level: int
    """Level of a heading; 0 for a paragraph, `HTML` for an HTML block."""


@cache
def _inline(*, text: bool) -> Inline:
    return Inline(text=text)


def add_mentions(texts: Iterable[Text], env: dict[str, Any], structure: Structure) -> None:
    """Add headings, mentions, tags and block ids to the structure."""
    reader = _Reader(env, structure)
    references = env.get("references") or {}
    has_local_references = any(
        not reference["href"].startswith(("http:", "https:", "mailto:"))
        for reference in references.values()
    )
    for text in texts:
        if text.level > 0:
            reader.heading(text)
        elif text.level == HTML:
            reader.html(text)
        elif has_local_references or MAY_MENTION.search(text.content):
            reader.paragraph(text)


class _Reader:
    """Parses the texts of one document, in order."""

    def __init__(self, env: dict[str, Any], structure: Structure) -> None:
        self.env = env
        self.structure = structure
        self.anchors: dict[str, int] = {}

    def html(self, text: Text) -> None:
        """Add the links of an HTML block."""
        content, place = text.content, _LineCounter(text)
        for match in HREF.finditer(content):
            self._mention(_href_target(match), "", place.line(match.start()))

    def heading(self, heading: Text) -> None:
        """Add a heading: its text without markup, and its anchor."""
        content, custom = heading.content, ""
        if content.endswith("}") and (match := CUSTOM_ANCHOR.search(content[-200:])):
            custom = match[1]
            content = content[: len(content) - len(match[0])]
        text = content
        if _MARKUP.search(content) and not too_costly(content):
            text = self._read(heading._replace(content=content))
        text = " ".join(text.split())
        if len(text) > _HEADING_CHARS:
            text = text[: _HEADING_CHARS - 1].rstrip() + "…"
        anchor = self._anchor(custom or _SLUG_DROPS.sub("", text.lower()).replace(" ", "-"))
        self.structure.titles.append(Title(heading.level, text, anchor, heading.line, heading.end))

    def _anchor(self, slug: str) -> str:
        """Return a unique anchor as GitHub does: the second of the same slug ends in -1."""
        unique = slug
        while unique in self.anchors:
            self.anchors[slug] += 1
            unique = f"{slug}-{self.anchors[slug]}"
        self.anchors[unique] = 0
        return unique

    def paragraph(self, paragraph: Text) -> None:
        """Add the mentions of a paragraph, unless that would take too long."""
        if too_costly(paragraph.content):
            self.structure.remarks.append(
                f"line {paragraph.line + 1}: links and tags are ignored "
                f"in a paragraph of {len(paragraph.content):,} characters"
            )
            return
        self._read(paragraph)

    def _read(self, text: Text) -> str:
        """Add the mentions of a text; return the text without markup."""
        structure, parts, text_at = self.structure, [], 0
        place = _LineCounter(text)
        open_link: tuple[str, int] | None = None
        for token in _inline(text=text.level > 0).tokens(text.content, self.env):
            kind = token.type
            if kind in ("text", "code_inline", "wikilink", "tag", "image"):
                parts.append(token.content)
            elif kind in ("softbreak", "hardbreak"):
                parts.append(" ")
            elif kind == "shortcode":
                parts.append(strip_markup(token.content))
            if kind == "link_open":
                open_link = str(token.attrs["href"]), token.meta.get("pos", 0)
                text_at = len(parts)
            elif kind == "link_close" and open_link:
                self._mention(open_link[0], "".join(parts[text_at:]), place.line(open_link[1]))
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
                structure.tags.append(token.meta["name"])
            elif kind == "shortcode" and token.meta["target"]:
                self._mention(token.meta["target"], "", place.line(token.meta["pos"]))
            elif kind == "html_inline" and (address := HREF.match(token.content)):
                self._mention(_href_target(address), "", place.number)
            elif kind == "block_id":
                at = place.line(token.meta["pos"])
                structure.marks.setdefault(token.meta["name"].lower(), at)
        return "".join(parts)

    def _mention(
        self, target: str, text: str, line: int, style: Style = Style.MARKDOWN, embeds: bool = False
    ) -> None:
        label = " ".join(_EMPHASIS.sub("", text).split())
        heading = len(self.structure.titles) - 1
        self.structure.mentions.append(Mention(style, target, label, line, heading, embeds))


class _LineCounter:
    """Maps ascending offsets of a paragraph to lines; each line end is counted once."""

    def __init__(self, text: Text) -> None:
        self.content = text.content
        self.at = 0
        self.number = text.line

    def line(self, at: int) -> int:
        """Return the line of an offset, which must not be before the last one."""
        if at > self.at:
            self.number += self.content.count("\n", self.at, at)
            self.at = at
        return self.number


def _href_target(match: re.Match[str]) -> str:
    """Return the target of an HTML link: an address, or the page of a `ref` shortcode."""
    inner = REF.match(match[1] or match[2] or "") or REF.match(match.string, match.end())
    return ref_target(inner) if inner else match[1] or match[2] or ""
