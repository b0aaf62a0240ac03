"""An index of an older format is rebuilt from the documents and keeps its vectors."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from marklight import ownership
from marklight.models.fake import FakeEmbedder
from tests.making import library, write

if TYPE_CHECKING:
    from marklight.model import Matrix

DUMP = Path(__file__).with_name("format_5.sql")
"""Index of the two documents below, written by the last version with format 5 and dumped as SQL."""
PAGES = {
    f"{name}.md": f"# {name.title()}\n\nAll about the {name} and its habits.\n"
    for name in ("heron", "otter")
}
ID = "ed95920292903b3571226d6017fb7b65"


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with documents and an index of format 5."""
    monkeypatch.setenv("MARKLIGHT_DATA_DIR", str(tmp_path / "data"))
    folder = write(tmp_path / "docs", PAGES)
    index = folder / ".marklight"
    index.mkdir(mode=0o700)
    store = sqlite3.connect(index / ownership.STORE)
    store.executescript(DUMP.read_text())
    store.execute("PRAGMA application_id = 1296780372")
    store.execute("PRAGMA user_version = 5")
    store.execute("PRAGMA journal_mode = WAL")
    store.close()
    ownership.mark(index, ID)
    ownership.record(index, ID)
    return folder


@pytest.fixture
def embedded_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which the model adds every text that it embeds."""
    texts: list[str] = []
    embed = FakeEmbedder.embed_passages

    def record(self: FakeEmbedder, given: Sequence[str]) -> Matrix:
        texts.extend(given)
        return embed(self, given)

    monkeypatch.setattr(FakeEmbedder, "embed_passages", record)
    return texts


def test_nothing_is_embedded_again_for_a_new_format(docs: Path, embedded_texts: list[str]) -> None:
    with library(docs) as lib:
        report = lib.index()
        assert len(report.added) == 2
        (notice,) = report.notices
        assert "was created by an older version of Marklight" in notice
        assert "2 of its vectors are reused" in notice
        assert (report.index.pending, embedded_texts) == (0, [])
        assert lib.search("otter habits").hits[0].chunk.path == "otter.md"
        assert lib.engine.check() == []
    with library(docs) as lib:
        assert lib.index().notices == ()


def test_a_search_after_the_update_has_all_results(docs: Path, embedded_texts: list[str]) -> None:
    with library(docs) as lib:
        answer = lib.search("heron")
        assert answer.hits[0].chunk.path == "heron.md"
        assert "older version" in "".join(answer.notices)
        assert [text for text in embedded_texts if "habits." in text] == []


def test_other_tables_of_format_5_are_not_read(docs: Path, embedded_texts: list[str]) -> None:
    store = sqlite3.connect(docs / ".marklight" / ownership.STORE)
    store.execute("CREATE VIEW extra AS SELECT * FROM vectors")
    store.close()
    with library(docs) as lib:
        (notice,) = lib.index().notices
        assert "has other tables than this version creates" in notice
        assert "reused" not in notice
        assert len([text for text in embedded_texts if "habits." in text]) == 2
