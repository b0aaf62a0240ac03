"""Render a document as sanitised HTML: blocks with their lines, headings with anchors, resolved links, images, embeds.

The output of markdown-it is unsafe until nh3 has removed everything that runs, loads or sends. What we generate
ourselves, such as coloured code and formulas, replaces placeholders afterwards; their random names cannot be written by
a document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from html import escape
from itertools import pairwise
from secrets import token_hex
from textwrap import dedent
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from marklight.formatting import visible
from marklight.ingest import frontmatter
from marklight.ingest.links import is_attachment, is_image, is_media, keys_for, wiki_parts
from marklight.ingest.parse import ParsedText, Style, parser
from marklight.ingest.parse.inline import CUSTOM_ANCHOR, too_costly
from marklight.ingest.parse.markdown import blocks, code_language
from marklight.ingest.recipe import PARSERS, parser_for
from marklight.ingest.render.generated import code_html, formula_html
from marklight.ingest.render.syntax import block_parser, callouts, move_footnotes, render_inline
from marklight.ingest.render.tags import ID_PREFIX, SCHEME, classify_tags, sanitise
from marklight.lazy import dataclass
from marklight.model import Document
from marklight.text.markdown import shortcode_text, without_comments

MAX_LINES = 4_000
MAX_CHARS = 400_000
"""Only a part of a longer document is rendered: a browser's layout takes a thousand times the memory of the text."""
MAX_EMBEDS = 40
MAX_EMBED_CHARS = 20_000
MAX_GENERATED_CHARS = 200_000
"""Characters of code and formulas of a document that are converted; the rest is plain."""
IMAGES = "/api/files/"
"""Prefix of the addresses of images."""
ATTACHMENTS = "/api/attachments/"
"""Prefix of the addresses of PDFs and audio files."""
_TASK = re.compile(r"\[([ xX])\]\s")
_SIZE = re.compile(r"(\d{1,4})(?:x(\d{1,4}))?")
_LENGTH = re.compile(r"\d{1,4}(?:px|%)?")
_WIKI = "./[["
"""Prefix of the target of a wikilink on its way through the sanitiser: no address of Markdown begins so."""
_SHORTCODE_NAME = re.compile(r"\{\{[<%]\s*([\w./-]+)")


class Embed(NamedTuple):
    """An embedded document, its name in links, and what it links to."""

    document: Document
    name: str
    library: Neighbours


class Neighbours:
    """Resolve references of a document to other documents and to files. By default none is resolved."""

    def find(self, keys: tuple[str, ...]) -> str | None:
        """Return the name of the document that a link with these keys leads to; None if there is none."""
        return None

    def file(self, target: str, *, wiki: bool) -> str | None:
        """Return the name of an image or attachment for a target as written; None if there is none."""
        return None

    def embed(self, keys: tuple[str, ...]) -> Embed | None:
        """Return the document to embed; None if there is none."""
        return None


@dataclass(frozen=True, slots=True)
class Rendered:
    """HTML, and the lines of the document that it contains."""

    html: str
    lines: tuple[int, int]


def render(
    document: Document,
    name: str,
    library: Neighbours,
    line: int = 1,
    parsers: Mapping[str, str] = PARSERS,
) -> Rendered:
    """Render a document, or the part of a long one around a line; `name` is its name in links to itself."""
    kind = parser_for(document.id.path, parsers) or "plain"
    front = frontmatter.split(document.text)
    text = document.text
    if kind == "markdown":
        text = without_comments(text, 0)[0]
    lines = text.split("\n")
    body = min(front.lines, len(lines))
    first, last = _window(document, lines, min(max(line - 1, 0), len(lines) - 1))
    body_lines = lines[max(first, body) : last]
    writer = _Writer(document, name, library, max(first, body))
    html = writer.markdown(body_lines) if kind == "markdown" else writer.plain(body_lines)
    if body and first < body:
        if front.remark:
            # Frontmatter that could not be parsed is searched, and shown, as text.
            source = document.text.split("\n")[:body]
            html = f'<pre data-lines="1-{body}">{escape(chr(10).join(source))}</pre>\n{html}'
        elif front.values:
            html = _properties(front.values, body) + html
    return Rendered(writer.finish(html), (first + 1, max(last, first + 1)))


