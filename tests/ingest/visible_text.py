"""Compare the visible text of a rendered document with that of markdown-it's own HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

from markdown_it import MarkdownIt
from mdit_py_plugins.admon import admon_plugin
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.subscript import sub_plugin
from mdit_py_plugins.superscript import superscript_plugin

from marklight.formatting import visible
from marklight.ingest import frontmatter
from marklight.ingest.document import parse_document
from marklight.ingest.read import Source
from marklight.ingest.render import MAX_CHARS, MAX_LINES, Neighbours, render
from marklight.model import Document, DocumentId, FileState

_SEPARATE = frozenset(
    "p div br hr li ul ol td th tr table thead tbody h1 h2 h3 h4 h5 h6 pre blockquote dt dd dl summary details "
    "figure figcaption caption center section".split()
)
_HIDDEN = frozenset(("script", "style", "iframe", "math"))

EXPLAINED = {
    "task": re.compile(r"(?:\{#[\w.-]+\} )?\[[ xX]?\]? => [☐☑]"),
    "image by its file name": re.compile(
        r"(\{ ?#[\w.-]+ ?\} )?=> (\S+\.(png|jpe?g|gif|svg|webp)(\?\S*)?( (?=\S)|$))+|=> (\{\{.*\}\}|image)"
    ),
    "anchor of a heading": re.compile(r"\{ ?#[\w.-]+ ?\} =>"),
    "wikilink": re.compile(r"(?s).*\[\[.*=>.*"),
    "shortcode": re.compile(r'(?s).*\{\{.*=>.*|.*[%>]\}\}.*=>.*|.*" \w+=".*=>.*|(\S+) => `\1`'),
    "callout": re.compile(
        r"(?s)(> )*\[!.*=>.*|=> \w+|\"(\S+) => \2|(///|:::|!!!|\?\?\?).*=>.*|.*(///|:::) =>.*"
    ),
    "dollar that begins no formula": re.compile(r"(?s).*=> .*\$.*"),
    "include": re.compile(r"(?s).*\{[%*].*=>.*"),
    "comment": re.compile(r"(?s).*%%.*=>.*|<!--.*--> =>"),
    "mark": re.compile(r"(?s).*==.*=>.*"),
    "block id": re.compile(r"\^[\w-]+ =>"),
}
"""Intended differences, by the words of markdown-it and ours: `[ ] => ☐`."""

_ANCHOR = re.compile(r"\{ ?#[\w.-]+ ?\} (?=\S)")
_IMAGE_BOX = re.compile(r"<span data-image=[^>]*>[^<]*</span>")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.hidden: list[str] = []
        """The element that is hidden, once for each of its name inside it."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if self.hidden:
            self.hidden += [tag] * (tag == self.hidden[0])
        elif tag in _HIDDEN or _is_apparatus(tag, given):
            self.hidden.append(tag)
        elif tag == "img":
            self.parts.append(f" {given.get('alt') or ''} ")
        elif tag in _SEPARATE:
            self.parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if self.hidden:
            if tag == self.hidden[0]:
                self.hidden.pop()
        elif tag in _SEPARATE:
            self.parts.append(" ")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.parts.append(data)


def _is_apparatus(tag: str, attributes: dict[str, str | None]) -> bool:
    """Return true for formulas, marks of footnotes, properties and chips: they are no words of the text."""
    names = (attributes.get("class") or "").split()
    return (
        tag == "math"
        or "math" in names
        or "footnote-ref" in names
        or "footnote-backref" in names
        or (attributes.get("id") or "").startswith("part-fnref")
        or attributes.get("title") == "Back to the text"
        or "data-properties" in attributes
        or "data-chip" in attributes
    )


def words(html: str) -> list[str]:
    """Return the words of HTML that a reader sees; images count by their descriptions."""
    parser = _Words()
    parser.feed(_IMAGE_BOX.sub(r" \g<0> ", html))
    parser.close()
    return "".join(parser.parts).split()


def read_document(path: Path) -> Document:
    """Read and parse a Markdown file."""
    text = path.read_text(errors="replace").replace("\r\n", "\n")
    return parse_document(DocumentId("default", path.name), Source(text, FileState(1, 1)))[0]


def differences(document: Document) -> Iterator[tuple[str, str]]:
    """Return each difference as `theirs => ours`, with its explanation or an empty string."""
    lines = document.text.split("\n")
    if len(lines) > MAX_LINES or len(document.text) > MAX_CHARS:
        return  # shown in parts
    ours = words(render(document, document.id.path, Neighbours()).html)
    body = "\n".join(lines[frontmatter.split(document.text).lines :])
    theirs = words(visible(_markdown().render(body)))
    if ours == theirs:
        return
    matcher = SequenceMatcher(None, theirs, ours, autojunk=len(theirs) > 5_000)
    for operation, first, last, our_first, our_last in matcher.get_opcodes():
        if operation != "equal":
            yield _explained(" ".join(theirs[first:last]), " ".join(ours[our_first:our_last]))


def _explained(theirs: str, ours: str) -> tuple[str, str]:
    difference = f"{theirs} => {ours}".strip()
    without_tags = _TAG.sub("", ours)
    if without_tags.replace(" ", "") == _TAG.sub("", theirs).replace(" ", ""):
        return difference, "tag as text"
    rest = f"{_ANCHOR.sub('', theirs)} => {without_tags.strip()}".strip()
    reasons = (name for name, pattern in EXPLAINED.items() if pattern.fullmatch(rest))
    return difference, next(reasons, "")


@cache
def _markdown() -> MarkdownIt:
    md = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for plugin in (footnote_plugin, deflist_plugin, admon_plugin, sub_plugin, superscript_plugin):
        plugin(md)
    dollarmath_plugin(md, allow_space=False, allow_digits=False, double_inline=True)
    return md
