"""Fixtures for contract tests: a test that takes `engine` runs with every engine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest

from marklight import engines
from marklight.engines.embedded.engine import MAX_EXACT_VECTORS, EmbeddedEngine
from marklight.ports import Engine
from tests.oracle import MemoryEngine
from tests.scratch import scratch_parent
from tests.servers.postgres import new_library
from tests.servers.qdrant import new_fleet_library

ENGINES = ("memory", "embedded", "binary_vectors", "postgresql", "qdrant")
"""`binary_vectors` is the embedded engine with the first pass over binary vectors that large indexes have."""

Open = Callable[[], Engine]


@pytest.fixture(params=ENGINES)
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens the same index each time it is called."""
    opened: list[Engine] = []
    with OPENERS[request.param](tmp_path) as open_engine:

        def open_and_record() -> Engine:
            opened.append(open_engine())
            return opened[-1]

        yield open_and_record
        for engine in opened:
            engine.close()


@contextmanager
def in_memory(_: Path) -> Iterator[Open]:
    engine = MemoryEngine()
    yield lambda: engine  # it is lost with its engine: the same one is returned again


@contextmanager
def in_folder(tmp_path: Path, max_exact_vectors: int = MAX_EXACT_VECTORS) -> Iterator[Open]:
    with tempfile.TemporaryDirectory(dir=scratch_parent() or tmp_path) as folder:
        yield lambda: EmbeddedEngine(Path(folder) / "library", max_exact_vectors)


@contextmanager
def on_postgresql(_: Path) -> Iterator[Open]:
    with new_library() as address:
        yield lambda: engines.open(address)


@contextmanager
def on_qdrant(_: Path) -> Iterator[Open]:
    with new_fleet_library() as address:
        yield lambda: engines.open(address)


OPENERS: Mapping[str, Callable[[Path], AbstractContextManager[Open]]] = {
    "memory": in_memory,
    "embedded": in_folder,
    "binary_vectors": partial(in_folder, max_exact_vectors=0),
    "postgresql": on_postgresql,
    "qdrant": on_qdrant,
}


@pytest.fixture
def engine(reopen: Open) -> Engine:
    return reopen()
