"""Among nearly equal documents, the one with the rare term of the query ranks first."""

from __future__ import annotations

from pathlib import Path

import pytest

import marklight
from tests.making import write

RARE = ("hammock", "telescope", "kayak", "sundial", "loom", "terrarium")
USUAL = (
    "Bought a lamp at the flea market.",
    "Met Helen in the street and had a coffee together.",
    "Cooked pancakes for the neighbours.",
    "The plumber came and repaired the boiler.",
    "Saw a swan by the river.",
)
QUESTIONS = (
    "where did I buy the {} that I have",
    "what did I cook in the evening after I had bought the {}",
    "was it the day of the pancakes with the neighbours that I bought the {}",
    "did I cook for the neighbours before I bought the {}",
)


def day(number: int) -> str:
    """Every fifteenth has something of its own."""
    own = f"Bought a {RARE[number // 15]} at the flea market." if number % 15 == 3 else ""
    return (
        f"### Morning\n\nGot up at 6:{10 + number % 50}. Ran {3 + number % 5} km along the river.\n\n"
        f"### Evening\n\n{own or USUAL[number % 5]} Cooked {('pasta', 'soup', 'rice')[number % 3]} "
        f"for supper. Called mum. Read for half an hour. To bed at 22:{10 + number % 50}.\n"
    )


@pytest.mark.parametrize("files", ["one a day", "one for all"])
def test_the_document_with_the_rare_term_ranks_first(tmp_path: Path, files: str) -> None:
    days = {f"2024-{1 + at // 28:02}-{1 + at % 28:02}": day(at) for at in range(90)}
    pages = {f"{name}.md": f"# {name}\n\n{text}" for name, text in days.items()}
    if files == "one for all":
        pages = {"diary.md": "\n".join(f"## {name}\n\n{text}" for name, text in days.items())}
    with marklight.open(write(tmp_path, pages), {}) as lib:
        lib.index()
        for text, rare in ((text, rare) for text in QUESTIONS for rare in RARE):
            first = lib.search(text.format(rare)).passages[:1]
            assert any(f"Bought a {rare}" in hit.chunk.text for hit in first), text.format(rare)
