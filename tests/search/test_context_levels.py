"""Context levels of a passage, stored and computed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from marklight.errors import UsageError
from marklight.levels import LEVELS
from marklight.model import Chunk
from marklight.ports import Snapshot
from marklight.search.context import OpenDocuments, expand, levels
from tests.making import library, write

CODE = "\n".join(f"call({number})  # {'x' * 60}" for number in range(120))
GUIDE = f"""---
title: Guide
---

# Guide

Before all else, an introduction that says what this page is about and whom it is for.

## Install

Install it with the tool that installs things, which you have, or you would not read this.
There is more to say about it, so that the text above the next heading is a passage of its own.
A third sentence makes sure of that.

### Offline

Without a network the same works from a folder, if somebody has filled that folder before you.

## Long code

```python
{CODE}
```

## End

The end, which is short but still long enough to be a passage of its own, or nearly so, as it is.
It has a second sentence so that it is not put together with what stands before it in the page.
"""


@pytest.fixture
def snapshot(tmp_path: Path) -> Iterator[Snapshot]:
    folder = write(tmp_path / "docs", {"guide.md": GUIDE})
    with library(folder, model={"name": "none"}) as lib:
        lib.index()
        with lib.engine.snapshot() as snapshot:
            yield snapshot


def passage(snapshot: Snapshot, part: str) -> Chunk:
    (id,) = snapshot.documents.files()
    return next(chunk for chunk in snapshot.documents.chunks_of(id) if part in chunk.text)


def test_levels_grow_from_the_passage_to_the_document_with_their_sizes(
    snapshot: Snapshot,
) -> None:
    chunk = passage(snapshot, "call(30)")
    documents = OpenDocuments(snapshot)
    found = levels([chunk], documents)[chunk.id]
    assert found[0].name == "passage"
    assert found[-1].name == "document"
    assert {level.name for level in found} >= {"neighbours", "block", "section"}
    sizes = [level.characters for level in found]
    assert sizes == sorted(sizes)
    assert len({level.lines for level in found}) == len(found)
    for level in found:
        extract = expand(chunk, level.name, documents)
        assert (extract.lines, len(extract.text)) == (level.lines, level.characters)
        assert chunk.text in extract.text


def test_a_level_that_adds_nothing_is_left_out(snapshot: Snapshot) -> None:
    chunk = passage(snapshot, "introduction")
    names = [level.name for level in levels([chunk], OpenDocuments(snapshot))[chunk.id]]
    assert "block" not in names, "prose is no part of a code block"


def test_a_block_is_all_of_the_code_with_its_fences(snapshot: Snapshot) -> None:
    block = expand(passage(snapshot, "call(30)"), "block", OpenDocuments(snapshot))
    assert block.text == f"```python\n{CODE}\n```"


def test_a_section_contains_everything_below_its_heading(snapshot: Snapshot) -> None:
    documents = OpenDocuments(snapshot)
    offline = expand(passage(snapshot, "Without a network"), "section", documents)
    assert offline.text.startswith("### Offline\n")
    assert offline.text.endswith("before you.")
    install = expand(passage(snapshot, "Install it with"), "section", documents)
    assert install.text.startswith("## Install\n")
    assert "### Offline" in install.text
    assert "Long code" not in install.text


def test_under_a_title_a_section_reaches_from_one_heading_to_the_next(snapshot: Snapshot) -> None:
    documents = OpenDocuments(snapshot)
    chunk = passage(snapshot, "introduction")
    assert expand(chunk, "section", documents).text.split("\n")[0] == "# Guide"
    assert "## Install" not in expand(chunk, "section", documents).text


def test_a_section_without_a_heading_begins_below_the_frontmatter(tmp_path: Path) -> None:
    first = "first words " * 20 + "end"
    text = f"---\ntitle: T\n---\n\n{first}\n\n## Part\n\nother words\n"
    with library(write(tmp_path, {"a.md": text})) as lib:
        lib.index()
        with lib.engine.snapshot() as snapshot:
            section = expand(passage(snapshot, "first"), "section", OpenDocuments(snapshot))
    assert (section.lines, section.text) == ((5, 5), first)


def test_the_number_of_neighbours_is_limited_by_the_document(snapshot: Snapshot) -> None:
    documents = OpenDocuments(snapshot)
    chunk = passage(snapshot, "call(30)")
    chunks = snapshot.documents.chunks_of(chunk.document)
    for count in (1, 2, 99):
        wide = expand(chunk, "neighbours", documents, count)
        first = chunks[max(0, chunk.ordinal - count)]
        last = chunks[min(len(chunks) - 1, chunk.ordinal + count)]
        assert wide.lines == (first.lines[0], last.lines[1])
    assert expand(chunk, "neighbours", documents, 0).lines == chunk.lines


def test_an_unknown_level_is_an_error(snapshot: Snapshot) -> None:
    with pytest.raises(UsageError, match=r"No such level: 'chapter'.*neighbours"):
        expand(passage(snapshot, "introduction"), "chapter", OpenDocuments(snapshot))


def test_a_passage_of_a_long_line_can_be_expanded_to_the_line(tmp_path: Path) -> None:
    line = " ".join(f"word{number}" for number in range(1000))
    with library(write(tmp_path, {"a.txt": line})) as lib:
        lib.index()
        with lib.engine.snapshot() as snapshot:
            chunk = snapshot.documents.chunks_of(next(iter(snapshot.documents.files())))[2]
            found = levels([chunk], OpenDocuments(snapshot))[chunk.id]
    assert [level.lines for level in found] == [(1, 1), (1, 1)]
    assert [level.characters for level in found] == [len(chunk.text), len(line)]


def test_every_level_has_its_lines(snapshot: Snapshot) -> None:
    documents = OpenDocuments(snapshot)
    for chunk in snapshot.documents.chunks_of(next(iter(snapshot.documents.files()))):
        for level in LEVELS:
            first, last = documents.lines(chunk, level)
            assert first <= chunk.lines[0]
            assert chunk.lines[1] <= last


def test_stored_levels_equal_computed_ones(snapshot: Snapshot) -> None:
    (id,) = snapshot.documents.files()
    chunks = snapshot.documents.chunks_of(id)
    kept = snapshot.documents.context_levels([chunk.id for chunk in chunks])
    documents = OpenDocuments(snapshot)
    assert kept == {chunk.id: documents.levels(chunk) for chunk in chunks}
    assert snapshot.documents.context_levels(["nobody"]) == {}
