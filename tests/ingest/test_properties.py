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
            # Comments inside are left out: the rest is there, in its order.
            assert "<!--" in text or "%%" in text
            found = 0
            for part in chunk.text.split():
                found = text.index(part, found) + len(part)
        start, end = parents[chunk.parent].span
        assert 0 <= start <= end <= len(text)
        assert end - start <= 2000
    for heading in made.document.outline:
        assert 1 <= heading.lines[0] <= heading.lines[1] <= len(lines)


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
