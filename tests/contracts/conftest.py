"""Every engine there is; a test that takes `engine` runs over each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marklight import engines
from marklight.ports import Engine

ENGINES = ("memory", "embedded")

Open = Callable[[], Engine]


@pytest.fixture(params=ENGINES)
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens one and the same place, again and again."""
    opened: list[Engine] = []
    lasting = engines.open("memory:") if request.param == "memory" else None

    def open_engine() -> Engine:
        # What lives in memory ends with its engine: there, opening again is keeping it.
        engine = lasting or engines.open(f"file:{tmp_path / 'library'}")
        opened.append(engine)
        return engine

    yield open_engine
    for engine in opened:
        engine.close()


@pytest.fixture
def engine(reopen: Open) -> Engine:
    return reopen()
