"""Render a document as sanitised HTML: blocks with their lines, headings with anchors, resolved links.

The output of markdown-it is unsafe until nh3 has removed everything that runs, loads or sends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from marklight.formatting import visible
from marklight.ingest import frontmatter
from marklight.ingest.html_tags import ALLOWED, REMOVED, classify_tags
from marklight.ingest.links import is_media, keys_for, wiki_parts
from marklight.ingest.parse import Style, parser
from marklight.ingest.parse.inline import Inline, too_costly
from marklight.ingest.parse.markdown import blocks
from marklight.ingest.parse.mentions import CUSTOM_ANCHOR
from marklight.ingest.recipe import PARSERS, parser_for
from marklight.model import Document
from marklight.text.markdown import shortcode_text

if TYPE_CHECKING:
    import nh3

Find = Callable[[tuple[str, ...]], str | None]
"""Returns the name of the document that a link with these keys leads to; None if there is none."""

MAX_LINES = 4_000
MAX_CHARS = 400_000
"""Only a part of a longer document is rendered: a browser's layout takes a thousand times the memory of the text."""
_TASK = re.compile(r"\[([ xX])\]\s")
_WIKI = "./[["
"""Prefix of the target of a wikilink on its way through the sanitiser: no address of Markdown begins so."""

SCHEME = "marklight"
"""The scheme of links to documents of the library: `marklight:guide/auth.md#expiry`."""
ID_PREFIX = "part-"
"""Prefix of every id: `<a id="forms">` in a document must not become `document.forms` of the page around it."""

_ATTRIBUTES = {
    "*": {"id", "title", "lang", "dir", "data-lines", "data-plain"},
    "a": {"href"},
    "img": {"alt"},  # no src: a document must not cause a request
    "ol": {"start"},
    "td": {"align", "colspan", "rowspan"},
    "th": {"align", "colspan", "rowspan", "scope"},
    "details": {"open"},
    "time": {"datetime"},
}


@dataclass(frozen=True, slots=True)
class Rendered:
    """HTML, and the lines of the document that it contains."""

    html: str
    lines: tuple[int, int]


def render(
    document: Document, name: str, find: Find, line: int = 1, parsers: Mapping[str, str] = PARSERS
) -> Rendered:
    """Render a document, or the part of a long one around a line; `name` is its name in links to itself."""
    lines = document.text.split("\n")
    front = frontmatter.split(document.text)
    body = min(front.lines, len(lines))
    first, last = _window(document, lines, min(max(line - 1, 0), len(lines) - 1))
    body_lines = lines[max(first, body) : last]
    kind = parser_for(document.id.path, parsers) or "plain"
    writer = _Writer(document, max(first, body))
    html = writer.markdown(body_lines) if kind == "markdown" else writer.plain(body_lines)
    if front.remark and body and first < body:
        # Frontmatter that could not be parsed is searched, and shown, as text.
        html = f'<pre data-lines="1-{body}">{escape(chr(10).join(lines[:body]))}</pre>\n{html}'
    # Last, since the sanitiser resolves entities to characters.
    safe = visible(sanitise(html, writer.resolver(name, find)))
    return Rendered(safe, (first + 1, max(last, first + 1)))


def _window(document: Document, lines: Sequence[str], at: int) -> tuple[int, int]:
    """Return the lines to render: all, or a part around one, from the start of a section if one is near."""
    if len(lines) <= MAX_LINES and len(document.text) <= MAX_CHARS:
        return 0, len(lines)
    first, last, size = at, at, 0
    while size < MAX_CHARS and last - first < MAX_LINES and (first > 0 or last < len(lines)):
        # A quarter of the part is context before the line.
        if last < len(lines) and (first == 0 or 3 * (at - first) >= last - at):
            size += len(lines[last]) + 1
            last += 1
        else:
            first -= 1
            size += len(lines[first]) + 1
    sections = [heading.lines[0] - 1 for heading in document.outline]
    # At the start of a section no list, quote or fence is cut in two.
    return next((each for each in sections if first and first <= each <= at), first), last


