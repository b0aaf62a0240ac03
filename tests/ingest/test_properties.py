"""Property tests: invariants of parsing and chunking for arbitrary text."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from marklight.ingest.frontmatter import split
from marklight.ingest.read import decode
from marklight.text.markdown import embedding_digest, strip_markup
from tests.ingest.reading import chunks, entry, parsed, uncovered

PIECES = [
    "# A", "## B c", "### D {#own}", "Title\n=====", "Under\n---", "- item", "  - nested", "1. one", "> quote",
    "```python", "```", "~~~", "    indented", "| a | b |", "|---|---|", "| c | d |", "[[Page]]", "![[Page#x]]",
    "[text](other.md)", "[ref]: x.md", "<div>", "</div>", "<!-- note", "-->", "{{< tab >}}", "{{% /tab %}}",
    "#tag", "words and words", "A sentence. Another one! A third?", "^block", "---", "+++", "title: x",
    "x" * 400, "Some longer words in a row. " * 30, "漢字。" * 90, "😀", "\t", "", "", "", "`code`", "***", "\\", "[",
]  # fmt: skip

markdown = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=40).map("\n".join),
    st.lists(
        st.one_of(st.sampled_from(PIECES), st.text(max_size=30, alphabet=st.characters(codec="utf-8"))),
        max_size=25,
    ).map(lambda parts: "\n".join(parts).replace("\r", "\n")),
)  # fmt: skip


def thirds(texts: Sequence[str]) -> list[int]:
    return [2 + len(text.encode()) // 3 for text in texts]


@settings(max_examples=400)
@given(markdown)
def test_passages_equal_their_lines_of_the_document(text: str) -> None:
    made = entry(text)
    lines = text.split("\n")
    assert made.chunks
    assert len({chunk.id for chunk in made.chunks}) == len(made.chunks)
    assert [chunk.ordinal for chunk in made.chunks] == list(range(len(made.chunks)))
    parents = {section.id: section for section in made.sections}
    assert len(parents) == len(made.sections)
    for chunk in made.chunks:
        first, last = chunk.lines
        assert 1 <= first <= last <= len(lines)
        assert len(chunk.text) <= 1500
        assert chunk.digest == embedding_digest(chunk.title, chunk.headings, chunk.own_text)
        if chunk.text in text:
            assert chunk.text in "\n".join(lines[first - 1 : last])
        elif chunk.text not in (made.document.title, made.document.description):
            # Comments and padding are left out, and the header of a table is repeated: the rest is there, in its order.
            assert "<!--" in text or "%%" in text or "|" in text
            found = 0
            for part in chunk.text.removeprefix("| a | b |\n|---|---|\n").split():
                found = text.index(part, found) + len(part)
        start, end = parents[chunk.parent].span
        assert 0 <= start <= end <= len(text)
        assert end - start <= 2000
    for heading in made.document.outline:
        assert 1 <= heading.lines[0] <= heading.lines[1] <= len(lines)


@st.composite
def padded_tables(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Return a document with a padded table, and the header and the rows of the table without padding."""
    columns = draw(st.integers(1, 5))
    mark = draw(st.sampled_from(["", "> ", "  "]))
    cell = st.integers(0, 60).map(lambda length: "word " * (length // 5) + "x" * (length % 5))
    rows = draw(
        st.lists(st.lists(cell, min_size=columns, max_size=columns), min_size=1, max_size=60)
    )
    numbered = [
        [f"row {number}", *(text.strip() for text in row)] for number, row in enumerate(rows)
    ]
    table = [["name", *(f"column {number}" for number in range(columns))], *numbered]
    width = draw(st.integers(0, 80))
    plain = ["|" + "|".join(f" {text} " if text else " " for text in row) + "|" for row in table]
    padded = ["|" + "|".join(f" {text.ljust(width)} " for text in row) + "|" for row in table]
    padded.insert(1, "|" + f"-{'-' * width}-|" * (columns + 1))
    before, after = (
        draw(st.sampled_from(["", "Words before. "])),
        draw(st.sampled_from(["", "Words after. "])),
    )
    quoted = "\n".join(mark + line for line in padded)
    return f"# Title\n\n{before * 9}\n\n{quoted}\n\n{after * 9}\n", [mark + line for line in plain]


@settings(max_examples=200)
@given(padded_tables())
def test_each_row_of_a_table_is_in_one_passage_below_the_header(
    made: tuple[str, list[str]],
) -> None:
    text, (header, *rows) = made
    passages = [chunk.text.split("\n") for chunk in chunks(text)]
    assert [line for lines in passages for line in lines if " row " in line] == rows
    for lines in passages:
        assert len("\n".join(lines)) <= 1500
        if any(" row " in line for line in lines):
            assert lines.count(header) == 1
            assert lines[lines.index(header) + 1].strip("> |-") == ""
            assert lines[lines.index(header) + 2] in rows


@settings(max_examples=400)
@given(markdown)
def test_every_word_is_in_a_passage(text: str) -> None:
    assert uncovered(parsed(text)[1], chunks(text)) == []


@settings(max_examples=300)
@given(markdown)
def test_passages_overlap_only_within_a_section(text: str) -> None:
    made = entry(text)
    seen = 0
    section: tuple[object, ...] = ()
    for chunk in made.chunks:
        if chunk.lines[0] < seen:
            assert (chunk.headings, chunk.anchor) == section
        seen, section = chunk.lines[1], (chunk.headings, chunk.anchor)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_frontmatter_never_raises(text: str) -> None:
    split(f"---\n{text}\n---\n")
    split(f"+++\n{text}\n+++\n")
    split(text)


@given(st.binary(max_size=300).map(lambda data: data.replace(b"\x00", b" ") + b" plain words" * 20))
def test_any_bytes_are_text_or_refused(data: bytes) -> None:
    text, _ = decode(data)
    text.encode("utf-8")
    assert "\r" not in text
    assert "\x00" not in text


@given(st.text(alphabet='[]()<>!{}%"-|a #`\n', max_size=300))
def test_plain_text_never_raises_and_never_grows(text: str) -> None:
    assert len(strip_markup(text)) <= len(text)
