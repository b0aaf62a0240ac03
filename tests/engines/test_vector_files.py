"""Vector files that are in use, which Windows neither deletes nor replaces: simulated on every platform."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from marklight import engines
from marklight.model import Batch
from marklight.ports import Engine
from marklight.query import Filters
from tests.contracts.builders import embedding, entry, vector

ONE, TWO = entry("a.md", "one"), entry("b.md", "two")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = engines.open(tmp_path)
    with engine.writing(1):
        engine.commit(Batch(entries=(ONE, TWO)))
        engine.commit(embedding(ONE))
    yield engine
    engine.close()


@pytest.fixture
def mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the vector file, which cannot be deleted or replaced, as on Windows while it is mapped."""
    (path,) = (tmp_path / "vectors").iterdir()
    unlink, replace = Path.unlink, os.replace

    def refuse_unlink(target: Path, missing_ok: bool = False) -> None:
        if target == path:
            raise PermissionError(13, "in use")
        unlink(target, missing_ok)

    def refuse_replace(source: Path, target: Path) -> None:
        if target == path:
            raise PermissionError(13, "in use")
        replace(source, target)

    monkeypatch.setattr(Path, "unlink", refuse_unlink)
    monkeypatch.setattr(os, "replace", refuse_replace)
    return path


def result_count(engine: Engine) -> int:
    with engine.snapshot() as snapshot:
        return len(snapshot.vectors.search(vector("q"), "m", Filters(), 9))


def test_a_file_in_use_is_deleted_by_the_next_sweep(
    engine: Engine, mapped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.clean(keep=()) == 1
    assert engine.check() == []
    assert mapped.exists()
    monkeypatch.undo()
    assert engine.check() == ["Deleted leftover files or folders of the index: 1"]
    assert not mapped.exists()


def test_vectors_are_written_beside_a_damaged_file_in_use(engine: Engine, mapped: Path) -> None:
    mapped.write_bytes(b"damaged")
    with engine.writing(1):
        engine.commit(embedding(TWO))
    assert result_count(engine) == 2
    assert engine.check() == []


def test_a_check_reports_a_damaged_file_that_is_in_use(
    engine: Engine, mapped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped.write_bytes(b"damaged")
    assert "in use" in engine.check()[0]
    assert result_count(engine) == 1
    monkeypatch.undo()
    assert engine.check() == [
        "The vector file of m was damaged and has been rebuilt from the database"
    ]
