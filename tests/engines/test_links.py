"""The edge table of the embedded engine: updated with each commit, rebuilt by a check, cheap for hubs."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import cast

import pytest

from marklight import engines
from marklight.engines.embedded.engine import EmbeddedSnapshot
from marklight.engines.relational import SqlSession, links
from marklight.model import Batch, Entry
from marklight.ports import Engine
from tests.contracts.builders import entry, id_of, link

HUB = id_of("hub.md")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = engines.open(tmp_path / "library")
    yield engine
    engine.close()


def put(engine: Engine, *entries: Entry) -> None:
    with engine.writing(1):
        engine.commit(Batch(entries=entries))


def spokes(count: int) -> list[Entry]:
    return [entry(f"{at}.md", "word", links=(link("hub"),)) for at in range(count)]


def run(folder: Path, sql: str) -> list[tuple[int, ...]]:
    connection = sqlite3.connect(folder / "library" / "library.db")
    rows = connection.execute(sql).fetchall()
    connection.commit()
    connection.close()
    return rows


def hub_degree(engine: Engine) -> int:
    with engine.snapshot() as snapshot:
        return snapshot.links.degrees([HUB], 99)[HUB]


def test_a_commit_updates_the_edges(engine: Engine, tmp_path: Path) -> None:
    put(engine, entry("hub.md", "word"), *spokes(3))
    put(engine, entry("0.md", "word", links=(link("other"),)))
    assert hub_degree(engine) == 2
    # An unresolved link resolves when its target is added.
    put(engine, entry("other.md", "word"))
    assert run(tmp_path, "SELECT count(*) FROM edges") == [(2 + 1,)]
    with engine.writing(1):
        engine.commit(Batch(removed=(HUB,)))
    assert run(tmp_path, "SELECT count(*) FROM edges") == [(1,)]


def test_a_hub_with_changed_text_keeps_its_edges(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved: list[int] = []
    resolve = links.resolved_edges

    def resolve_counted(session: SqlSession, sources: Collection[int]) -> set[tuple[int, int]]:
        resolved.append(len(sources))
        return resolve(session, sources)

    monkeypatch.setattr(links, "resolved_edges", resolve_counted)
    put(engine, entry("hub.md", "word"), *spokes(9))
    put(engine, entry("hub.md", "other words"))
    assert hub_degree(engine) == 9
    assert resolved == [9]
    # With a new link of its own, only that one is resolved.
    put(engine, entry("hub.md", "other words", links=(link("1"),)))
    assert hub_degree(engine) == 9 + 1
    assert resolved == [9, 1]


def test_a_check_rebuilds_wrong_edges(engine: Engine, tmp_path: Path) -> None:
    put(engine, entry("hub.md", "word"), *spokes(2))
    run(tmp_path, "DELETE FROM edges")
    assert hub_degree(engine) == 0
    assert engine.check() == ["The table of links between documents was wrong and has been rebuilt"]
    assert hub_degree(engine) == 2
    assert engine.check() == []


def test_a_failed_commit_leaves_the_edges_unchanged(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(engine, entry("hub.md", "word"), *spokes(2))

    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(links, "resolved_edges", fail)  # after the edges of the hub were deleted
        with pytest.raises(OSError, match="gone"):
            put(engine, entry("hub.md", "word", links=(link("0"),)))
    assert hub_degree(engine) == 2


def vm_steps(folder: Path, link_count: int) -> tuple[int, int]:
    """Count the instructions that SQLite runs for the neighbours and degrees of a document with many links to it."""
    engine = engines.open(folder)
    pages = [
        entry(f"{at}.md", "word", links=(link("hub"),) * (link_count // 100) + (link(f"{at + 1}"),))
        for at in range(100)
    ]
    with engine.writing(1):
        engine.commit(Batch(entries=(entry("hub.md", "word"), *pages)))
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    counts = []
    with engine.snapshot() as snapshot:
        connection: sqlite3.Connection = cast(EmbeddedSnapshot, snapshot).session.connection
        connection.set_progress_handler(count, 10)
        for query in (snapshot.links.neighbours, snapshot.links.degrees):
            counted = 0
            assert query([id_of("hub.md")], 8)
            counts.append(counted)
        connection.set_progress_handler(None, 0)
    engine.close()
    return counts[0], counts[1]


def test_reading_a_hub_costs_the_same_however_many_links_it_has(tmp_path: Path) -> None:
    few, many = vm_steps(tmp_path / "few", 1_000), vm_steps(tmp_path / "many", 20_000)
    assert many[0] < 1.2 * few[0]
    assert many[1] < 1.2 * few[1]
