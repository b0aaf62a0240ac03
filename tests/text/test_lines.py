"""The line index of a document, and code blocks and tables around a range."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from marklight.model import Kind
from marklight.text.lines import DocumentLines


@pytest.mark.parametrize(
    ("text", "lines", "block"),
    [
        ("a\n```\nb\nc\n```\nd", (3, 3), (2, 5)),
        ("~~~\n```\nb\n~~~\nc", (3, 3), (1, 4)),
        ("````\n```\nb\n```\nc\n````", (5, 5), (1, 6)),
        ("```\nb\n\nc", (2, 2), (1, 4)),
        ("- a\n\n  ```\n  b\n  c\n  ```\n- d", (4, 4), (3, 6)),
        ("- ```\n  b\n  c\n\nd", (2, 2), (1, 4)),
        ("> ```\n> b\n> c\n\nd", (2, 2), (1, 3)),
        ("```a`b\nc\n```\nd\n```", (4, 4), (3, 5)),
        ("---\nx: |\n  ```\n---\na\n```\nb\nc\n```", (7, 7), (6, 9)),
        ("a\n\n    b\n\n    c\n\nd", (3, 3), (3, 5)),
        ("a\n```\nb\n```\nc\n```\nd\n```\ne", (3, 7), (2, 8)),
    ],
)
def test_a_range_in_a_code_block_is_extended_to_its_fences(
    text: str, lines: tuple[int, int], block: tuple[int, int]
) -> None:
    assert DocumentLines(text).block(lines, Kind.CODE) == block


def test_a_range_in_a_table_is_extended_to_all_rows() -> None:
    document = DocumentLines("a | b is prose\n\n| h |\n|---|\n| 1 |\n| 2 |\n\nend")
    assert document.block((5, 5), Kind.TABLE) == (3, 6)
    assert document.block((5, 5), Kind.PROSE) == (5, 5)


LINE = st.sampled_from(["```", "````", "~~~", "``` py", "text", "", "# h", "   ```", "~~~~~ x"])


@given(st.lists(LINE, max_size=12))
def test_fenced_blocks_agree_with_commonmark(lines: list[str]) -> None:
    text = "\n".join([*lines, "end"])
    fences = [token.map for token in MarkdownIt().parse(text) if token.type == "fence"]
    blocks = [(first - 1, last) for first, last in DocumentLines(text).fenced]
    assert blocks == [tuple(lines) for lines in fences if lines is not None]


@given(st.text("ab \n", max_size=60))
def test_lines_and_offsets_agree_with_the_text(text: str) -> None:
    document = DocumentLines(text)
    lines = text.removesuffix("\n").split("\n")
    assert [document.between(at, at) for at in range(1, len(document) + 1)] == lines
    assert document.between(1, len(document)) == text.removesuffix("\n")
    for at in range(1, len(document) + 1):
        assert document.line_at(document.start(at)) == at
        assert document.length((1, at)) == len("\n".join(lines[:at]))
    first, last = document.trimmed((1, len(document)))
    assert document.between(first, last).strip() == text.strip()


BLOCK_LINES = st.sampled_from(["| a |", "a | b", "text", "    code", "", "  "])


@given(st.lists(BLOCK_LINES, min_size=1, max_size=12), st.data())
def test_tables_end_at_other_lines_and_trimming_drops_blank_lines(
    lines: list[str], data: st.DataObject
) -> None:
    document = DocumentLines("\n".join([*lines, "end"]))
    first = data.draw(st.integers(1, len(lines)))
    last = data.draw(st.integers(first, len(lines)))
    rows = [number for number, line in enumerate(lines, 1) if "|" in line]
    above, below = first, last
    while above in rows and above - 1 in rows:
        above -= 1
    while below in rows and below + 1 in rows:
        below += 1
    assert document.block((first, last), Kind.TABLE) == (above, below)
    filled = [number for number in range(first, last + 1) if lines[number - 1].strip()]
    whole = (filled[0], filled[-1]) if filled else (last, last)
    assert document.trimmed((first, last)) == whole
