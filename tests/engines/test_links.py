"""The edge table of the embedded engine: updated with each commit, rebuilt by a check, cheap for hubs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from marklight import engines
from marklight.engines.embedded.engine import EmbeddedSnapshot
from marklight.engines.relational import links
from marklight.model import Batch, Entry
from marklight.ports import Engine
from tests.contracts.builders import entry, id_of, link

HUB = id_of("hub.md")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = engines.open(tmp_path / "library")
    yield engine
    engine.close()


def put(engine: Engine, *entries: Entry, grouped: bool = False) -> None:
    with engine.writing(1):
        engine.commit(Batch(entries=entries, communities={} if grouped else None))


def spokes(count: int) -> list[Entry]:
    return [entry(f"{at}.md", "word", links=(link("hub"),)) for at in range(count)]


def run(folder: Path, sql: str) -> list[tuple[int, ...]]:
    connection = sqlite3.connect(folder / "library" / "library.db")
    rows = connection.execute(sql).fetchall()
    connection.commit()
    connection.close()
    return rows


def is_up_to_date(folder: Path) -> bool:
    return run(folder, "SELECT edges_updated = links_changed FROM state") == [(1,)]


def hub_degree(engine: Engine) -> int:
    with engine.snapshot() as snapshot:
        return snapshot.links.degrees([HUB], 99)[HUB]


def test_a_commit_updates_the_edges(engine: Engine, tmp_path: Path) -> None:
    put(engine, entry("hub.md", "word"), *spokes(3), grouped=True)
    put(engine, entry("0.md", "word", links=(link("other"),)))
    assert is_up_to_date(tmp_path)
    assert hub_degree(engine) == 2
    # An unresolved link resolves when its target is added.
    put(engine, entry("other.md", "word"))
    assert is_up_to_date(tmp_path)
    assert run(tmp_path, "SELECT count(*) FROM edges") == [(2 + 1,)]
    with engine.writing(1):
        engine.commit(Batch(removed=(HUB,)))
    assert is_up_to_date(tmp_path)
    assert run(tmp_path, "SELECT count(*) FROM edges") == [(1,)]


def test_too_many_changed_links_are_resolved_with_the_communities(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "MAX_LINKS_RESOLVED", 4)
    put(engine, entry("hub.md", "word"), *spokes(5))
    assert not is_up_to_date(tmp_path)
    assert hub_degree(engine) == 5
    put(engine, grouped=True)
    assert is_up_to_date(tmp_path)
    assert hub_degree(engine) == 5


def test_a_hub_with_changed_text_keeps_its_edges(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "MAX_LINKS_RESOLVED", 4)
    put(engine, entry("hub.md", "word"), *spokes(9), grouped=True)
    put(engine, entry("hub.md", "other words"))
    assert is_up_to_date(tmp_path)
    assert hub_degree(engine) == 9
    # With a new link of its own, only that one is resolved.
    put(engine, entry("hub.md", "other words", links=(link("1"),)))
    assert is_up_to_date(tmp_path)
    assert hub_degree(engine) == 9 + 1


def test_a_check_rebuilds_wrong_edges(engine: Engine, tmp_path: Path) -> None:
    put(engine, entry("hub.md", "word"), *spokes(2), grouped=True)
    run(tmp_path, "DELETE FROM edges")
    assert hub_degree(engine) == 0
    assert engine.check() == ["The table of links between documents was wrong and has been rebuilt"]
    assert hub_degree(engine) == 2
    assert engine.check() == []


def test_a_failed_commit_leaves_the_edges_unchanged(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(engine, entry("hub.md", "word"), *spokes(2), grouped=True)

    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(links, "resolved_edges", fail)  # after the edges of the hub were deleted
        with pytest.raises(OSError, match="gone"):
            put(engine, entry("hub.md", "word", links=(link("0"),)))
    assert is_up_to_date(tmp_path)
    assert hub_degree(engine) == 2


def vm_steps(folder: Path, link_count: int, up_to_date: bool) -> tuple[int, int]:
    """Count the instructions that SQLite runs for the neighbours and degrees of a document with many links to it."""
    engine = engines.open(folder)
    pages = [
        entry(f"{at}.md", "word", links=(link("hub"),) * (link_count // 100) + (link(f"{at + 1}"),))
        for at in range(100)
    ]
    with engine.writing(1):
        engine.commit(Batch(entries=(entry("hub.md", "word"), *pages)))
        if up_to_date:
            engine.commit(Batch(communities={}))
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


@pytest.mark.parametrize("up_to_date", [False, True])
def test_reading_a_hub_costs_the_same_however_many_links_it_has(
    tmp_path: Path, up_to_date: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "MAX_LINKS_RESOLVED", 0)
    few, many = (
        vm_steps(tmp_path / "few", 1_000, up_to_date),
        vm_steps(tmp_path / "many", 20_000, up_to_date),
    )
    assert many[0] < 1.2 * few[0]
    assert many[1] < 1.2 * few[1]