def _properties(values: Mapping[str, Any], lines: int) -> str:
    """Return a table of the frontmatter."""
    rows = "".join(
        f'<tr><th scope="row">{escape(key[:200])}</th><td>{escape(_value(value)[:1000])}</td></tr>'
        for key, value in list(values.items())[:50]
    )
    return (
        f'<details data-properties="" data-lines="1-{lines}"><summary>Properties</summary>'
        f"<table>{rows}</table></details>\n"
    )


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_value, value[:50]))
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_value(each)}" for key, each in list(value.items())[:50])
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _window(document: Document, lines: Sequence[str], line: int) -> tuple[int, int]:
    """Return the lines to render: all, or a part around one, from the start of a section if one is near."""
    if len(lines) <= MAX_LINES and len(document.text) <= MAX_CHARS:
        return 0, len(lines)
    first, last, size = line, line, 0
    while size < MAX_CHARS and last - first < MAX_LINES and (first > 0 or last < len(lines)):
        # A quarter of the part is context before the line.
        if last < len(lines) and (first == 0 or 3 * (line - first) >= last - line):
            size += len(lines[last]) + 1
            last += 1
        else:
            first -= 1
            size += len(lines[first]) + 1
    sections = [heading.lines[0] - 1 for heading in document.outline]
    # At the start of a section no list, quote or fence is cut in two.
    return next((start for start in sections if first and first <= start <= line), first), last


