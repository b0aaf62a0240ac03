"""Who links to whom is resolved when links change, and kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from marklight import engines
from marklight.engines.embedded import links
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
    found = connection.execute(sql).fetchall()
    connection.commit()
    connection.close()
    return found


def is_kept(folder: Path) -> bool:
    return run(folder, "SELECT paired = linked FROM state") == [(1,)]


def leads_to_hub(engine: Engine) -> int:
    with engine.snapshot() as snapshot:
        return snapshot.links.degrees([HUB], 99)[HUB]


def test_an_edit_is_followed_at_once(engine: Engine, tmp_path: Path) -> None:
    put(engine, entry("hub.md", "word"), *spokes(3), grouped=True)
    put(engine, entry("0.md", "word", links=(link("other"),)))
    assert is_kept(tmp_path)
    assert leads_to_hub(engine) == 2
    # What leads nowhere finds its document when that comes.
    put(engine, entry("other.md", "word"))
    assert is_kept(tmp_path)
    assert run(tmp_path, "SELECT count(*) FROM edges") == [(2 + 1,)]
    with engine.writing(1):
        engine.commit(Batch(removed=(HUB,)))
    assert is_kept(tmp_path)
    assert run(tmp_path, "SELECT count(*) FROM edges") == [(1,)]


def test_more_links_than_a_commit_follows_wait_until_documents_are_grouped(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "MAX_LINKS_RESOLVED", 4)
    put(engine, entry("hub.md", "word"), *spokes(5))
    assert not is_kept(tmp_path)
    assert leads_to_hub(engine) == 5
    put(engine, grouped=True)
    assert is_kept(tmp_path)
    assert leads_to_hub(engine) == 5


def test_a_hub_whose_words_change_keeps_all_that_lead_to_it(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "MAX_LINKS_RESOLVED", 4)
    put(engine, entry("hub.md", "word"), *spokes(9), grouped=True)
    put(engine, entry("hub.md", "other words"))
    assert is_kept(tmp_path)
    assert leads_to_hub(engine) == 9
    # With a link of its own, only that one is in doubt.
    put(engine, entry("hub.md", "other words", links=(link("1"),)))
    assert is_kept(tmp_path)
    assert leads_to_hub(engine) == 9 + 1


def test_a_check_finds_out_anew_what_is_wrong(engine: Engine, tmp_path: Path) -> None:
    put(engine, entry("hub.md", "word"), *spokes(2), grouped=True)
    run(tmp_path, "DELETE FROM edges")
    assert leads_to_hub(engine) == 0
    assert engine.check() == ["Which documents link to which was found out anew"]
    assert leads_to_hub(engine) == 2
    assert engine.check() == []


def test_a_commit_that_fails_leaves_them_as_they_were(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(engine, entry("hub.md", "word"), *spokes(2), grouped=True)

    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(links, "resolved_edges", fail)  # when edges of the hub have gone already
        with pytest.raises(OSError, match="gone"):
            put(engine, entry("hub.md", "word", links=(link("0"),)))
    assert is_kept(tmp_path)
    assert leads_to_hub(engine) == 2
