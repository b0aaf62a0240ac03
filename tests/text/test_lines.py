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
    page = DocumentLines("a | b is prose\n\n| h |\n|---|\n| 1 |\n| 2 |\n\nend")
    assert page.block((5, 5), Kind.TABLE) == (3, 6)
    assert page.block((5, 5), Kind.PROSE) == (5, 5)


LINE = st.sampled_from(["```", "````", "~~~", "``` py", "text", "", "# h", "   ```", "~~~~~ x"])


@given(st.lists(LINE, max_size=12))
def test_fenced_blocks_agree_with_commonmark(lines: list[str]) -> None:
    text = "\n".join([*lines, "end"])
    fences = [token.map for token in MarkdownIt().parse(text) if token.type == "fence"]
    found = [(first - 1, last) for first, last in DocumentLines(text).fenced]
    assert found == [tuple(each) for each in fences if each is not None]


@given(st.text("ab \n", max_size=60))
def test_lines_and_offsets_agree_with_the_text(text: str) -> None:
    page = DocumentLines(text)
    lines = text.removesuffix("\n").split("\n")
    assert [page.between(at, at) for at in range(1, len(page) + 1)] == lines
    assert page.between(1, len(page)) == text.removesuffix("\n")
    for at in range(1, len(page) + 1):
        assert page.line_at(page.start(at)) == at
        assert page.length((1, at)) == len("\n".join(lines[:at]))
    first, last = page.trimmed((1, len(page)))
    assert page.between(first, last).strip() == text.strip()


SIGNS = st.sampled_from(["| a |", "a | b", "text", "    code", "", "  "])


@given(st.lists(SIGNS, min_size=1, max_size=12), st.data())
def test_tables_end_at_other_lines_and_trimming_drops_blank_lines(
    lines: list[str], data: st.DataObject
) -> None:
    page = DocumentLines("\n".join([*lines, "end"]))
    first = data.draw(st.integers(1, len(lines)))
    last = data.draw(st.integers(first, len(lines)))
    rows = [number for number, line in enumerate(lines, 1) if "|" in line]
    above, below = first, last
    while above in rows and above - 1 in rows:
        above -= 1
    while below in rows and below + 1 in rows:
        below += 1
    assert page.block((first, last), Kind.TABLE) == (above, below)
    filled = [number for number in range(first, last + 1) if lines[number - 1].strip()]
    whole = (filled[0], filled[-1]) if filled else (last, last)
    assert page.trimmed((first, last)) == whole
