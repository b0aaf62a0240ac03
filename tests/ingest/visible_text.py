"""Compare the visible text of a rendered document with that of markdown-it's own HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

from markdown_it import MarkdownIt

from marklight.formatting import visible
from marklight.ingest import frontmatter
from marklight.ingest.document import parse_document
from marklight.ingest.read import Source
from marklight.ingest.render import MAX_CHARS, MAX_LINES, render
from marklight.model import Document, DocumentId, FileState

_SEPARATE = frozenset(
    "p div br hr li ul ol td th tr table thead tbody h1 h2 h3 h4 h5 h6 pre blockquote dt dd dl summary details "
    "figure figcaption caption center section".split()
)
_HIDDEN = frozenset(("script", "style", "iframe"))

EXPLAINED = {
    "task": re.compile(r"(?:\{#[\w.-]+\} )?\[[ xX]?\]? => [☐☑]"),
    "image by its file name": re.compile(r"=> \S+\.(png|jpe?g|gif|svg|webp)(\?\S*)?"),
    "anchor of a heading": re.compile(r"\{ ?#[\w.-]+ ?\} =>"),
    "wikilink": re.compile(r"(?s).*\[\[.*=>.*"),
    "shortcode": re.compile(r'(?s).*\{\{.*=>.*|.*[%>]\}\}.*=>.*|.*" \w+=".*=>.*|(\S+) => `\1`'),
    "block id": re.compile(r"\^[\w-]+ =>"),
}
"""Intended differences, by the words of markdown-it and ours: `[ ] => ☐`."""

_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden += tag in _HIDDEN
        if tag == "img":
            self.parts.append(f" {dict(attrs).get('alt') or ''} ")
        elif tag in _SEPARATE:
            self.parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in _HIDDEN and self.hidden > 0
        if tag in _SEPARATE:
            self.parts.append(" ")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.parts.append(data)


def words(html: str) -> list[str]:
    """Return the words of HTML that a reader sees; images count by their descriptions."""
    parser = _Words()
    parser.feed(html)
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
    ours = words(render(document, document.id.path, lambda _: None).html)
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
    rest = f"{theirs} => {without_tags.strip()}".strip()
    reasons = (name for name, pattern in EXPLAINED.items() if pattern.fullmatch(rest))
    return difference, next(reasons, "")


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])
