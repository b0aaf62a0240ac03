"""Which slices of a document become passages: sections, small siblings together, long ones cut."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from marklight.ingest.cut import Span, pieces, trimmed
from marklight.ingest.parse.form import Parsed
from marklight.ingest.tree import Node, tree

_SAYS_SOMETHING = re.compile(r"[^\s\-*_=#|:.+<>/]")
"""A text of nothing but rules and dividers is no passage."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How long passages may be, and how much two pieces of one section share."""

    least: int
    most: int
    overlap: int


@dataclass(frozen=True, slots=True)
class Draft:
    """Passages of one section, or one of several small ones, before they have their ids."""

    title: str
    headings: tuple[str, ...]
    node: Node
    spans: list[Span]
    merged: tuple[str, ...] = ()
    text: str | None = None
    """What is searched where a document has no text of its own."""


def drafts(parsed: Parsed, sizes: Sizes) -> list[Draft]:
    """The passages of a document in the order of its text; every document has at least one."""
    root = tree(parsed)
    found = list(_section(parsed, root, sizes))
    if found:
        return found
    document = parsed.document
    whole = Span(0, len(document.text.rstrip()))
    words = document.description or document.title
    return [Draft(document.title, (), root, [whole], text=words)]


def _section(parsed: Parsed, node: Node, sizes: Sizes) -> Iterator[Draft]:
    """The passages of a section and of all below it."""
    text = parsed.document.text
    if _SAYS_SOMETHING.search(text, *node.own):
        yield _draft(parsed, node, node.path, node.own, sizes)
    elif not node.below and node.title:
        # A heading without a text says at least that much.
        yield _draft(parsed, node, node.path, node.whole, sizes)
    small: list[Node] = []
    for below in node.below:
        if not below.below and _length([below]) < sizes.least:
            small.append(below)
            continue
        yield from _together(parsed, node, small, sizes)
        small = []
        yield from _section(parsed, below, sizes)
    yield from _together(parsed, node, small, sizes)


def _together(parsed: Parsed, parent: Node, small: Sequence[Node], sizes: Sizes) -> Iterator[Draft]:
    """Small siblings that stand side by side, in as many passages as reach the least size.

    Only those without sections below them: what stands under different headings stays apart.
    """
    groups: list[list[Node]] = []
    for node in small:
        if groups and _length(groups[-1]) < sizes.least:
            groups[-1].append(node)
        else:
            groups.append([node])
    if len(groups) > 1 and _length(groups[-1]) < sizes.least:
        last = groups.pop()
        groups[-1].extend(last)
    for group in groups:
        first = group[0]
        if len(group) == 1:
            yield from _section(parsed, first, sizes)
            continue
        names = tuple(name for node in group for name in node.names)
        span = Span(first.whole.start, group[-1].whole.end)
        yield _draft(parsed, first, parent.path, span, sizes, names)


def _length(group: Sequence[Node]) -> int:
    return group[-1].whole.end - group[0].whole.start


def _draft(
    parsed: Parsed,
    node: Node,
    headings: tuple[str, ...],
    span: Span,
    sizes: Sizes,
    merged: tuple[str, ...] = (),
) -> Draft:
    cut = pieces(
        parsed, trimmed(parsed.document.text, *span), sizes.most, sizes.least, sizes.overlap
    )
    return Draft(parsed.document.title, headings, node, cut, merged)
