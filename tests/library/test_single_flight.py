"""Concurrent searches share one scan of the disk (single-flight)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from marklight.ingest.pipeline import Ingest
from marklight.library.refresh import SingleFlight
from tests.library.conftest import paths
from tests.library.watched import SECONDS
from tests.making import library, write
from tests.waiting import until

if TYPE_CHECKING:
    pass


def test_concurrent_searches_share_one_scan(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        look, gate, looks = Ingest.compare, Event(), []

        def slow(*given: Any, **more: Any) -> Any:
            looks.append(1)
            assert gate.wait(SECONDS)
            return look(*given, **more)

        monkeypatch.setattr(Ingest, "compare", slow)
        monkeypatch.setattr("marklight.library.refresh.SHORT_WAIT_SECONDS", SECONDS)
        with ThreadPoolExecutor(9) as threads:
            first = threads.submit(lib.search, "espresso")
            until(lambda: looks)
            write(folder, {"zebra.md": "# Zebra\n\nA zebra has stripes.\n"})
            others = [threads.submit(lib.search, "zebra", mode="keyword") for _ in range(8)]
            until(lambda: lib.refreshes.waiting == 8)
            gate.set()
            assert first.result(SECONDS).hits
            assert all(paths(each.result(SECONDS)) == ["zebra.md"] for each in others)
        assert len(looks) <= 4, (
            "one that ran, one for the eight, and each once more if it found a change"
        )


def test_a_caller_with_a_timeout_does_not_wait_longer() -> None:
    flight: SingleFlight[int] = SingleFlight()
    inside, leave = Event(), Event()

    def act() -> int:
        inside.set()
        assert leave.wait(SECONDS)
        return 1

    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(flight.run, act, 0.0)
        assert inside.wait(SECONDS)
        assert flight.run(lambda: 2, 0.01) is None
        leave.set()
        assert first.result(SECONDS) == 1
    assert flight.run(lambda: 3, 0.0) == 3


def test_a_failed_run_is_not_shared() -> None:
    flight: SingleFlight[int] = SingleFlight()
    inside, leave = Event(), Event()

    def fail() -> int:
        inside.set()
        assert leave.wait(SECONDS)
        raise ValueError("no")

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(flight.run, fail, 0.0)
        assert inside.wait(SECONDS)
        second = threads.submit(flight.run, lambda: 2, SECONDS)
        until(lambda: flight.waiting == 1)
        leave.set()
        with pytest.raises(ValueError, match="no"):
            first.result(SECONDS)
        assert second.result(SECONDS) == 2
