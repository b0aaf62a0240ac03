"""Sanitise HTML, and decide which tags of a document are markup.

People write `kubectl get <name>` and `the <title> element` without code marks. A browser would drop the first and hide
everything after the second. So a tag is markup only if HTML has the element and the document closes it, or it has
attributes; every other one is text, as in GitHub's list of filtered tags.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from html.parser import HTMLParser

from markdown_it.token import Token

from marklight.lazy import dataclass

SCHEME = "marklight"
"""The scheme of links to documents of the library: `marklight:guide/auth.md#expiry`."""
ID_PREFIX = "part-"
"""Prefix of every id: `<a id="forms">` in a document must not become `document.forms` of the page around it."""
WriteImage = Callable[[dict[str, str]], str]
"""Returns the HTML of an image with these attributes."""

_ATTRIBUTES = {
    "*": {"id", "title", "lang", "dir", "data-lines", "data-plain"},
    "a": {"href", "data-file"},
    "img": {"alt", "src", "width", "height", "data-icon"},
    "ol": {"start"},
    "li": {"data-task"},
    "pre": {"data-language"},
    "td": {"align", "colspan", "rowspan"},
    "th": {"align", "colspan", "rowspan", "scope"},
    "details": {"open", "data-callout", "data-properties"},
    "div": {"data-callout", "data-embed", "data-footnotes", "data-formula"},
    "span": {"data-image", "data-src", "data-file", "data-chip"},
    "p": {"data-title"},
    "time": {"datetime"},
}


def sanitise(html: str, resolve: Callable[[str], str | None], image_prefix: str) -> str:
    """Remove everything that runs, loads, sends or imitates the page around the document.

    `resolve` returns the address of a link or an image without a scheme; None removes it. Only images whose address
    begins with the prefix, which no document can write, are loaded.
    """
    import nh3

    def check(_: str, attribute: str, value: str) -> str | None:
        return value if attribute != "src" or value.startswith(image_prefix) else None

    cleaner = nh3.Cleaner(
        tags=set(ALLOWED),
        clean_content_tags=set(REMOVED),
        attributes={tag: set(names) for tag, names in _ATTRIBUTES.items()},
        attribute_filter=check,
        url_schemes={"http", "https", "mailto", SCHEME},
        url_relative=resolve,
        link_rel="noopener noreferrer",
        set_tag_attribute_values={"a": {"target": "_blank"}},
        id_prefix=ID_PREFIX,
        strip_comments=True,
    )
    return cleaner.clean(html)


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

    def html(self, image: WriteImage) -> str:
        """Return the tag as HTML, as escaped text, or nothing; `image` writes those of images."""
        if not self._is_markup():
            return escape(self.source)
        if self.name == "img":
            return image(_attributes(self.source))
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


def _pair(tags: Iterable[_Tag], open_tags: dict[str, list[_Tag]]) -> None:
    """Pair closing tags with the last tag of that name that is open."""
    for tag in tags:
        if not tag.closing:
            if tag.name not in _VOID and not tag.is_sentence:
                open_tags.setdefault(tag.name, []).append(tag)
        elif opened := open_tags.get(tag.name):
            tag.partner = opened.pop()
            tag.partner.partner = tag


def classify_tags(tokens: Sequence[Token], image: WriteImage) -> None:
    """Rewrite the HTML in the tokens of a document, whose inline content is parsed, so that all of it is markup.

    What only looks like a tag becomes escaped text.
    """
    open_tags: dict[str, list[_Tag]] = {}
    blocks: list[tuple[Token, list[str | _Tag]]] = []
    paragraphs: list[tuple[Token, list[_Tag]]] = []
    count = 0
    for token in tokens:
        tags: list[_Tag] = []
        if token.type == "html_block":
            pieces = _split(token.content)
            blocks.append((token, pieces))
            tags = [piece for piece in pieces if isinstance(piece, _Tag)]
        elif token.children and (tags := _paragraph_tags(token.children)):
            # Pairs of one paragraph first: the rest may belong to a block, like `<details>` above.
            _pair(tags, {})
            paragraphs.append((token, tags))
        count += len(tags)
        for tag in tags:
            tag.beyond_limit = count > _MAX_TAGS or len(tag.source) > _MAX_TAG_CHARS
        _pair([tag for tag in tags if tag.partner is None], open_tags)
    for token, pieces in blocks:
        token.content = "".join(
            other if isinstance(other, str) else other.html(image) for other in pieces
        )
    for token, tags in paragraphs:
        assert token.children is not None
        token.children = _with_tags(token.children, tags, image)


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


def _with_tags(children: Sequence[Token], tags: Sequence[_Tag], image: WriteImage) -> list[Token]:
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
            child.content = tag.html(image)
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


def _attributes(source: str) -> dict[str, str]:
    """Return the attributes of a tag."""
    found: dict[str, str] = {}

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.update({name: value or "" for name, value in attrs})

    reader = Reader(convert_charrefs=True)
    reader.feed(source)
    reader.close()
    return found
