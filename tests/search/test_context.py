"""Context around hits: neighbours and sections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from marklight.answer import Hit, Hits
from marklight.model import DocumentId
from marklight.ports import Snapshot, Tools
from marklight.query import Query
from marklight.search.context import Context, Parents
from tests.making import library, write

WORDS = " ".join(f"w{number}" for number in range(60))
PAGE = "# Page\n\n" + "\n\n".join(
    f"## Part {number}\n\npart {number} says {WORDS}" for number in range(1, 6)
)
TABLE = "# Table\n\nwords\n\n| name | value |\n|---|---|\n" + "".join(
    f"| row {number} | {WORDS} |\n" for number in range(80)
)
LONG = "# Long\n\n" + "\n\n".join(f"paragraph {number} of {WORDS}" for number in range(40))


@pytest.fixture
def snapshot(tmp_path: Path) -> Iterator[Snapshot]:
    write(
        tmp_path, {"page.md": PAGE, "long.md": LONG, "table.md": TABLE, "line.txt": "word " * 1000}
    )
    with library(tmp_path, model={"name": "none"}) as lib:
        lib.index()
        with lib.engine.snapshot() as snapshot:
            yield snapshot


def hits(snapshot: Snapshot, *places: tuple[str, int]) -> Hits:
    """Passages by their document and number, each with a lower score than the one before."""
    return tuple(
        Hit(snapshot.documents.chunks_of(DocumentId("default", path))[ordinal], 1 - rank / 10)
        for rank, (path, ordinal) in enumerate(places)
    )


def shown(query: Query, found: Hits, snapshot: Snapshot, stage: Context) -> tuple[Hits, list[str]]:
    message: list[str] = []
    return stage(query, found, Tools(snapshot, notify=message.append)), message


def test_hits_are_unchanged_without_a_context_option(snapshot: Snapshot) -> None:
    found = hits(snapshot, ("page.md", 0), ("page.md", 1))
    assert shown(Query("w1"), found, snapshot, Context()) == (found, [])


def test_neighbours_are_added_on_both_sides(snapshot: Snapshot) -> None:
    found = hits(snapshot, ("page.md", 2))
    ((wide,), message) = shown(Query("w1", context=1), found, snapshot, Context())
    assert "part 2" in wide.chunk.text
    assert "part 4" in wide.chunk.text
    assert "part 1" not in wide.chunk.text
    assert "part 5" not in wide.chunk.text
    assert (wide.chunk.id, wide.score) == (found[0].chunk.id, found[0].score)
    assert message == []
    first, last = wide.chunk.lines
    assert wide.chunk.text == "\n".join(PAGE.split("\n")[first - 1 : last])


@pytest.mark.parametrize("query", [Query("w1", context=1), Query("w1", parents=True)], ids=str)
def test_context_that_begins_in_a_table_has_its_header(query: Query, snapshot: Snapshot) -> None:
    tools, found = Tools(snapshot), hits(snapshot, ("table.md", 6))
    (wide,) = Context()(query, Parents()(query, found, tools), tools)
    header, _, row, *_ = wide.chunk.text.split("\n")
    assert header == "| name | value |"
    assert row == TABLE.split("\n")[wide.chunk.lines[0] - 1]
    assert wide.chunk.lines[0] > 7


def test_the_next_part_of_a_table_within_a_shown_context_is_dropped(snapshot: Snapshot) -> None:
    found = hits(snapshot, ("table.md", 3), ("table.md", 4), ("table.md", 5))
    wide, _ = shown(Query("w1", context=1), found, snapshot, Context())
    assert [hit.chunk.id for hit in wide] == [found[0].chunk.id, found[2].chunk.id]


def test_a_whole_section_has_its_heading(snapshot: Snapshot) -> None:
    ((wide,), _) = shown(
        Query("w1", expand_context=True), hits(snapshot, ("page.md", 2)), snapshot, Context()
    )
    assert wide.chunk.text.startswith("## Part 3\n")
    assert wide.chunk.lines == (11, 13)


def test_a_passage_within_a_shown_context_is_dropped(snapshot: Snapshot) -> None:
    found = hits(snapshot, ("long.md", 1), ("page.md", 0), ("long.md", 2), ("long.md", 0))
    wide, _ = shown(Query("w1", expand_context=True), found, snapshot, Context())
    assert [hit.chunk.id for hit in wide] == [found[0].chunk.id, found[1].chunk.id]


def test_dropped_passages_are_replaced_up_to_the_limit(
    snapshot: Snapshot,
) -> None:
    found = hits(snapshot, ("long.md", 1), ("long.md", 2), ("page.md", 0), ("page.md", 4))
    wide, _ = shown(Query("w1", limit=2, expand_context=True), found, snapshot, Context())
    assert [hit.chunk.id for hit in wide] == [found[at].chunk.id for at in (0, 2, 3)]
    assert wide[-1] == found[-1]


def test_a_long_section_is_cut_around_the_passage_with_a_notice(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = hits(snapshot, ("long.md", 3))
    own = found[0].chunk
    for most in (1, 2_000, 3_000, 5_000):
        monkeypatch.setattr(Context, "max_characters", most)
        ((wide,), message) = shown(Query("w1", expand_context=True), found, snapshot, Context())
        assert own.text.strip() in wide.chunk.text
        assert len(wide.chunk.text) <= max(most, len(own.text))
        assert f"{most:,} characters" in message[0]
        assert own.lines[0] - wide.chunk.lines[0] >= (2 if most > 4_000 else 0)


def test_parent_sections_have_neighbours_too(snapshot: Snapshot) -> None:
    found = hits(snapshot, ("long.md", 3))
    tools = Tools(snapshot)
    query = Query("w1", parents=True, context=1)
    section = Parents()(query, found, tools)
    (wide,) = Context()(query, section, tools)
    chunks = snapshot.documents.chunks_of(found[0].chunk.document)
    own = [each.ordinal for each in chunks if each.parent == section[0].chunk.id]
    assert section[0].chunk.text.strip() in wide.chunk.text
    assert wide.chunk.lines == (chunks[own[0] - 1].lines[0], chunks[own[-1] + 1].lines[1])


def test_a_part_of_a_very_long_line_stays_a_part(snapshot: Snapshot) -> None:
    found = hits(snapshot, ("line.txt", 1))
    with mock.patch.object(Context, "max_characters", 3_000):
        assert shown(Query("word", context=1), found, snapshot, Context())[0] == found
    ((wide,), _) = shown(Query("word", context=1), found, snapshot, Context())
    assert wide.chunk.text.strip() == ("word " * 1000).strip()