class _Writer:
    """Writes unsafe HTML."""

    def __init__(self, document: Document, first: int) -> None:
        self.document = document
        self.first = first
        self.anchors = {heading.lines[0]: heading.anchor for heading in document.outline}

    def plain(self, lines: list[str]) -> str:
        """Return paragraphs that keep their line breaks."""
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
        """Parse all blocks, then their inline content: a link may be defined below its use."""
        env: dict[str, Any] = {}
        tokens: list[Token] = []
        for block in blocks("\n".join(lines), env):
            tokens += block
        heading = False
        for token in tokens:
            self._set_attributes(token)
            if token.type == "inline":
                content = CUSTOM_ANCHOR.sub("", token.content) if heading else token.content
                token.children = _inlines(content, env)
            heading = token.type == "heading_open"
        classify_tags(tokens)
        return _Renderer().render(tokens, _inline().options, env)

    def resolver(self, name: str, find: Find) -> Callable[[str], str | None]:
        """Return a function that resolves addresses without a scheme to links into the library."""
        known: dict[str, str | None] = {}

        def resolve(address: str) -> str | None:
            if address not in known:
                known[address] = self._resolve(address, name, find)
            return known[address]

        return resolve

    def _resolve(self, address: str, name: str, find: Find) -> str | None:
        if address.startswith(_WIKI):
            style = Style.WIKI
            target, fragment = wiki_parts(address.removeprefix(_WIKI))
        else:
            style = Style.MARKDOWN
            target, _, fragment = address.partition("#")
            fragment = unquote(fragment)
        document = find(keys_for(target, self.document.id, style)) if target else name
        if document is None:
            return None
        return f"{SCHEME}:{quote(document)}" + (f"#{quote(fragment)}" if fragment else "")

    def _set_attributes(self, token: Token) -> None:
        if token.map is None or token.nesting < 0 or token.type == "inline":
            return
        begin, end = token.map[0] + self.first + 1, token.map[1] + self.first
        token.attrSet("data-lines", f"{begin}-{max(begin, end)}")
        if token.type == "heading_open" and (anchor := self.anchors.get(begin)):
            # With the prefix already: the sanitiser adds it only where it is missing.
            token.attrSet("id", ID_PREFIX + anchor)


@cache
def _inline() -> Inline:
    return Inline(text=True)


def _inlines(content: str, env: MutableMapping[str, Any]) -> list[Token]:
    if too_costly(content):
        return [Token("text", "", 0, content=content)]
    return _inline().tokens(content, env)


class _Renderer(RendererHTML):
    """The HTML renderer of markdown-it, adapted for notes and websites."""

    def fence(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        return self.code_block(tokens, at, options, env)

    def code_block(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        token = tokens[at]
        lines = escape(str(token.attrs.get("data-lines", "")))
        return f'<pre data-lines="{lines}"><code>{escape(token.content)}</code></pre>\n'

    def html_block(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        # Not around the block: a later block may close a tag that it opens.
        lines = escape(str(tokens[at].attrs.get("data-lines", "")))
        return f'<span data-lines="{lines}"></span>{tokens[at].content}'

    def html_inline(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        return tokens[at].content

    def image(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        token = tokens[at]
        alt = self.renderInlineAsText(token.children or [], options, env)
        name = str(token.attrs.get("src", "")).rpartition("/")[2]
        return _image(alt or (name if is_media(name) else ""))

    def wikilink(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        token = tokens[at]
        target, label = str(token.meta["target"]), token.content
        if token.meta["embeds"] and is_media(target):
            return _image(label)
        return f'<a href="{escape(_WIKI + target)}">{escape(label)}</a>'

    def shortcode(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        return escape(shortcode_text(tokens[at].content))

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
        """Write an entity or an escaped character as the character."""
        return escape(tokens[at].content)

    def th_open(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        return self._cell(tokens[at])

    def td_open(self, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any) -> str:
        return self._cell(tokens[at])

    def _cell(self, token: Token) -> str:
        # The sanitiser removes styles, so the alignment becomes an attribute.
        side = str(token.attrs.get("style", "")).partition("text-align:")[2]
        return f'<{token.tag} align="{escape(side)}">' if side else f"<{token.tag}>"


def _image(alt: str) -> str:
    return f'<img alt="{escape(alt)}">'


def sanitise(html: str, resolve: Callable[[str], str | None]) -> str:
    """Remove everything that runs, loads, sends or imitates the page around the document.

    `resolve` returns the address of a link without a scheme; None removes the link.
    """
    return _cleaner(resolve).clean(html)


def _cleaner(resolve: Callable[[str], str | None]) -> nh3.Cleaner:
    import nh3

    return nh3.Cleaner(
        tags=set(ALLOWED),
        clean_content_tags=set(REMOVED),
        attributes={tag: set(names) for tag, names in _ATTRIBUTES.items()},
        url_schemes={"http", "https", "mailto", SCHEME},
        url_relative=resolve,
        link_rel="noopener noreferrer",
        set_tag_attribute_values={"a": {"target": "_blank"}},
        id_prefix=ID_PREFIX,
        strip_comments=True,
    )
