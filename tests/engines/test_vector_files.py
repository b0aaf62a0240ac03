"""Vector files that are in use, which Windows neither deletes nor replaces: simulated on every platform."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from marklight import engines, vector_math
from marklight.errors import StoreError
from marklight.model import Batch
from marklight.ports import Engine
from marklight.query import Filters
from marklight.vector_math import decode_vectors
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
        assert result_count(engine) == 1
        engine.commit(embedding(ONE))
    assert result_count(engine) == 2
    assert engine.check() == []


def test_vectors_of_two_models_stay_decoded(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine.writing(1):
        engine.commit(embedding(ONE, model="other"))
    query, decoded = vector("q"), list[int]()

    def record(rows: NDArray[np.int8]) -> NDArray[np.float32]:
        decoded.append(len(rows))
        return decode_vectors(rows)

    monkeypatch.setattr(vector_math, "decode_vectors", record)
    for model in ("m", "other") * 3:
        with engine.snapshot() as snapshot:
            assert len(snapshot.vectors.search(query, model, Filters(), 9)) == 1
    assert decoded == [1, 1]


def test_a_file_that_cannot_be_mapped_is_one_clear_error(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(np, "memmap", fail)
    with pytest.raises(StoreError, match="Input/output error"):
        result_count(engine)
