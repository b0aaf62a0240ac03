"""A document's headings as a tree: each with its own text and the sections below it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from marklight.ingest.cut import Span, trimmed
from marklight.ingest.parse.form import Parsed, Title


@dataclass(slots=True)
class Node:
    """A heading; the root stands for the document and for what comes before its first heading."""

    title: Title | None
    path: tuple[str, ...]
    anchors: tuple[str, ...]
    top: int
    """Which heading of the first level it stands under, -1 for none."""
    whole: Span
    """From the heading to the end of all below it, without blanks at the end."""
    own: Span
    """Its own text, between its heading and the next one."""
    below: list[Node] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        return self.title.anchor if self.title else ""

    @property
    def level(self) -> int:
        return self.title.level if self.title else 0

    @property
    def names(self) -> Iterator[str]:
        """Its heading and all below it."""
        if self.title and self.title.text:
            yield self.title.text
        for node in self.below:
            yield from node.names


def tree(parsed: Parsed) -> Node:
    """The root of a document's sections."""
    text, starts, titles = parsed.document.text, parsed.starts, parsed.structure.titles
    ends = [*(starts[title.line] for title in titles), len(text)]
    body = starts[min(parsed.body, len(starts) - 1)]
    own = trimmed(text, body, ends[0])
    root = Node(None, (), (), -1, Span(body, own.end), own)
    above = [root]
    for index, (title, end) in enumerate(zip(titles, ends[1:], strict=True)):
        while above[-1].level >= title.level:
            above.pop()
        parent = above[-1]
        start = starts[title.line]
        # A heading that was shortened keeps its line in the text, so that no word is lost.
        after = start if title.text.endswith("…") else starts[title.end]
        own = trimmed(text, after, end)
        last = max(own.end, start + len(text[start:after].rstrip()))
        node = Node(
            title,
            (*parent.path, title.text) if title.text else parent.path,
            (*parent.anchors, title.anchor),
            index if title.level == 1 else parent.top,
            Span(start, last),
            own,
        )
        parent.below.append(node)
        above.append(node)
        for outer in above[:-1]:
            outer.whole = Span(outer.whole.start, last)
    return root
