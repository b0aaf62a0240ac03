"""Fixtures for contract tests: a test that takes `engine` runs with every engine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marklight import engines
from marklight.engines.embedded.engine import MAX_EXACT_VECTORS, EmbeddedEngine
from marklight.ports import Engine

SHM = Path("/dev/shm")
ENGINES = ("memory", "embedded", "binary_vectors")
"""The last is the embedded engine with the first pass over binary vectors that large indexes have."""

Open = Callable[[], Engine]


@pytest.fixture(params=ENGINES)
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens the same index each time it is called."""
    opened: list[Engine] = []
    # In shared memory if the system has it: the disk does not matter here.
    place = tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else tmp_path)
    max_exact_vectors = 0 if request.param == "binary_vectors" else MAX_EXACT_VECTORS
    in_memory = engines.open("memory:") if request.param == "memory" else None

    def open_engine() -> Engine:
        # An index in memory is lost with its engine: the same one is returned again.
        engine = in_memory or EmbeddedEngine(Path(place.name) / "library", max_exact_vectors)
        opened.append(engine)
        return engine

    yield open_engine
    for engine in opened:
        engine.close()
    place.cleanup()


@pytest.fixture
def engine(reopen: Open) -> Engine:
    return reopen()
