"""A document as HTML that can be shown: every block with its lines, headings with their anchors, links that lead on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any
from urllib.parse import quote, unquote

from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from marklight.escaping import visible
from marklight.ingest import frontmatter
from marklight.ingest.links import is_media, keys_for, wiki_parts
from marklight.ingest.parse import Style, parser
from marklight.ingest.parse.blocks import blocks
from marklight.ingest.parse.inline import Inline, too_costly
from marklight.ingest.parse.mentions import CUSTOM_ANCHOR
from marklight.ingest.recipe import PARSERS, parser_for
from marklight.ingest.sanitise import INSIDE, PREFIX, sanitise
from marklight.model import Document
from marklight.text import strip_markup

Find = Callable[[tuple[str, ...]], str | None]
"""What a document is called that a link means by one of these keys; None if there is none."""

MOST_LINES = 4_000
MOST_CHARS = 400_000
"""More is shown in part: what a browser lays out takes a thousand times its text, and nobody reads it at once."""
_MOST_TAGS = 20_000
"""Of HTML in a document: more is shown as it is written, for a parser's work may grow with its square."""
_TASK = re.compile(r"\[([ xX])\]\s")
_TAG_OPEN = re.compile(r"<[a-zA-Z!/?]")
_LONG_TAG = re.compile(r"<[^<>]{10000}")
"""Attributes of one tag are compared with each other."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """HTML, and the lines of the document that it shows."""

    html: str
    lines: tuple[int, int]


def render(
    document: Document, name: str, find: Find, line: int = 1, parsers: Mapping[str, str] = PARSERS
) -> Rendered:
    """The document, or of a long one the part around a line; `name` is what links inside it call it."""
    lines = document.text.split("\n")
    front = frontmatter.split(document.text)
    body = min(front.lines, len(lines))
    first, last = _window(document, lines, min(max(line - 1, 0), len(lines) - 1))
    shown = lines[max(first, body) : last]
    kind = parser_for(document.id.path, parsers) or "plain"
    writer = _Writer(document, max(first, body))
    html = writer.markdown(shown) if kind == "markdown" else writer.plain(shown)
    if front.remark and body and first < body:
        # It could not be read as fields, so it is searched, and shown, as the text that it is.
        html = f'<pre data-lines="1-{body}">{escape(chr(10).join(lines[:body]))}</pre>\n{html}'
    # Last, since a character may be written as an entity, which the sanitiser resolves.
    safe = visible(sanitise(html, writer.leading(name, find)))
    return Rendered(safe, (first + 1, max(last, first + 1)))


def _window(document: Document, lines: Sequence[str], at: int) -> tuple[int, int]:
    """Which lines are shown: all, or so many around one, from the start of a section if one is near."""
    if len(lines) <= MOST_LINES and len(document.text) <= MOST_CHARS:
        return 0, len(lines)
    first, last, size = at, at, 0
    while size < MOST_CHARS and last - first < MOST_LINES and (first > 0 or last < len(lines)):
        # A quarter of it before, for what led there.
        if last < len(lines) and (first == 0 or 3 * (at - first) >= last - at):
            size += len(lines[last]) + 1
            last += 1
        else:
            first -= 1
            size += len(lines[first]) + 1
    begins = [heading.lines[0] - 1 for heading in document.outline]
    # Between sections no list, quote or fence is cut in two.
    return next((each for each in begins if first and first <= each <= at), first), last


class _Writer:
    """Writes HTML that is not safe yet."""

    def __init__(self, document: Document, first: int) -> None:
        self.document = document
        self.first = first
        self.anchors = {heading.lines[0]: heading.anchor for heading in document.outline}

    def plain(self, lines: list[str]) -> str:
        """Paragraphs with their line ends as they are."""
        begins = [block.line for block in parser("plain").parse(lines, 0).blocks]
        ends = [*begins[1:], len(lines)]
        written = []
        for begin, end in zip(begins, ends, strict=True):
            text = "\n".join(lines[begin:end]).rstrip()
            last = begin + text.count("\n") + 1
            place = f"{begin + self.first + 1}-{last + self.first}"
            written.append(f'<p data-lines="{place}" data-plain="">{escape(text)}</p>')
        return "\n".join(written)

    def markdown(self, lines: list[str]) -> str:
        """All blocks, then what stands in them: a link may be defined below its use."""
        env: dict[str, Any] = {"tags": 0}
        tokens: list[Token] = []
        for block in blocks("\n".join(lines), env):
            tokens += block
        heading = False
        for token in tokens:
            self._place(token)
            if token.type == "inline":
                content = CUSTOM_ANCHOR.sub("", token.content) if heading else token.content
                token.children = _inlines(content, env)
            heading = token.type == "heading_open"
        return _Renderer().render(tokens, _inline().options, env)

    def leading(self, name: str, find: Find) -> Callable[[str], str | None]:
        """Where addresses lead that stay inside the library."""
        known: dict[str, str | None] = {}

        def lead(address: str) -> str | None:
            if address not in known:
                known[address] = self._lead(address, name, find)
            return known[address]

        return lead

    def _lead(self, address: str, name: str, find: Find) -> str | None:
        if address.startswith(_WIKI):
            style = Style.WIKI
            target, fragment = wiki_parts(address.removeprefix(_WIKI))
        else:
            style = Style.MARKDOWN
            target, _, fragment = address.partition("#")
            fragment = unquote(fragment)
        found = find(keys_for(target, self.document.id, style)) if target else name
        if found is None:
            return None
        return f"{INSIDE}:{quote(found)}" + (f"#{quote(fragment)}" if fragment else "")

    def _place(self, token: Token) -> None:
        if token.map is None or token.nesting < 0 or token.type == "inline":
            return
        begin, end = token.map[0] + self.first + 1, token.map[1] + self.first
        token.attrSet("data-lines", f"{begin}-{max(begin, end)}")
        if token.type == "heading_open" and (anchor := self.anchors.get(begin)):
            # Here already, for the sanitiser takes one that begins so for one that has it.
            token.attrSet("id", PREFIX + anchor)


_WIKI = "./[["
"""Before the target of a wikilink, on its way through the sanitiser: no address of Markdown begins so."""


@cache
def _inline() -> Inline:
    return Inline(text=True)


def _inlines(content: str, env: MutableMapping[str, Any]) -> list[Token]:
    if too_costly(content):
        return [Token("text", "", 0, content=content)]
    return _inline().tokens(content, env)


class _Renderer(RendererHTML):
    """What markdown-it writes, and how notes and sites differ from it."""

    def fence(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        return self.code_block(tokens, at, options, env)

    def code_block(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        token = tokens[at]
        lines = escape(str(token.attrs.get("data-lines", "")))
        return f'<pre data-lines="{lines}"><code>{escape(token.content)}</code></pre>\n'

    def html_block(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        # Not around it: what it opens may be closed by a later block.
        lines = escape(str(tokens[at].attrs.get("data-lines", "")))
        return f'<span data-lines="{lines}"></span>{_html(tokens[at].content, env)}'

    def html_inline(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        return _html(tokens[at].content, env)

    def image(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        token = tokens[at]
        said = self.renderInlineAsText(token.children or [], options, env)
        return _image(said or str(token.attrs.get("src", "")).rpartition("/")[2])

    def wikilink(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        token = tokens[at]
        target, said = str(token.meta["target"]), token.content
        if token.meta["embeds"] and is_media(target):
            return _image(said)
        return f'<a href="{escape(_WIKI + target)}">{escape(said)}</a>'

    def shortcode(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        return escape(strip_markup(tokens[at].content))

    def tag(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        return escape(tokens[at].content)

    def block_id(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        return ""

    def text(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        content = tokens[at].content
        if at == 0 and (task := _TASK.match(content)):
            content = f"{'☐' if task[1] == ' ' else '☑'} {content[task.end() :]}"
        return escape(content)

    def text_special(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        """An entity or an escaped character, as the character that it means."""
        return escape(tokens[at].content)

    def th_open(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        return self._cell(tokens[at])

    def td_open(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        return self._cell(tokens[at])

    def _cell(self, token: Token) -> str:
        # Styles are taken away, and this one says something.
        side = str(token.attrs.get("style", "")).partition("text-align:")[2]
        return f'<{token.tag} align="{escape(side)}">' if side else f"<{token.tag}>"


def _html(content: str, env: MutableMapping[str, Any]) -> str:
    env["tags"] += len(_TAG_OPEN.findall(content))
    tame = env["tags"] <= _MOST_TAGS and not _LONG_TAG.search(content)
    return content if tame else escape(content)


def _image(said: str) -> str:
    return f'<img alt="{escape(said)}">'
