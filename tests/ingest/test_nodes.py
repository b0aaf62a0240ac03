"""The tree of a document: its nodes, their paths and lines, on small and on real documents."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.batch import Node, NodeKind
from marklight.ingest import frontmatter
from marklight.ingest.document import parse_document
from marklight.ingest.nodes import document_nodes
from marklight.ingest.read import Source
from marklight.ingest.recipe import Chunker
from marklight.model import DocumentId, FileState

ROOT = Path(__file__).parents[2]
REAL = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "skills").rglob("*.md")])


def tree(text: str, path: str = "a.md") -> tuple[Node, ...]:
    source = Source(text, FileState(len(text), 0))
    (entry,) = Chunker()([parse_document(DocumentId("default", path), source)])
    return entry.nodes


def rows(text: str, path: str = "a.md") -> list[tuple[str, str, tuple[int, int]]]:
    return [(node.path, node.kind.value, node.lines) for node in tree(text, path)]


def check(nodes: tuple[Node, ...], lines: int) -> None:
    by_path = {node.path: node for node in nodes}
    assert len(by_path) == len(nodes)
    assert [node.position for node in nodes] == list(range(len(nodes)))
    assert (nodes[0].path, nodes[0].parent, nodes[0].kind) == ("0", "", NodeKind.DOCUMENT)
    assert nodes[0].lines == (1, lines)
    for node in nodes[1:]:
        parent = by_path[node.parent]
        assert node.path.rpartition(".")[0] == node.parent
        assert parent.position < node.position
        assert parent.kind not in (NodeKind.PARAGRAPH, NodeKind.CODE, NodeKind.TABLE)
        assert parent.lines[0] <= node.lines[0] <= node.lines[1] <= parent.lines[1]
        assert node.headings[: len(parent.headings)] == parent.headings


TEXT = """---
tags: [a]
---
# Guide

First paragraph
of two lines.

- one
- two

  more of two

  ```python
  x = 1
  ```
  1. inner
  2. inner two

> quoted

## Table

| a | b |
|---|---|
| 1 | 2 |

### Deep

    indented code
"""


def test_every_kind_of_block_is_a_node() -> None:
    assert rows(TEXT) == [
        ("0", "document", (1, 30)),
        ("0.0", "section", (4, 30)),
        ("0.0.0", "paragraph", (6, 7)),
        ("0.0.1", "list item", (9, 9)),
        ("0.0.2", "list item", (10, 18)),
        ("0.0.2.0", "paragraph", (12, 12)),
        ("0.0.2.1", "code", (14, 16)),
        ("0.0.2.2", "list item", (17, 17)),
        ("0.0.2.3", "list item", (18, 18)),
        ("0.0.3", "paragraph", (20, 20)),
        ("0.0.4", "section", (22, 30)),
        ("0.0.4.0", "table", (24, 26)),
        ("0.0.4.1", "section", (28, 30)),
        ("0.0.4.1.0", "code", (30, 30)),
    ]


def test_nodes_have_headings_and_metadata() -> None:
    nodes = {node.path: node for node in tree(TEXT)}
    assert nodes["0.0.4.1.0"].headings == ("Guide", "Table", "Deep")
    assert nodes["0.0.4"].metadata == {"level": 2, "anchor": "table"}
    assert nodes["0.0.2.1"].metadata == {"language": "python"}
    assert nodes["0.0.2.2"].metadata == {"ordered": True}
    assert nodes["0.0.3"].metadata == {"quote": 1}
    assert nodes["0.0.4.0"].metadata == {"columns": 2}


def test_a_plain_text_has_paragraphs() -> None:
    assert rows("one\ntwo\n\n# three\n", "a.txt") == [
        ("0", "document", (1, 4)),
        ("0.0", "paragraph", (1, 2)),
        ("0.1", "paragraph", (4, 4)),
    ]


def test_an_empty_document_is_one_node() -> None:
    assert rows("") == [("0", "document", (1, 1))]


def test_invalid_frontmatter_is_a_paragraph() -> None:
    assert rows("---\na: [\n---\ntext\n")[1:] == [
        ("0.0", "paragraph", (1, 3)),
        ("0.1", "paragraph", (4, 4)),
    ]


@pytest.mark.parametrize("file", REAL, ids=lambda file: file.name)
def test_real_documents_have_consistent_trees(file: Path) -> None:
    text = file.read_text()
    nodes = tree(text, file.name)
    check(nodes, len(text.split("\n")) - text.endswith("\n"))
    covered = {line for node in nodes[1:] for line in range(node.lines[0], node.lines[1] + 1)}
    blank = {number for number, line in enumerate(text.split("\n"), 1) if not line.strip()}
    first = frontmatter.split(text).lines + 1
    assert set(range(first, nodes[0].lines[1] + 1)) - covered - blank == set()


def test_a_change_in_one_section_leaves_the_paths_of_others_as_they_are() -> None:
    text = (ROOT / "docs" / "security.md").read_text()
    before = tree(text)
    changed = text.replace(
        "## A hostile folder\n", "## A hostile folder\n\nOne.\n\n- two\n- three\n", 1
    )
    assert changed != text
    after = {node.path: node for node in tree(changed)}
    same = [node for node in before if "A hostile folder" not in node.headings]
    assert len(same) > 20
    for node in same:
        other = after[node.path]
        assert (other.kind, other.headings, other.metadata) == (
            node.kind,
            node.headings,
            node.metadata,
        )
        assert other.lines[1] - other.lines[0] in (
            node.lines[1] - node.lines[0],
            node.lines[1] - node.lines[0] + 5,
        )


def test_the_tree_is_built_only_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def build(document: object, parser: str) -> tuple[Node, ...]:
        calls.append(parser)
        return ()

    monkeypatch.setattr("marklight.ingest.nodes.document_nodes", build)
    source = Source("# a\n", FileState(4, 0))
    (entry,) = Chunker()([parse_document(DocumentId("default", "a.md"), source)])
    assert calls == []
    assert entry.nodes == ()
    assert calls == ["markdown"]


LINES = st.sampled_from(
    "||text|# H|## H2|- item|  - nested|  text|> quote|> - q|1. one|```|~~~|¦ a ¦ b ¦|¦---¦---¦"
    "|    code|***|<div>|---|===|\tx|>|- ".replace("¦", "\0").split("|")
).map(lambda line: line.replace("\0", "|"))


@given(st.lists(LINES, max_size=40))
def test_any_text_has_a_consistent_tree(lines: list[str]) -> None:
    text = "\n".join(lines)
    for path in ("a.md", "a.txt"):
        check(tree(text, path), max(1, len(text.split("\n")) - text.endswith("\n")))


def test_the_tree_of_a_stored_document_is_the_same() -> None:
    source = Source(TEXT, FileState(1, 0))
    parsed = parse_document(DocumentId("default", "a.md"), source)
    assert document_nodes(parsed.document, "markdown") == tree(TEXT)
