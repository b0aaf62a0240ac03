"""Inline text of Markdown: headings, anchors, links, wikilinks, tags, block ids and Hugo shortcodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping
from functools import cache
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.image import image
from markdown_it.rules_inline.link import link
from markdown_it.token import Token

from marklight.ingest.links import include_target
from marklight.ingest.parse import Mention, ParsedText, Style, Title
from marklight.text.markdown import strip_markup

MAX_CHARS = 50_000
"""A longer paragraph is data, not prose."""

_BRACKET = re.compile(r"[\[\]]")
_FEW_BRACKETS = 50
_MAX_WORK = 500_000
"""Characters scanned for closing brackets; real paragraphs stay below a tenth of it."""

_TAG = re.compile(r"#((?:[^\W_]|[-_/]|[\U0001F000-\U0001FAFF\u2600-\u27BF\u200D\uFE0F])+)")
_NAME = re.compile(r"[^\d/_-]")
_BLOCK_ID = re.compile(r"\^([A-Za-z0-9-]+)[ \t]*(?=\n|$)")
_SHORTCODE_END = {"<": ">}}", "%": "%}}"}
REF = re.compile(
    r"\{\{[<%]\s*(?:rel)?ref\s+(?:path\s*=\s*)?(?:\"([^\"\n]*)\"|`([^`\n]*)`|'([^'\n]*)'|([^\s\"'`>%]+))"
)
HREF = re.compile(
    r"<a\s[^<>]{0,500}?href\s*=\s*(?:\"(?=\{\{)|\"([^\"\n]*)\"|'([^'\n]*)')", re.IGNORECASE
)
_SHELL = re.compile(r"\s(?:-|.*[$\"'=<>&!])")
"""`[[ -f x ]]` and `[[ $x == y ]]` are shell tests, not wikilinks."""


def ref_target(match: re.Match[str]) -> str:
    """Return the page of a Hugo `ref` shortcode, without its quotes."""
    return next(filter(None, match.groups()), "")


MAY_MENTION = re.compile(
    r"\](?:\((?!\s*(?:https?:|mailto:|#))|\[)"  # a link that may lead to another document
    r"|\[\[|\{\{[<%]|<a\s"
    r"|(?:^|\s)(?:#[^\s#]|\^[A-Za-z0-9-]+[ \t]*(?:\n|$))"
)
"""A paragraph without a match has no mentions, so the inline rules are skipped."""


class Inline(MarkdownIt):
    """The inline rules needed for mentions; link targets stay as written."""

    def __init__(self, *, text: bool) -> None:
        super().__init__("commonmark")
        self.inline.ruler.at("link", _link)
        self.inline.ruler.at("image", _image)
        self.inline.ruler.before("link", "wikilink", _wikilink)
        self.inline.ruler.before("link", "tag", _tag)
        self.inline.ruler.before("link", "block_id", _block_id)
        self.inline.ruler.before("link", "shortcode", _shortcode)
        if text:
            self.enable(["strikethrough"])
        else:
            # Emphasis does not change mentions, and is the slowest rule on hostile text.
            self.disable(["emphasis", "entity", "newline", "balance_pairs", "fragments_join"])

    def normalizeLink(self, url: str) -> str:  # noqa: N802
        """Return the target as written: it is a path, not a URL for HTML."""
        return url

    def validateLink(self, url: str) -> bool:  # noqa: N802, ARG002
        """Accept every target: nothing is rendered from here."""
        return True

    def tokens(self, content: str, env: MutableMapping[str, Any]) -> list[Token]:
        """Return the inline tokens of a paragraph."""
        env["shortcodes"] = "{{" in content
        return self.inline.parse(content, self, env, [])


_inline_rules = cache(Inline)


def too_costly(content: str) -> bool:
    """Return true if a paragraph is too long, or matching its brackets would take quadratic time."""
    if len(content) > MAX_CHARS:
        return True
    if content.count("[") < _FEW_BRACKETS:
        return False
    # The parser scans from each opening bracket to the closing one, or to the end.
    opened: list[int] = []
    work = 0
    for bracket in _BRACKET.finditer(content):
        if bracket[0] == "[":
            opened.append(bracket.start())
        elif opened:
            work += bracket.start() - opened.pop()
    return work + sum(len(content) - offset for offset in opened) > _MAX_WORK


def _link(state: StateInline, silent: bool) -> bool:
    start = state.pos
    if state.src[start] != "[":
        return False
    before = len(state.tokens)
    if state.env.get("shortcodes") and _ref_link(state, silent):
        return True
    if not link(state, silent):
        return False
    if not silent:
        _set_position(state, before, start, "link_open")
    return True


def _image(state: StateInline, silent: bool) -> bool:
    start, before = state.pos, len(state.tokens)
    if state.src[start] != "!":
        return False
    if state.src.startswith("[[", start + 1) and _wikilink(state, silent, start + 1):
        return True
    if not image(state, silent):
        return False
    if not silent:
        _set_position(state, before, start, "image")
    return True


def _set_position(state: StateInline, before: int, start: int, kind: str) -> None:
    for token in state.tokens[before : before + 2]:
        if token.type == kind:
            token.meta = {"pos": start}
            return


def _ref_link(state: StateInline, silent: bool) -> bool:
    """Parse `[text]({{< ref "page" >}}#part)`, which is no link in CommonMark."""
    start, maximum = state.pos, state.posMax
    label_end = state.md.helpers.parseLinkLabel(state, start, True)
    if label_end < 0 or state.src[label_end + 1 : label_end + 2] != "(":
        return False
    offset = label_end + 2
    while offset < maximum and state.src[offset] in " \t":
        offset += 1
    match = REF.match(state.src, offset)
    end = state.src.find("}}", match.end()) if match else -1
    close = state.src.find(")", end) if end > 0 else -1
    if not match or end < 0 or close < 0 or close >= maximum:
        return False
    if not silent:
        target = ref_target(match) + state.src[end + 2 : close].strip()
        token = state.push("link_open", "a", 1)
        token.attrs, token.meta = {"href": target}, {"pos": start}
        state.pos, state.posMax = start + 1, label_end
        state.md.inline.tokenize(state)
        state.push("link_close", "a", -1)
    state.pos, state.posMax = close + 1, maximum
    return True


def _wikilink(state: StateInline, silent: bool, start: int | None = None) -> bool:
    """Parse `[[Target#Heading|text]]`, or an embed `![[…]]`."""
    offset = state.pos if start is None else start
    source = state.src
    if not source.startswith("[[", offset):
        return False
    end = source.find("]]", offset + 2, min(state.posMax, offset + 1000))
    inner = source[offset + 2 : end]
    if end < 0 or not inner or "\n" in inner or "[" in inner or "]" in inner:
        return False
    # `[[1]](address)` is a link whose text has brackets, `[[ -f x ]]` is shell.
    if source[end + 2 : end + 3] == "(" or _SHELL.match(inner) or inner.isspace():
        return False
    if not silent:
        target, _, label = inner.partition("|")
        target = target.rstrip("\\").strip()
        token = state.push("wikilink", "", 0)
        token.content = label.strip() or target
        token.meta = {"pos": offset, "target": target, "embeds": start is not None}
    state.pos = end + 2
    return True


def _tag(state: StateInline, silent: bool) -> bool:
    offset = state.pos
    if (
        state.src[offset] != "#"
        or (offset and not state.src[offset - 1].isspace())
        or state.linkLevel
    ):
        return False
    match = _TAG.match(state.src, offset, state.posMax)
    name = match[1].strip("/") if match else ""
    if not match or not _NAME.search(name):
        return False
    if not silent:
        token = state.push("tag", "", 0)
        token.content, token.meta = match[0], {"name": name}
    state.pos = match.end()
    return True


def _block_id(state: StateInline, silent: bool) -> bool:
    offset = state.pos
    if state.src[offset] != "^" or (offset and not state.src[offset - 1].isspace()):
        return False
    match = _BLOCK_ID.match(state.src, offset, state.posMax)
    if not match:
        return False
    if not silent:
        token = state.push("block_id", "", 0)
        token.meta = {"pos": offset, "name": match[1]}
    state.pos = match.end()
    return True


def _shortcode(state: StateInline, silent: bool) -> bool:
    """Parse `{{< name … >}}`: plain text without links and tags, unless it is a `ref`."""
    offset = state.pos
    source = state.src
    if not source.startswith(("{{<", "{{%"), offset):
        return False
    closing = _SHORTCODE_END[source[offset + 2]]
    end = source.find(closing, offset + 3, min(state.posMax, offset + 2000))
    if end < 0:
        return False
    if not silent:
        token = state.push("shortcode", "", 0)
        token.content = source[offset : end + 3]
        match = REF.match(source, offset)
        included = include_target(source, offset)
        target = ref_target(match) if match else included
        token.meta = {"pos": offset, "target": target, "embeds": bool(included)}
    state.pos = end + 3
    return True


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


def add_mentions(texts: Iterable[Text], env: dict[str, Any], parsed: ParsedText) -> None:
    """Add headings, mentions, tags and block ids to a parsed text."""
    reader = _Reader(env, parsed)
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

    def __init__(self, env: dict[str, Any], parsed: ParsedText) -> None:
        self.env = env
        self.parsed = parsed
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
        self.parsed.titles.append(Title(heading.level, text, anchor, heading.line, heading.end))

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
            self.parsed.remarks.append(
                f"line {paragraph.line + 1}: links and tags are ignored "
                f"in a paragraph of {len(paragraph.content):,} characters"
            )
            return
        self._read(paragraph)

    def _read(self, text: Text) -> str:
        """Add the mentions of a text; return the text without markup."""
        parsed, parts, text_at = self.parsed, [], 0
        place = _LineCounter(text)
        open_link: tuple[str, int] | None = None
        for token in _inline_rules(text=text.level > 0).tokens(text.content, self.env):
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
                line = token.meta.get("pos", 0)
                self._mention(str(token.attrs["src"]), token.content, place.line(line))
            elif kind == "wikilink":
                line = place.line(token.meta["pos"])
                self._mention(
                    token.meta["target"], token.content, line, Style.WIKI, token.meta["embeds"]
                )
            elif kind == "tag":
                parsed.tags.append(token.meta["name"])
            elif kind == "shortcode" and token.meta["target"]:
                line, embeds = place.line(token.meta["pos"]), token.meta["embeds"]
                self._mention(token.meta["target"], "", line, embeds=embeds)
            elif kind == "html_inline" and (address := HREF.match(token.content)):
                self._mention(_href_target(address), "", place.number)
            elif kind == "block_id":
                line = place.line(token.meta["pos"])
                parsed.marks.setdefault(token.meta["name"].lower(), line)
        return "".join(parts)

    def _mention(
        self, target: str, text: str, line: int, style: Style = Style.MARKDOWN, embeds: bool = False
    ) -> None:
        label = " ".join(_EMPHASIS.sub("", text).split())
        heading = len(self.parsed.titles) - 1
        self.parsed.mentions.append(Mention(style, target, label, line, heading, embeds))


class _LineCounter:
    """Maps ascending offsets of a paragraph to lines; each line end is counted once."""

    def __init__(self, text: Text) -> None:
        self.content = text.content
        self.at = 0
        self.number = text.line

    def line(self, offset: int) -> int:
        """Return the line of an offset, which must not be before the last one."""
        if offset > self.at:
            self.number += self.content.count("\n", self.at, offset)
            self.at = offset
        return self.number


def _href_target(match: re.Match[str]) -> str:
    """Return the target of an HTML link: an address, or the page of a `ref` shortcode."""
    inner = REF.match(match[1] or match[2] or "") or REF.match(match.string, match.end())
    return ref_target(inner) if inner else match[1] or match[2] or ""