class _Writer:
    """Writes the HTML of a document, or of one that it embeds, without line numbers and ids."""

    def __init__(
        self, document: Document, name: str, library: Neighbours, first: int, embedded: bool = False
    ) -> None:
        self.document = document
        self.name = name
        self.library = library
        self.first = first
        self.embedded = embedded
        self.anchors = {heading.lines[0]: heading.anchor for heading in document.outline}
        self._secret = token_hex(8)
        self._generated: list[str] = []
        self._embeds = 0
        self._budget = MAX_GENERATED_CHARS

    def plain(self, lines: list[str]) -> str:
        """Return paragraphs that keep their line breaks."""
        parsed = ParsedText("\n".join(lines))
        parser("plain").parse(parsed)
        begins = [block.line for block in parsed.blocks]
        written = []
        for begin, end in pairwise((*begins, len(lines))):
            text = "\n".join(lines[begin:end]).rstrip()
            last = begin + text.count("\n") + 1
            place = f"{begin + self.first + 1}-{last + self.first}"
            written.append(f'<p data-lines="{place}" data-plain="">{escape(text)}</p>')
        return "\n".join(written)

    def markdown(self, lines: list[str]) -> str:
        """Parse all blocks, then their inline content: a link may be defined below its use."""
        env: dict[str, Any] = {}
        tokens: list[Token] = []
        for block in blocks("\n".join(lines), env, block_parser()):
            tokens += block
        tokens = callouts(tokens)
        heading = False
        for index, token in enumerate(tokens):
            self._set_attributes(token)
            if token.type == "inline":
                content = CUSTOM_ANCHOR.sub("", token.content) if heading else token.content
                if index and tokens[index - 1].type == "paragraph_open":
                    content = _without_task(content, tokens, index)
                token.children = (
                    [Token("text", "", 0, content=content)]
                    if too_costly(content)
                    else render_inline().tokens(content, env)
                )
                self._mark_embed(tokens, index)
            heading = token.type == "heading_open"
        tokens = move_footnotes(tokens, env)
        classify_tags(tokens, self.image)
        return _renderer(self).render(tokens, render_inline().options, env)

    def finish(self, html: str) -> str:
        """Return safe HTML: sanitised, with what we generated in place of its placeholders."""
        safe = sanitise(html, cache(self._resolve), f"./{self._secret}")
        whole = re.sub(
            f"\ue000{self._secret}\\.(\\d+)\ue001",
            lambda match: self._generated[int(match[1])],
            safe,
        )
        # Last, since the sanitiser resolves entities to characters.
        return visible(whole)

    def generated(self, html: str) -> str:
        """Return a placeholder for safe HTML."""
        self._generated.append(html)
        return f"\ue000{self._secret}.{len(self._generated) - 1}\ue001"

    def code(self, code: str, language: str) -> str:
        """Return a coloured code block."""
        self._budget -= len(code)
        return self.generated(code_html(code, language if self._budget > 0 else ""))

    def formula(self, latex: str, *, display: bool) -> str:
        """Return a formula."""
        self._budget -= 10 * len(latex)
        if self._budget < 0:
            return f"<code>{escape(latex)}</code>"
        return self.generated(formula_html(latex, display=display))

    def image(self, attributes: Mapping[str, str], *, wiki: bool = False) -> str:
        """Return an image of the collection; a box for one that is missing or on another machine."""
        source, alt = attributes.get("src", "").strip(), attributes.get("alt", "")
        target, _, fragment = source.partition("#")
        file = unquote(target).rpartition("/")[2]
        alt = alt or (file if is_media(file) else "")  # other addresses are no names
        host = _host(source)
        if host is not None:
            return f'<span data-image="{escape(host)}" data-src="{escape(source)}">{escape(alt)}</span>'
        if is_attachment(target):
            return self.attachment(target, alt, wiki=wiki)
        name = self.library.file(target, wiki=wiki) if target else None
        if name is None:
            return f'<span data-image="">{escape(alt)}</span>'
        size = "".join(
            f' {side}="{value}"'
            for side in ("width", "height")
            if _LENGTH.fullmatch(value := attributes.get(side, ""))
        )
        icon = ' data-icon=""' if fragment.startswith("icon") else ""
        title = f' title="{escape(attributes["title"])}"' if attributes.get("title") else ""
        address = escape(f"./{self._secret}{name}")
        return f'<img src="{address}" alt="{escape(alt)}"{size}{icon}{title}>'

    def attachment(self, target: str, label: str, *, wiki: bool) -> str:
        """Return a labelled link to a PDF or an audio file; a label alone for one that is missing."""
        name = self.library.file(target, wiki=wiki)
        kind = escape(target.rpartition(".")[2].lower())
        if name is None:
            return f'<span data-file="{kind}">{escape(label)}</span>'
        return (
            f'<a href="{escape(f"./{self._secret}{name}")}" data-file="{kind}">{escape(label)}</a>'
        )

    def wikilink(self, token: Token) -> str:
        """Return a link, an image, a labelled file, or an embedded document."""
        target, label, embeds = str(token.meta["target"]), token.content, token.meta["embeds"]
        file, _, _ = target.partition("#")
        if embeds and is_image(file):
            size = _SIZE.fullmatch(label)
            given = {"src": target, "alt": "" if size or label == target else label}
            if size:
                given |= {"width": size[1], "height": size[2] or ""}
            return self.image(given, wiki=True)
        if (embeds and is_media(file)) or is_attachment(file):
            return self.attachment(file, label, wiki=True)
        if embeds and token.meta.get("block") and self._embeds < MAX_EMBEDS:
            self._embeds += 1
            if html := self._embed(target):
                return html
        if label == target:
            label = target.strip("#").replace("#^", "#").replace("#", " › ")
        return f'<a href="{escape(_WIKI + target)}">{escape(label)}</a>'

    def _embed(self, target: str) -> str:
        """Return an embedded document or a part of it; empty if there is none."""
        name, fragment = wiki_parts(target)
        found = self.library.embed(keys_for(name, self.document.id, Style.WIKI)) if name else None
        if not name:
            found = Embed(self.document, self.name, self.library)
        if found is None:
            return ""
        document = found.document
        lines = _embedded_lines(document, fragment)
        writer = _Writer(document, found.name, found.library, 0, embedded=True)
        writer._budget = min(self._budget, MAX_EMBED_CHARS * 2)
        self._budget -= sum(map(len, lines))
        address = f"{SCHEME}:{quote(found.name)}" + (f"#{quote(fragment)}" if fragment else "")
        title = document.title + (f" › {fragment.lstrip('^')}" if fragment else "")
        link = f'<a href="{escape(address)}">{escape(visible(title))}</a>'
        return self.generated(f"<p>{link}</p>" + writer.finish(writer.markdown(lines)))

    def _resolve(self, address: str) -> str | None:
        """Return the address of a document or an image for one without a scheme; None if it leads to none."""
        if address.startswith(f"./{self._secret}"):
            return _file_address(address[2 + len(self._secret) :])
        if address.startswith(_WIKI):
            style = Style.WIKI
            target, fragment = wiki_parts(address.removeprefix(_WIKI))
        else:
            style = Style.MARKDOWN
            target, _, fragment = address.partition("#")
            fragment = unquote(fragment)
        document = (
            self.library.find(keys_for(target, self.document.id, style)) if target else self.name
        )
        if document is not None:
            return f"{SCHEME}:{quote(document)}" + (f"#{quote(fragment)}" if fragment else "")
        file = self.library.file(target, wiki=style is Style.WIKI)
        return _file_address(file) if file is not None else None

    def _set_attributes(self, token: Token) -> None:
        if token.map is None or token.nesting < 0 or token.type == "inline" or self.embedded:
            return
        begin, end = token.map[0] + self.first + 1, token.map[1] + self.first
        token.attrSet("data-lines", f"{begin}-{max(begin, end)}")
        if token.type == "heading_open" and (anchor := self.anchors.get(begin)):
            # With the prefix already: the sanitiser adds it only where it is missing.
            token.attrSet("id", ID_PREFIX + anchor)

    def _mark_embed(self, tokens: Sequence[Token], index: int) -> None:
        """Turn a paragraph that is one embed into a block for it."""
        children = tokens[index].children or []
        if len(children) != 1 or children[0].type != "wikilink" or not index:
            return
        opened, meta = tokens[index - 1], children[0].meta
        if (
            opened.type == "paragraph_open"
            and meta["embeds"]
            and not is_media(meta["target"].partition("#")[0])
        ):
            meta["block"] = not self.embedded
            if meta["block"] and index + 1 < len(tokens):
                opened.tag = tokens[index + 1].tag = "div"
                opened.hidden = tokens[index + 1].hidden = False
                opened.attrSet("data-embed", "")


