"""Documents are chunked along headings; blocks stay whole where possible."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from marklight.errors import SettingsError
from marklight.ingest.recipe import Chunker
from marklight.model import Chunk
from marklight.text.markdown import chunk_embedding_text, embedding_digest
from tests.ingest.reading import chunks, entry, parsed, uncovered

WORDS = "The quick brown fox jumps over the lazy dog near the river bank. "
LONG = WORDS * 6
"""390 characters: long enough for a passage of its own."""


def paragraphs(count: int) -> str:
    return "\n\n".join(f"Paragraph {number}. {LONG}" for number in range(count))


def test_each_section_is_a_passage_under_its_headings() -> None:
    found = chunks(f"# Guide\n\n{LONG}\n\n## Setup\n\n{LONG}\n\n### Linux\n\n{LONG}\n")
    assert [chunk.headings for chunk in found] == [
        ("Guide",), ("Guide", "Setup"), ("Guide", "Setup", "Linux"),
    ]  # fmt: skip
    assert [chunk.anchor for chunk in found] == ["guide", "setup", "linux"]
    assert [chunk.lines for chunk in found] == [(3, 3), (7, 7), (11, 11)]
    assert found[0].text == LONG.rstrip()
    assert found[1].digest == embedding_digest("Guide", ("Guide", "Setup"), LONG.rstrip())


def test_small_siblings_merge_and_keep_their_headings() -> None:
    small = "\n".join(
        f"## Part {number}\n\nA few words on it, about forty.\n" for number in range(9)
    )
    found = chunks(f"# Guide\n\n{LONG}\n\n{small}\n## Big\n\n{LONG}\n")
    merged = [chunk for chunk in found if chunk.merged]
    assert [name for chunk in merged for name in chunk.merged] == [f"Part {n}" for n in range(9)]
    assert all(chunk.headings == ("Guide",) for chunk in merged)
    assert all(200 <= len(chunk.text) <= 1500 for chunk in merged)
    assert merged[0].anchor == "part-0"
    assert found[-1].headings == ("Guide", "Big")


def test_a_short_beginning_is_one_passage_with_the_first_subsection() -> None:
    found = chunks(f"# Guide\n\nServes 4.\n\n## Ingredients\n\n{LONG}\n\n## Steps\n\n{LONG}\n")
    assert [chunk.headings for chunk in found] == [("Guide",), ("Guide", "Steps")]
    assert found[0].merged == ("Ingredients",)
    assert found[0].lines == (3, 7)
    assert "Serves 4." in found[0].text
    assert LONG.rstrip() in found[0].text


def test_a_short_beginning_stays_apart_if_one_passage_has_no_room_for_both() -> None:
    found = chunks(f"# Guide\n\nServes 4.\n\n## Steps\n\n{LONG * 4}\n")
    assert found[0].text == "Serves 4."
    nested = chunks(f"# Guide\n\nServes 4.\n\n## Steps\n\n### First\n\n{LONG}\n")
    assert nested[0].text == "Serves 4."


def test_sections_of_different_parents_never_merge() -> None:
    found = chunks("# A\n\n## B\n\nsmall one\n\n# C\n\n## D\n\nsmall two\n")
    assert not any("small one" in chunk.text and "small two" in chunk.text for chunk in found)


def test_a_heading_without_text_can_be_found() -> None:
    found = chunks(f"# Guide\n\n{LONG}\n\n## To be written\n\n## Big\n\n{LONG}\n")
    assert any("To be written" in chunk_embedding_text(chunk) for chunk in found)
    alone = chunks("## Only this")
    assert alone[0].text == "## Only this"


@pytest.mark.parametrize("text", ["", "\n\n", "---\ntitle: Named\n---\n", "---\n", "***\n"])
def test_every_document_has_a_passage(text: str) -> None:
    made = entry(text, "some/thing.md")
    assert len(made.chunks) == len(made.sections) == 1
    assert made.chunks[0].text in ("thing", "Named")


def test_a_document_without_text_is_found_by_its_description() -> None:
    assert chunks("---\ntitle: A\ndescription: What it is\n---\n")[0].text == "What it is"


def test_long_sections_split_between_paragraphs_with_overlap() -> None:
    text = f"# Guide\n\n{paragraphs(10)}\n"
    found = chunks(text)
    assert len(found) > 2
    assert all(200 <= len(chunk.text) <= 1500 for chunk in found)
    for before, after in pairwise(found):
        shared = overlap(before, after)
        assert 80 <= len(shared) <= 100
        fresh = after.text[len(shared) :].lstrip()
        assert fresh.startswith("Paragraph ")
    assert uncovered(parsed(text)[1], found) == []


def test_nothing_is_shared_across_headings() -> None:
    text = f"# A\n\n{paragraphs(5)}\n\n# B\n\nOther {paragraphs(5)}\n"
    found = chunks(text)
    first_of_b = next(chunk for chunk in found if chunk.headings == ("B",))
    assert first_of_b.text.startswith("Other")


def overlap(before: Chunk, after: Chunk) -> str:
    for size in range(min(len(before.text), 200), 0, -1):
        if after.text.startswith(before.text[-size:]):
            return after.text[:size]
    return ""


def test_one_endless_paragraph_splits_between_sentences() -> None:
    found = chunks(WORDS * 100)
    assert all(chunk.text.endswith("bank.") for chunk in found)
    assert all(len(chunk.text) <= 1500 for chunk in found)


def test_one_endless_word_splits_anywhere() -> None:
    found = chunks("x" * 10_000)
    assert "".join(chunk.text for chunk in found).count("x") >= 10_000
    assert all(len(chunk.text) <= 1500 for chunk in found)


def code(lines: int, name: str = "line") -> str:
    return (
        "```python\n"
        + "".join(f"{name}_{number} = {number:04}\n" for number in range(lines))
        + "```"
    )


def test_a_code_block_that_fits_is_never_split() -> None:
    blocks = [code(60, name) for name in ("alpha", "beta", "gamma", "delta")]
    text = "# A\n\n" + "\n\n".join(f"Words before. {WORDS}\n\n{block}" for block in blocks)
    found = chunks(text)
    for block in blocks:
        assert any(block in chunk.text for chunk in found)
    assert all(chunk.text.count("```") % 2 == 0 for chunk in found)
    assert all(len(chunk.text) <= 1500 for chunk in found)


def test_a_code_block_that_fits_is_not_split_inside_a_long_list() -> None:
    block = "\n".join(f"  {line}" for line in code(50).split("\n"))
    text = "".join(f"- item {number} {WORDS}\n\n{block}\n\n" for number in range(4))
    found = chunks(text)
    assert len(found) > 1
    assert all(chunk.text.count("```") % 2 == 0 for chunk in found)


def test_a_code_block_that_is_too_long_is_split_between_lines() -> None:
    found = chunks(code(300))
    assert len(found) > 2
    assert all(len(chunk.text) <= 1500 for chunk in found)
    assert all(
        re.fullmatch(r"line_\d+ = \d{4}", line) for c in found for line in c.code.split("\n")
    )
    lines = {line for chunk in found for line in chunk.code.split("\n")}
    assert len(lines) == 300
    assert all(chunk.languages == ("python",) for chunk in found)


def test_a_table_is_split_between_rows() -> None:
    rows = "".join(f"| row {number} | {WORDS} |\n" for number in range(60))
    found = chunks(f"# T\n\n| a | b |\n|---|---|\n{rows}")
    assert len(found) > 2
    for chunk in found:
        assert len(chunk.text) <= 1500
        assert all(line.startswith("|") and line.endswith("|") for line in chunk.text.split("\n"))
        assert chunk.text.startswith("| a | b |\n|---|---|\n| row ")
        assert "a | b" in chunk_embedding_text(chunk)
    assert found[1].lines[0] == found[0].lines[1] + 1


def test_the_padding_of_a_table_does_not_split_it() -> None:
    rows = "".join(f"| {number:<90} | `a    b \\|   c` |\n" for number in range(30))
    (found,) = chunks(f"# T\n\n| a{' ' * 90}|\tb |\n| :{'-' * 90} | -----: |\n{rows}")
    assert found.text.startswith(
        "| a |\tb |\n| :--- | ---: |\n| 0 | `a    b \\|   c` |\n| 1 | `a    b"
    )
    assert found.lines == (3, 34)


def test_a_row_without_room_for_the_header_is_a_passage_by_itself() -> None:
    row = f"| {'word ' * 298}|\n"
    found = chunks(f"| a | b |\n|---|---|\n| 1 | 2 |\n{row}{row}| 3 | 4 |\n")
    assert [len(chunk.text.split("\n")) for chunk in found] == [3, 1, 1, 3]
    assert found[1].text == row.rstrip("\n")
    assert found[3].text == "| a | b |\n|---|---|\n| 3 | 4 |"


def test_a_row_longer_than_a_passage_is_split_below_the_header() -> None:
    found = chunks(f"| a | b |\n|---|---|\n| 1 | 2 |\n| {'word ' * 900}|\n")
    assert all(chunk.text.startswith("| a | b |\n|---|---|\n") for chunk in found)
    assert all(len(chunk.text) <= 1500 for chunk in found)
    assert sum(chunk.text.count("word") for chunk in found) == 900


def test_a_header_longer_than_half_a_passage_is_not_repeated() -> None:
    rows = "".join(f"| row {number} | {WORDS} |\n" for number in range(60))
    found = chunks(f"| {'name ' * 160}| b |\n|---|---|\n{rows}")
    assert [chunk.text.count("name") for chunk in found] == [160] + [0] * (len(found) - 1)


def test_a_long_list_is_split_between_items() -> None:
    items = "".join(f"- item {number} {WORDS}\n  more of it {WORDS}\n" for number in range(40))
    found = chunks(items)
    assert len(found) > 2
    starts = [overlap_free(before, after) for before, after in pairwise(found)]
    assert all(start.startswith("- item") for start in starts)


def overlap_free(before: Chunk, after: Chunk) -> str:
    return after.text[len(overlap(before, after)) :].lstrip()


def test_ids_stay_when_other_sections_change_and_differ_between_documents() -> None:
    before = {chunk.headings: chunk.id for chunk in chunks(f"# A\n\n{LONG}\n\n# B\n\n{LONG}\n")}
    after = {
        c.headings: c.id for c in chunks(f"# New\n\n{LONG}\n\n# A\n\nx {LONG}\n\n# B\n\n{LONG}\n")
    }
    assert before.items() <= after.items()
    assert all(re.fullmatch("[0-9a-f]{16}", id) for id in before.values())
    assert not set(before.values()) & {c.id for c in chunks(f"# A\n\n{LONG}\n", "other/page.md")}


def test_parents_contain_their_passages() -> None:
    text = "\n\n".join(
        f"## Section {number}\n\n{paragraphs(1 + number % 4)}" for number in range(20)
    )
    made = entry(text)
    sections = {section.id: section for section in made.sections}
    sizes = [section.span[1] - section.span[0] for section in made.sections]
    assert max(sizes) <= 2000
    assert sum(size >= 1000 for size in sizes) > len(sizes) / 2
    for chunk in made.chunks:
        parent = sections[chunk.parent]
        assert chunk.text in text[slice(*parent.span)]
        assert parent.lines[0] <= chunk.lines[0] <= chunk.lines[1] <= parent.lines[1]
        assert chunk.headings[: len(parent.headings)] == parent.headings


def test_the_fingerprint_depends_on_the_sizes() -> None:
    assert Chunker().fingerprint == Chunker().fingerprint != Chunker(max_chars=1000).fingerprint


@pytest.mark.parametrize(
    "sizes",
    [
        {"max_chars": 0},
        {"min_chars": 2000},
        {"min_chars": -1},
    ],
)
def test_invalid_sizes_are_rejected(sizes: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="Invalid chunk sizes"):
        Chunker(**sizes)
