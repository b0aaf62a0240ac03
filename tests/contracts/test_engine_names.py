"""What every engine owes to names: a document by its title, alias or file, a section by its heading."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marklight.answer import Filters
from marklight.model import Batch, Entry
from marklight.ports import Engine, ScoredChunk
from tests.contracts.builders import entry, id_of
from tests.contracts.test_engines import commit, put


def headed(one: Entry, *headings: tuple[str, ...]) -> Entry:
    """The same with headings of its own above each passage."""
    chunks = (
        replace(chunk, headings=above) for chunk, above in zip(one.chunks, headings, strict=True)
    )
    return replace(one, chunks=tuple(chunks))


def found(
    engine: Engine, name: str, filters: Filters | None = None, limit: int = 9
) -> list[ScoredChunk]:
    with engine.snapshot() as snapshot:
        return snapshot.documents.find_by_title(name, filters or Filters(), limit)


@pytest.mark.parametrize(
    "name",
    ["Café Guide", "cafe guide", "  CAFÉ \t guide\n", "Coffee", "menü.md", "MENU", "menu.md"],
)
def test_a_document_is_found_by_title_alias_or_file_name(engine: Engine, name: str) -> None:
    one = entry("food/menü.md", "one", "two", title="Café Guide", aliases=("Coffee", "Kaffee"))
    put(engine, one, entry("food/other.md", "Café Guide", title="Café Guide and more"))
    assert found(engine, name) == [ScoredChunk(one.chunks[0].id, 1.0)]


@pytest.mark.parametrize("name", ["", "  ", "guide", "food/menu.md", "food", "one"])
def test_a_part_of_a_name_is_no_name(engine: Engine, name: str) -> None:
    put(engine, entry("food/menu.md", "one", title="Café guide", headings=("",)))
    assert found(engine, name) == []


def test_a_section_is_found_by_its_heading_where_it_begins(engine: Engine) -> None:
    one = headed(
        entry("a.md", "0", "1", "2", "3", "4"),
        (),
        ("Setup", "Linux"),
        ("Setup", "Linux"),
        ("Setup", "Windows"),
        ("Use", "Linux"),
    )
    put(engine, one)
    ids = [chunk.id for chunk in one.chunks]
    assert found(engine, "windows") == [ScoredChunk(ids[3], 0.5)]
    # No passage is about nothing but the setup: it begins where its first section does.
    assert found(engine, "Setup") == [ScoredChunk(ids[1], 0.5)]
    assert found(engine, "linux") == [ScoredChunk(id, 0.5) for id in sorted((ids[1], ids[4]))]


def test_a_small_section_is_found_in_the_passage_that_took_it_in(engine: Engine) -> None:
    one = entry("a.md", "0", "1", headings=("Options",), merged=("--Top  N", "--mode"))
    put(engine, one)
    assert found(engine, "--top n") == [ScoredChunk(one.chunks[0].id, 0.5)]


def test_a_title_counts_more_than_a_heading(engine: Engine) -> None:
    # The title goes to the passage whose id comes last, so that the order of ids would be wrong.
    first, last = sorted(("a.md", "b.md"), key=lambda path: entry(path, "0").chunks[0].id)
    one = entry(last, "0", title="Setup", headings=("Setup",))
    two = entry(first, "0", headings=("Setup",))
    put(engine, two, one)
    assert found(engine, "setup") == [
        ScoredChunk(one.chunks[0].id, 1.0),
        ScoredChunk(two.chunks[0].id, 0.5),
    ]
    assert found(engine, "setup", limit=1) == [ScoredChunk(one.chunks[0].id, 1.0)]
    assert found(engine, "setup", limit=0) == []


def test_the_first_passage_that_passes_the_filters_answers(engine: Engine) -> None:
    plain, coded = entry("a.md", "0", "1", "2"), entry("a.md", "0", "1", "2", languages=("go",))
    mixed = replace(plain, chunks=(*plain.chunks[:1], *coded.chunks[1:]))
    one = replace(mixed, document=replace(mixed.document, title="Setup"))
    two = entry("b.md", "0", title="Setup")
    put(engine, one, two)
    assert found(engine, "Setup", Filters(languages=("Go",))) == [
        ScoredChunk(one.chunks[1].id, 1.0)
    ]
    assert found(engine, "Setup", Filters(paths=("b.md",))) == [ScoredChunk(two.chunks[0].id, 1.0)]
    assert found(engine, "Setup", Filters(exclude=("b.md",))) == [
        ScoredChunk(one.chunks[0].id, 1.0)
    ]
    assert found(engine, "Setup", Filters(paths=("c.md",))) == []


def test_names_come_and_leave_with_their_documents(engine: Engine) -> None:
    put(engine, entry("a.md", "0", title="Old", headings=("Part",)))
    with engine.snapshot() as before:
        put(engine, entry("a.md", "0", title="New"))
        assert found(engine, "Old") == found(engine, "Part") == []
        assert (
            len(found(engine, "New"))
            == len(before.documents.find_by_title("Old", Filters(), 9))
            == 1
        )
    commit(engine, Batch(removed=(id_of("a.md"),)))
    assert found(engine, "New") == []
