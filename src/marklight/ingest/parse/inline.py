"""Inline rules of Markdown: wikilinks, tags, block ids and Hugo shortcodes, besides CommonMark's links and images."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.image import image
from markdown_it.rules_inline.link import link
from markdown_it.token import Token

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
    return work + sum(len(content) - at for at in opened) > _MAX_WORK


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
    at = label_end + 2
    while at < maximum and state.src[at] in " \t":
        at += 1
    match = REF.match(state.src, at)
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
    at = state.pos if start is None else start
    source = state.src
    if not source.startswith("[[", at):
        return False
    end = source.find("]]", at + 2, min(state.posMax, at + 1000))
    inner = source[at + 2 : end]
    if end < 0 or not inner or "\n" in inner or "[" in inner or "]" in inner:
        return False
    # `[[1]](address)` is a link whose text has brackets, `[[ -f x ]]` is shell.
    if source[end + 2 : end + 3] == "(" or _SHELL.match(inner) or inner.isspace():
        return False
    if not silent:
        target, _, label = inner.partition("|")
        token = state.push("wikilink", "", 0)
        token.content = label.strip() or target.rstrip("\\").strip()
        token.meta = {"pos": at, "target": target.rstrip("\\").strip(), "embeds": start is not None}
    state.pos = end + 2
    return True


def _tag(state: StateInline, silent: bool) -> bool:
    at = state.pos
    if state.src[at] != "#" or (at and not state.src[at - 1].isspace()) or state.linkLevel:
        return False
    match = _TAG.match(state.src, at, state.posMax)
    name = match[1].strip("/") if match else ""
    if not match or not _NAME.search(name):
        return False
    if not silent:
        token = state.push("tag", "", 0)
        token.content, token.meta = match[0], {"name": name}
    state.pos = match.end()
    return True


def _block_id(state: StateInline, silent: bool) -> bool:
    at = state.pos
    if state.src[at] != "^" or (at and not state.src[at - 1].isspace()):
        return False
    match = _BLOCK_ID.match(state.src, at, state.posMax)
    if not match:
        return False
    if not silent:
        token = state.push("block_id", "", 0)
        token.meta = {"pos": at, "name": match[1]}
    state.pos = match.end()
    return True


def _shortcode(state: StateInline, silent: bool) -> bool:
    """Parse `{{< name … >}}`: plain text without links and tags, unless it is a `ref`."""
    at = state.pos
    source = state.src
    if not source.startswith(("{{<", "{{%"), at):
        return False
    end = source.find(_SHORTCODE_END[source[at + 2]], at + 3, min(state.posMax, at + 2000))
    if end < 0:
        return False
    if not silent:
        token = state.push("shortcode", "", 0)
        token.content = source[at : end + 3]
        match = REF.match(source, at)
        target = ref_target(match) if match else ""
        token.meta = {"pos": at, "target": target}
    state.pos = end + 3
    return True
