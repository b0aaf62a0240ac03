"""Tree of a document: sections from its outline, paragraphs, list items, code and tables from the parser's tokens.

Lists and block quotes are not nodes themselves: their items and paragraphs belong to the section or item around them.
A list item contains its first paragraph; further blocks in it are its children.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from marklight.batch import Node, NodeKind
from marklight.ingest import frontmatter
from marklight.model import Document, Heading

_LEAVES = {
    "paragraph_open": NodeKind.PARAGRAPH,
    "heading_open": NodeKind.PARAGRAPH,
    "html_block": NodeKind.PARAGRAPH,
    "fence": NodeKind.CODE,
    "code_block": NodeKind.CODE,
    "table_open": NodeKind.TABLE,
}


class _Block(NamedTuple):
    """A block of text: its lines, counted from 0 with the end excluded, and its nesting depth among list items."""

    kind: NodeKind
    start: int
    end: int
    depth: int
    metadata: Mapping[str, Any]


@dataclass(slots=True)
class _Branch:
    """A node whose children are being added."""

    node: Node
    children: int = 0

    def child_path(self) -> str:
        path = f"{self.node.path}.{self.children}"
        self.children += 1
        return path


@dataclass(slots=True)
class _Tree:
    """Collects nodes in document order; `open` is the path from the document to the current section or item."""

    nodes: list[Node] = field(default_factory=list)
    open: list[_Branch] = field(default_factory=list)

    def add(
        self,
        kind: NodeKind,
        headings: tuple[str, ...],
        lines: tuple[int, int],
        metadata: Mapping[str, Any],
    ) -> _Branch:
        above = self.open[-1] if self.open else None
        path, parent = (above.child_path(), above.node.path) if above else ("0", "")
        node = Node(path, parent, len(self.nodes), kind, headings, lines, metadata)
        self.nodes.append(node)
        return _Branch(node)


def document_nodes(document: Document, parser: str) -> tuple[Node, ...]:
    """Return the tree of a document, parents before their children, in the order of the text."""
    lines = document.text.split("\n")
    last = max(1, len(lines) - document.text.endswith("\n"))
    tree = _Tree()
    tree.open.append(tree.add(NodeKind.DOCUMENT, (), (1, last), {}))
    blocks = list(_blocks(lines, parser))
    first = 0
    for heading, below in pairwise((None, *document.outline, None)):
        if heading:
            _open_section(tree, heading)
        end = below.lines[0] - 1 if below else len(lines)
        after = bisect_left(blocks, end, first, key=lambda block: block.start)
        _add_blocks(tree, blocks[first:after], lines, heading)
        first = after
    return tuple(tree.nodes)


def _open_section(tree: _Tree, heading: Heading) -> None:
    """Add a section below the innermost one of a higher level."""
    while tree.open[-1].node.metadata.get("level", 0) >= heading.level:
        tree.open.pop()
    above = tree.open[-1].node.headings
    headings = (*above, heading.text) if heading.text else above
    metadata = {"level": heading.level, "anchor": heading.anchor}
    tree.open.append(tree.add(NodeKind.SECTION, headings, heading.lines, metadata))


def _add_blocks(
    tree: _Tree, blocks: Sequence[_Block], lines: Sequence[str], heading: Heading | None
) -> None:
    """Add the blocks of one section; list items contain the blocks that follow at a greater depth."""
    section = len(tree.open)
    headings = tree.open[-1].node.headings
    for block in blocks:
        if heading and block.start == heading.lines[0] - 1 and block.kind is NodeKind.PARAGRAPH:
            continue  # the heading itself
        del tree.open[section + block.depth :]
        end = block.end
        while end > block.start + 1 and not lines[end - 1].strip(" \t>"):
            end -= 1
        branch = tree.add(block.kind, headings, (block.start + 1, end), block.metadata)
        if block.kind is NodeKind.LIST_ITEM:
            tree.open.append(branch)
    del tree.open[section:]


def _blocks(lines: Sequence[str], parser: str) -> Iterator[_Block]:
    """Yield the blocks of a text in order."""
    front = frontmatter.split("\n".join(lines))
    if front.remark and front.lines:  # not readable as frontmatter, so it is text
        yield _Block(NodeKind.PARAGRAPH, 0, front.lines, 0, {})
    if parser == "markdown":
        yield from _markdown_blocks(lines, front.lines)
    else:
        yield from _paragraphs(lines, front.lines)


def _paragraphs(lines: Sequence[str], first: int) -> Iterator[_Block]:
    """Yield the paragraphs of a plain text, which blank lines separate."""
    start: int | None = None
    for number in range(first, len(lines) + 1):
        blank = number == len(lines) or not lines[number] or lines[number].isspace()
        if blank and start is not None:
            yield _Block(NodeKind.PARAGRAPH, start, number, 0, {})
            start = None
        elif not blank and start is None:
            start = number


def _markdown_blocks(lines: Sequence[str], first: int) -> Iterator[_Block]:
    from marklight.ingest.parse.markdown import blocks, code_language

    for tokens in blocks("\n".join(lines[first:]), {}):
        ordered: list[bool] = []
        depth, quotes = 0, 0
        fresh = False  # true until the first block of a list item
        for index, token in enumerate(tokens):
            kind = token.type
            if kind in ("bullet_list_open", "ordered_list_open"):
                ordered.append(kind == "ordered_list_open")
            elif kind in ("bullet_list_close", "ordered_list_close"):
                ordered.pop()
            elif kind in ("blockquote_open", "blockquote_close"):
                quotes += 1 if kind == "blockquote_open" else -1
            elif kind == "list_item_open":
                assert token.map is not None
                metadata: dict[str, Any] = {"ordered": True} if ordered[-1] else {}
                yield _block(NodeKind.LIST_ITEM, token.map, first, depth, metadata, quotes)
                depth, fresh = depth + 1, True
            elif kind == "list_item_close":
                depth, fresh = depth - 1, False
            elif kind in _LEAVES:
                assert token.map is not None
                leaf = _LEAVES[kind]
                inside = fresh and leaf is NodeKind.PARAGRAPH
                fresh = False
                if inside:
                    continue  # the item contains its first paragraph
                metadata = {}
                if leaf is NodeKind.CODE and (language := code_language(token)):
                    metadata["language"] = language
                elif leaf is NodeKind.TABLE:
                    metadata["columns"] = _columns(tokens, index)
                yield _block(leaf, token.map, first, depth, metadata, quotes)


def _block(
    kind: NodeKind,
    lines: Sequence[int],
    first: int,
    depth: int,
    metadata: dict[str, Any],
    quotes: int,
) -> _Block:
    if quotes:
        metadata["quote"] = quotes
    return _Block(kind, lines[0] + first, max(lines[1], lines[0] + 1) + first, depth, metadata)


def _columns(tokens: Sequence[Any], table: int) -> int:
    """Return the number of cells in the first row of a table."""
    count = 0
    for token in tokens[table:]:
        if token.type == "tr_close":
            break
        count += token.type == "th_open"
    return count
