"""Context levels of all passages of a document, in linear time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from marklight.levels import entry_levels
from marklight.model import Kind
from marklight.text.lines import DocumentLines
from tests.ingest.reading import entry
from tests.linear import demand_linear


def lines(unit: str, before: str = "") -> Callable[[int], str]:
    """So many characters, each line with a number of its own."""
    return lambda size: before + "".join(unit.format(number) for number in range(size // len(unit)))


LONG: dict[str, Callable[[int], str]] = {
    "headings": lines("# h{0}\n\nsome words {0}\n\n"),
    "headings below a title": lines("## h{0}\n\nsome words {0}\n\n", "# Title\n\n"),
    "indented code": lines("    call({0}) and more words\n", "# Title\n\nwords\n\n"),
    "fences": lines("```\ncall({0})\n```\n\n"),
    "an opening without an end": lines("words {0} and more of them\n\n", "---\n\n"),
    "blank lines at the end": lambda size: "words\n\n" * (size // 14) + "\n" * (size // 2),
}


@pytest.mark.parametrize("name", LONG)
def test_time_is_linear_in_size(name: str) -> None:
    text, size = LONG[name], 100_000
    made = cache(entry)
    for each in (100, size, 4 * size):
        made(text(each))
    demand_linear(lambda some: list(entry_levels(made(some))), text, size)


def test_finding_the_table_of_every_row_is_linear() -> None:
    def every_row(text: str) -> None:
        page = DocumentLines(text)
        for number in range(1, len(page) + 1):
            assert page.block((number, number), Kind.TABLE) == (1, len(page))

    demand_linear(every_row, lines("| row {0} |\n"), 10_000)