def _file_address(name: str) -> str:
    return (ATTACHMENTS if is_attachment(name) else IMAGES) + quote(name)


def _host(address: str) -> str | None:
    """Return the host of an address on another machine, empty for data; None for a path."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return (parts.hostname or parts.scheme) if parts.scheme or parts.netloc else None


def _embedded_lines(document: Document, fragment: str) -> list[str]:
    """Return the lines of a document, of a section, or of the block with an id."""
    text = without_comments(document.text, 0)[0]
    lines = text.split("\n")
    first, last = frontmatter.split(document.text).lines, len(lines)
    wanted = fragment.lower()
    if fragment.startswith("^"):
        line = document.blocks.get(wanted[1:])
        first, last = _block_lines(lines, first, line - 1) if line else (0, 0)
    elif fragment:
        headings = (
            each for each in document.outline if wanted in (each.text.lower(), each.anchor.lower())
        )
        heading = next(headings, None)
        first, last = (heading.lines[0] - 1, heading.lines[1]) if heading else (0, 0)
    part = "\n".join(lines[first:last])[:MAX_EMBED_CHARS]
    return dedent(part).split("\n")


def _block_lines(lines: Sequence[str], first: int, line: int) -> tuple[int, int]:
    """Return the lines of the innermost list item, or of the block, at a line."""
    found = above = (line, line + 1)
    for block in blocks("\n".join(lines[first:]), {}, block_parser()):
        for token in block:
            if token.map and (not token.level or token.type == "list_item_open"):
                begin, end = token.map[0] + first, token.map[1] + first
                if begin <= line < end:
                    found = begin, end
        # An id on a line of its own belongs to the block above.
        if found[0] == line and lines[line].strip().startswith("^"):
            return above
        if block[0].map:
            above = block[0].map[0] + first, block[0].map[1] + first
    return found


def _without_task(content: str, tokens: Sequence[Token], index: int) -> str:
    """Return the text of a list item without the mark of a task, which becomes an attribute of the item."""
    task = _TASK.match(content)
    if not task or index < 2 or tokens[index - 2].type != "list_item_open":
        return content
    tokens[index - 2].attrSet("data-task", "open" if task[1] == " " else "done")
    return f"{'☐' if task[1] == ' ' else '☑'} {content[task.end() :]}"


_Rule = Callable[["_Writer", Token], str]
"""Writes the HTML of a token."""


def _code(writer: _Writer, token: Token) -> str:
    language = code_language(token)
    named = f' data-language="{escape(language)}"' if language else ""
    code = writer.code(token.content, language)
    return f"<pre{_place(token)}{named}><code>{code}</code></pre>\n"


def _html_block(_: _Writer, token: Token) -> str:
    # Not around the block: a later block may close a tag that it opens.
    place = _place(token)
    return (f"<span{place}></span>" if place else "") + token.content


def _image(writer: _Writer, token: Token) -> str:
    alt = RendererHTML().renderInlineAsText(token.children or [], render_inline().options, {})
    given = {"src": str(token.attrs.get("src", "")), "title": str(token.attrs.get("title", ""))}
    text, bar, size = alt.rpartition("|")
    if bar and (match := _SIZE.fullmatch(size.strip())):
        alt = text
        given |= {"width": match[1], "height": match[2] or ""}
    return writer.image({**given, "alt": alt})


def _shortcode(_: _Writer, token: Token) -> str:
    if text := shortcode_text(token.content):
        return escape(text)
    name = _SHORTCODE_NAME.match(token.content)
    return f'<span data-chip="">{escape(name[1])}</span>' if name and name[1][0] != "/" else ""


def _formula_block(writer: _Writer, token: Token) -> str:
    formula = writer.formula(token.content, display=True)
    return f'<div data-formula=""{_place(token)}>{formula}</div>\n'


def _footnote_reference(_: _Writer, token: Token) -> str:
    number, which = _footnote(token)
    return f'<sup><a href="#fn-{number}" id="fnref-{number}{which}">{number}</a></sup>'


def _footnote_anchor(_: _Writer, token: Token) -> str:
    number, which = _footnote(token)
    return f' <a href="#fnref-{number}{which}" title="Back to the text">↩</a>'


def _cell(_: _Writer, token: Token) -> str:
    # The sanitiser removes styles, so the alignment becomes an attribute.
    side = str(token.attrs.get("style", "")).partition("text-align:")[2]
    return f'<{token.tag} align="{escape(side)}">' if side else f"<{token.tag}>"


_RULES: Mapping[str, _Rule] = {
    "code_block": _code,
    "fence": _code,
    "html_block": _html_block,
    "html_inline": lambda _, token: token.content,
    "image": _image,
    "wikilink": _Writer.wikilink,
    "shortcode": _shortcode,
    "include": lambda _, token: f'<span data-chip="">{escape(token.content)}</span>',
    "math_inline": lambda writer, token: writer.formula(token.content, display=False),
    "math_inline_double": lambda writer, token: writer.formula(token.content, display=True),
    "math_block": _formula_block,
    "footnote_ref": _footnote_reference,
    "footnote_block_open": lambda *_: '<div data-footnotes=""><ol>\n',
    "footnote_block_close": lambda *_: "</ol></div>\n",
    "footnote_open": lambda _, token: f'<li id="fn-{_footnote(token)[0]}">',
    "footnote_close": lambda *_: "</li>\n",
    "footnote_anchor": _footnote_anchor,
    "tag": lambda _, token: escape(token.content),
    # An entity or an escaped character is written as the character.
    "text_special": lambda _, token: escape(token.content),
    "block_id": lambda *_: "",
    "th_open": _cell,
    "td_open": _cell,
}
"""Rules for notes and websites, in place of those of markdown-it."""


def _renderer(writer: _Writer) -> RendererHTML:
    """Return the renderer of markdown-it with our rules."""
    renderer = RendererHTML()
    for name, rule in _RULES.items():
        renderer.rules[name] = lambda tokens, index, *_, rule=rule: rule(writer, tokens[index])  # type: ignore[assignment]
    return renderer


def _place(token: Token) -> str:
    """Return the attribute with the lines of a block; empty in an embedded document."""
    lines = escape(str(token.attrs.get("data-lines", "")))
    return f' data-lines="{lines}"' if lines else ""


def _footnote(token: Token) -> tuple[int, str]:
    """Return the number of a footnote, and what tells a further reference to it from the first."""
    which = token.meta.get("subId") or 0
    return token.meta["id"] + 1, f"-{which}" if which > 0 else ""
