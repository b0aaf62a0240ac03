"""Render a document as sanitised HTML: blocks with their lines, headings with anchors, resolved links.

The output of markdown-it is unsafe until nh3 has removed everything that runs, loads or sends.

People write `kubectl get <name>` and `the <title> element` without code marks. A browser would drop the first and hide
everything after the second. So a tag is markup only if HTML has the element and the document closes it, or it has
attributes; every other one is text, as in GitHub's list of filtered tags.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from marklight.formatting import visible
from marklight.ingest import frontmatter
from marklight.ingest.links import is_media, keys_for, wiki_parts
from marklight.ingest.parse import ParsedText, Style, parser
from marklight.ingest.parse.inline import CUSTOM_ANCHOR, Inline, too_costly
from marklight.ingest.parse.markdown import blocks
from marklight.ingest.recipe import PARSERS, parser_for
from marklight.model import Document
from marklight.text.markdown import shortcode_text

if TYPE_CHECKING:
    import nh3
from dataclasses import field

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
    """Writes unsafe HTML."""

    def __init__(self, document: Document, first: int) -> None:
        self.document = document
        self.first = first
        self.anchors = {heading.lines[0]: heading.anchor for heading in document.outline}

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
        addresses: dict[str, str | None] = {}

        def resolve(address: str) -> str | None:
            if address not in addresses:
                addresses[address] = self._resolve(address, name, find)
            return addresses[address]

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

    def fence(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any) -> str:
        return self.code_block(tokens, index, options, env)

    def code_block(
        self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
    ) -> str:
        token = tokens[index]
        lines = escape(str(token.attrs.get("data-lines", "")))
        return f'<pre data-lines="{lines}"><code>{escape(token.content)}</code></pre>\n'

    def html_block(
        self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
    ) -> str:
        # Not around the block: a later block may close a tag that it opens.
        lines = escape(str(tokens[index].attrs.get("data-lines", "")))
        return f'<span data-lines="{lines}"></span>{tokens[index].content}'

    def html_inline(
        self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
    ) -> str:
        return tokens[index].content

    def image(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any) -> str:
        token = tokens[index]
        alt = self.renderInlineAsText(token.children or [], options, env)
        name = str(token.attrs.get("src", "")).rpartition("/")[2]
        return _image(alt or (name if is_media(name) else ""))

    def wikilink(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any) -> str:
        token = tokens[index]
        target, label = str(token.meta["target"]), token.content
        if token.meta["embeds"] and is_media(target):
            return _image(label)
        return f'<a href="{escape(_WIKI + target)}">{escape(label)}</a>'

    def shortcode(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any) -> str:
        return escape(shortcode_text(tokens[index].content))

    def tag(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any) -> str:
        return escape(tokens[index].content)

    def block_id(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any) -> str:
        return ""

    def text(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any) -> str:
        content = tokens[index].content
        if index == 0 and (task := _TASK.match(content)):
            content = f"{'☐' if task[1] == ' ' else '☑'} {content[task.end() :]}"
        return escape(content)

    def text_special(
        self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any
    ) -> str:
        """Write an entity or an escaped character as the character."""
        return escape(tokens[index].content)

    def th_open(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any) -> str:
        return self._cell(tokens[index])

    def td_open(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any) -> str:
        return self._cell(tokens[index])

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


ALLOWED = frozenset(
    "a abbr b bdi blockquote br caption cite code col colgroup dd del details dfn div dl dt em figcaption "
    "figure h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark ol p pre q rp rt ruby s samp small span strong sub "
    "summary sup table tbody td tfoot th thead time tr u ul var wbr".split()
)
"""Elements that are shown as such."""
_RAW = frozenset("script style title textarea xmp iframe noembed noframes plaintext".split())
"""Elements whose content a browser does not parse as HTML."""
REMOVED = _RAW | frozenset(
    "template object embed applet svg math select option audio video canvas frameset".split()
)
"""Elements that are removed with their content, which is not text of the document."""
_STRIPPED = frozenset(
    "acronym address area article aside base basefont bdo big body button center data datalist dialog dir fieldset "
    "font footer form frame head header hgroup html input label legend link main map marquee menu meta meter nav nobr "
    "noscript optgroup output param picture progress search section slot source strike track tt".split()
)
"""The other elements of HTML: their tags are removed, their content stays."""
_KNOWN = ALLOWED | REMOVED | _STRIPPED
_BREAKS = frozenset(("br", "hr", "wbr"))
_VOID = _BREAKS | frozenset(
    "area base basefont col embed frame img input link meta param source track".split()
)
_END_OPTIONAL = frozenset(("p", "li", "dt", "dd"))
_END_OPTIONAL_IN_BLOCK = _END_OPTIONAL | frozenset(
    "caption colgroup rp rt tbody td tfoot th thead tr".split()
)
_BOOLEAN = frozenset(
    "allowfullscreen async autofocus autoplay border checked controls defer disabled download hidden inert loop "
    "markdown multiple muted noshade nowrap open playsinline readonly required reversed selected".split()
)
"""Attributes that need no value; other words after a name are a sentence: `<link to the test>`."""

_PIECE = re.compile(
    r"<!--.*?-->|<\?.*?\?>|<!\[CDATA\[.*?\]\]>|<![A-Za-z][^>]*>"
    r"|<(?P<close>/?)(?P<name>[A-Za-z][\w.:-]*+)(?P<attributes>[\s/](?:[^<>\"']++|\"[^\"]*+\"|'[^']*+')*+)?>",
    re.DOTALL,
)
_END = {"<!--": "-->", "<?": "?>", "<![CDATA[": "]]>", "<!": ">"}
_MAX_TAGS = 20_000
"""Tags of a document beyond this are text: the work of a sanitiser may grow with their square."""
_MAX_TAG_CHARS = 10_000
"""A longer tag is text: the sanitiser compares its attributes with each other."""


@dataclass(slots=True, eq=False)
class _Tag:
    source: str
    name: str
    closing: bool
    attributes: str
    inline: bool
    token: Token | None = None
    partner: _Tag | None = None
    beyond_limit: bool = False

    @property
    def has_attributes(self) -> bool:
        return bool(self.attributes.strip(" \t\n/"))

    @property
    def is_sentence(self) -> bool:
        """Return true if the words after the name are no attributes: `<node name>`."""
        words = self.attributes.strip(" \t\n/").lower().split()
        return "=" not in self.attributes and not _BOOLEAN.issuperset(words)

    def html(self) -> str:
        """Return the tag as HTML, as escaped text, or nothing."""
        if not self._is_markup():
            return escape(self.source)
        if self.name not in ALLOWED and self.name not in REMOVED:
            return ""
        if self.partner or self.closing or self.name in _VOID or self._end_is_optional:
            return self.source
        # Without its end, the element would reach to the end of the document.
        return f"{self.source}</a>" if self.name == "a" else ""

    @property
    def _end_is_optional(self) -> bool:
        return self.name in (_END_OPTIONAL if self.inline else _END_OPTIONAL_IN_BLOCK)

    def _is_markup(self) -> bool:
        if self.beyond_limit or (self.partner is not None and self.partner.beyond_limit):
            return False
        if self.closing and self.partner is not None:
            return self.partner._is_markup()
        if self.name not in _KNOWN:
            # Components of documentation sites stand on lines of their own.
            complete = bool(self.partner) or "=" in self.attributes or self.attributes.endswith("/")
            return complete and not self.inline
        if self.closing:
            return not self.inline
        if self.is_sentence or self.name == "plaintext":
            return False
        if self.name in _VOID:
            return self.name in _BREAKS or self.has_attributes
        if self.name in REMOVED and self.inline:
            return self.has_attributes
        if self.name in _RAW:
            return False  # one that is closed was removed before
        return bool(self.partner) or self.has_attributes or self._end_is_optional


@dataclass(slots=True)
class _OpenTags:
    """Pairs closing tags with the last tag of that name that is open."""

    by_name: dict[str, list[_Tag]] = field(default_factory=dict)

    def add(self, tag: _Tag) -> None:
        """Add a tag: a closing one gets a partner, if there is one."""
        if not tag.closing:
            if tag.name not in _VOID and not tag.is_sentence:
                self.by_name.setdefault(tag.name, []).append(tag)
        elif opened := self.by_name.get(tag.name):
            tag.partner = opened.pop()
            tag.partner.partner = tag


def classify_tags(tokens: Sequence[Token]) -> None:
    """Rewrite the HTML in the tokens of a document, whose inline content is parsed, so that all of it is markup.

    What only looks like a tag becomes escaped text.
    """
    open_tags = _OpenTags()
    blocks: list[tuple[Token, list[str | _Tag]]] = []
    paragraphs: list[tuple[Token, list[_Tag]]] = []
    count = 0
    for token in tokens:
        tags: list[_Tag] = []
        if token.type == "html_block":
            pieces = _split(token.content)
            blocks.append((token, pieces))
            tags = unpaired = [piece for piece in pieces if isinstance(piece, _Tag)]
        elif token.children and (tags := _paragraph_tags(token.children)):
            # Pairs of one paragraph first: the rest may belong to a block, like `<details>` above.
            unpaired = _unpaired(tags)
            paragraphs.append((token, tags))
        count += len(tags)
        for tag in tags:
            tag.beyond_limit = count > _MAX_TAGS or len(tag.source) > _MAX_TAG_CHARS
        for tag in unpaired if tags else ():
            open_tags.add(tag)
    for token, pieces in blocks:
        token.content = "".join(
            other if isinstance(other, str) else other.html() for other in pieces
        )
    for token, tags in paragraphs:
        assert token.children is not None
        token.children = _with_tags(token.children, tags)


def _paragraph_tags(children: Sequence[Token]) -> list[_Tag]:
    tags = []
    for child in children:
        if child.type != "html_inline":
            continue
        match = _PIECE.fullmatch(child.content)
        if match and match["name"]:
            tag = _tag(match, inline=True)
            tag.token = child
            tags.append(tag)
        else:
            child.content = ""  # a comment, a declaration or a processing instruction
    return tags


def _unpaired(tags: Sequence[_Tag]) -> list[_Tag]:
    """Pair the tags of one paragraph; return those without a partner, in order."""
    open_tags = _OpenTags()
    for tag in tags:
        open_tags.add(tag)
    return [tag for tag in tags if tag.partner is None]


def _with_tags(children: Sequence[Token], tags: Sequence[_Tag]) -> list[Token]:
    """Write the tags into their tokens; leave out elements that are removed with their content."""
    by_token = {id(tag.token): tag for tag in tags}
    kept: list[Token] = []
    removed_until: Token | None = None
    for child in children:
        tag = by_token.get(id(child))
        if removed_until is not None:
            if child is removed_until:
                removed_until = None
            continue
        if tag is not None:
            child.content = tag.html()
            if tag.name in REMOVED and child.content == tag.source:
                removed_until = tag.partner.token if tag.partner and not tag.closing else None
                continue
        kept.append(child)
    return kept


def _split(html: str) -> list[str | _Tag]:
    """Split HTML into tags and the text between them; raw elements that are closed are left out."""
    pieces: list[str | _Tag] = []
    lower = html.lower()
    missing: set[str] = set()
    offset = 0
    while offset < len(html):
        start = html.find("<", offset)
        if start < 0:
            start = len(html)
        pieces.append(html[offset:start])
        if start == len(html):
            break
        match = _match(html, start, missing)
        if match is None:
            pieces.append("&lt;")
            offset = start + 1
            continue
        offset = match.end()
        if not match["name"]:
            continue
        tag = _tag(match, inline=False)
        if tag.name in _RAW and not tag.closing:
            end = lower.find(f"</{tag.name}", offset) if tag.name not in missing else -1
            close = html.find(">", end) if end >= 0 else -1
            if close >= 0:
                offset = close + 1
                continue
            missing.add(tag.name)
        pieces.append(tag)
    return pieces


def _match(html: str, start: int, missing: set[str]) -> re.Match[str] | None:
    """Match a tag or comment; an end that was searched in vain is not searched again."""
    for begin, end in _END.items():
        if html.startswith(begin, start):
            if end in missing or html.find(end, start) < 0:
                missing.add(end)
                return None
            return _PIECE.match(html, start)
    return _PIECE.match(html, start, start + _MAX_TAG_CHARS)


def _tag(match: re.Match[str], *, inline: bool) -> _Tag:
    return _Tag(
        match[0], match["name"].lower(), bool(match["close"]), match["attributes"] or "", inline
    )
