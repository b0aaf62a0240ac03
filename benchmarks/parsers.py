"""Compare tree-sitter-markdown with markdown-it-py in speed and correctness.

python -m benchmarks.parsers [EVAL_FOLDER]
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import tree_sitter_markdown
from markdown_it import MarkdownIt
from tree_sitter import Language, Node, Parser

from benchmarks._measure import eval_root, save

SPECS = {
    "CommonMark 0.31.2": "robust/commonmark-spec-0.31.2/spec.txt",
    "GFM": "robust/cmark-gfm/test/spec.txt",
    "GFM tables": "robust/md4c/test/tables.txt",
    "cmark regressions": "robust/cmark/test/regression.txt",
}
ROUNDS = 3
_EXAMPLE = re.compile(r"^(`{32}) example.*\n((?:.*\n)*?)\.\n((?:.*\n)*?)\1(?:`*)$", re.MULTILINE)
_BLOCKS = frozenset("h1 h2 h3 h4 h5 h6 p pre blockquote ul ol li hr table tr".split())


class Example(NamedTuple):
    """A Markdown text and the HTML that its specification requires."""

    markdown: str
    html: str


def examples(path: Path) -> list[Example]:
    text = path.read_text().replace("→", "\t")
    return [Example(match[2], match[3]) for match in _EXAMPLE.finditer(text)]


class Shape(HTMLParser):
    """The blocks of a page in order, code with its text; paragraphs in list items are left out, as they depend on tightness."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.blocks: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag in _BLOCKS:
            if tag != "p" or "li" not in self.open:
                self.blocks.append(tag)
            if tag != "hr":
                self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "pre" and data.strip():
            self.blocks.append(" ".join(data.split()))


_KINDS = {
    "paragraph": "p",
    "fenced_code_block": "pre",
    "indented_code_block": "pre",
    "block_quote": "blockquote",
    "list_item": "li",
    "thematic_break": "hr",
    "pipe_table": "table",
    "pipe_table_header": "tr",
    "pipe_table_row": "tr",
}


def tree_shape(node: Node, source: bytes, in_item: bool = False) -> Iterator[str]:
    """Return the blocks of a syntax tree of tree-sitter in order."""
    kind = node.type
    if kind in ("atx_heading", "setext_heading"):
        marker = next(c.type for c in node.children if re.search(r"_h\d", c.type))
        yield "h" + re.findall(r"_h(\d)", marker)[0]
        return
    if kind == "list":
        ordered = node.children[0].children[0].type in (
            "list_marker_dot",
            "list_marker_parenthesis",
        )
        yield "ol" if ordered else "ul"
    elif kind in _KINDS and not (kind == "paragraph" and in_item):
        yield _KINDS[kind]
    if kind == "fenced_code_block":
        yield from (code_of(c, source) for c in node.children if c.type == "code_fence_content")
    elif kind == "indented_code_block":
        yield " ".join(source[node.start_byte : node.end_byte].decode().split())
    else:
        for child in node.children:
            yield from tree_shape(child, source, in_item or kind == "list_item")


def code_of(node: Node, source: bytes) -> str:
    """Return the text of a code block without the markers of its container, with whitespace normalised."""
    parts, at = [], node.start_byte
    for child in node.children:
        if child.type == "block_continuation":
            parts.append(source[at : child.start_byte])
            at = child.end_byte
    return " ".join(b"".join([*parts, source[at : node.end_byte]]).decode().split())


def correctness(root: Path) -> dict[str, Any]:
    md = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    blocks = Parser(Language(tree_sitter_markdown.language()))
    results: dict[str, Any] = {}
    for name, place in SPECS.items():
        cases = [
            case for case in examples(root / place) if not re.search("<[a-z!?/]", case.markdown)
        ]
        same_html = same_shape = tree_same = 0
        for case in cases:
            expected = Shape(case.html).blocks
            html = md.render(case.markdown)
            same_html += html.strip() == case.html.strip()
            same_shape += Shape(html).blocks == expected
            source = case.markdown.encode()
            tree_same += [
                s for s in tree_shape(blocks.parse(source).root_node, source) if s
            ] == expected
        results[name] = {
            "examples": len(cases),
            "markdown_it_same_html": same_html,
            "markdown_it_same_blocks": same_shape,
            "tree_sitter_same_blocks": tree_same,
        }
    return results


def nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from nodes(child)


def speed(texts: list[str]) -> dict[str, float]:
    md = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    block = Parser(Language(tree_sitter_markdown.language()))
    inline = Parser(Language(tree_sitter_markdown.inline_language()))

    def tree_all(text: str) -> None:
        source = text.encode()
        for node in nodes(block.parse(source).root_node):
            if node.type in ("inline", "pipe_table_cell"):
                for _ in nodes(inline.parse(source[node.start_byte : node.end_byte]).root_node):
                    pass

    parsers: dict[str, Callable[[str], object]] = {
        "markdown_it_blocks_and_inline": md.parse,
        "markdown_it_blocks": lambda text: md.block.parse(text, md, {}, []),
        "tree_sitter_blocks_without_traversal": lambda text: block.parse(text.encode()),
        "tree_sitter_blocks_and_inline": tree_all,
    }
    best = dict.fromkeys(parsers, float("inf"))
    for _ in range(ROUNDS):
        for name, parse in parsers.items():
            began = time.perf_counter()
            for text in texts:
                parse(text)
            best[name] = min(best[name], time.perf_counter() - began)
    return {name: round(seconds, 2) for name, seconds in best.items()}


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else eval_root()
    paths = sorted((root / "corpora/kubernetes").rglob("*.md"))
    texts = [path.read_text() for path in paths]
    save(
        "parsers",
        {
            "files": len(texts),
            "megabytes": round(sum(path.stat().st_size for path in paths) / 1e6, 1),
            "seconds": speed(texts),
            "correctness": correctness(root),
        },
    )


if __name__ == "__main__":
    main()
