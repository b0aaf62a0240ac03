"""Every engine there is; a test that takes `engine` runs over each of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marklight import engines
from marklight.engines.embedded.engine import EXACT_MOST, EmbeddedEngine
from marklight.ports import Engine

SHM = Path("/dev/shm")
ENGINES = ("memory", "embedded", "signs")
"""The last is the embedded one as it works with very many vectors."""

Open = Callable[[], Engine]


@pytest.fixture(params=ENGINES)
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens one and the same place, again and again."""
    opened: list[Engine] = []
    # In memory where the system has that: waiting for a disk tells nothing here.
    place = tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else tmp_path)
    exact_most = 0 if request.param == "signs" else EXACT_MOST
    lasting = engines.open("memory:") if request.param == "memory" else None

    def open_engine() -> Engine:
        # What lives in memory ends with its engine: there, opening again is keeping it.
        engine = lasting or EmbeddedEngine(Path(place.name) / "library", exact_most)
        opened.append(engine)
        return engine

    yield open_engine
    for engine in opened:
        engine.close()
    place.cleanup()


@pytest.fixture
def engine(reopen: Open) -> Engine:
    return reopen()
