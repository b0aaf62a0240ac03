"""A page that everything links to costs no more than any other."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import cast

import pytest

from marklight import engines
from marklight.engines.embedded import links
from marklight.engines.embedded.snapshot import EmbeddedSnapshot
from marklight.model import Batch
from tests.contracts.builders import entry, id_of, link


def steps(folder: Path, links: int, kept: bool) -> tuple[int, int]:
    """Instructions that SQLite runs for neighbours and degrees of a page with so many links to it."""
    engine = engines.open(folder)
    pages = [
        entry(f"{at}.md", "word", links=(link("hub"),) * (links // 100) + (link(f"{at + 1}"),))
        for at in range(100)
    ]
    with engine.writing(1):
        engine.commit(Batch(entries=(entry("hub.md", "word"), *pages)))
        if kept:
            engine.commit(Batch(communities={}))
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    found = []
    with engine.snapshot() as snapshot:
        connection: sqlite3.Connection = cast(EmbeddedSnapshot, snapshot).session.connection
        connection.set_progress_handler(count, 10)
        for ask in (snapshot.links.neighbours, snapshot.links.degrees):
            counted = 0
            assert ask([id_of("hub.md")], 8)
            found.append(counted)
        connection.set_progress_handler(None, 0)
    engine.close()
    return found[0], found[1]


@pytest.mark.parametrize("kept", [False, True])
def test_a_hub_costs_the_same_however_many_links_lead_to_it(
    tmp_path: Path, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "MAX_LINKS_RESOLVED", 0)
    few, many = steps(tmp_path / "few", 1_000, kept), steps(tmp_path / "many", 20_000, kept)
    assert many[0] < 1.2 * few[0]
    assert many[1] < 1.2 * few[1]
