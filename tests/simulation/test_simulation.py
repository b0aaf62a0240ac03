"""Several processes on one index, with edits, faults and kills at every call: nothing is lost, nothing is silently wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tantivy

from marklight.engines.embedded import lexical_writer, vector_files
from marklight.library import search
from marklight.library.refresh import CollectionFiles, RefreshResult
from tests.simulation.world import runs

ROOT = Path(__file__).parents[2]
SEEDS, PARTS = 200, 8

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="it needs fork and inotify"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


def run(first: int, last: int) -> str:
    """Run seeds in a process without threads; return its output."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation.world", str(first), str(last)],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


@pytest.mark.parametrize("part", range(PARTS))
def test_two_hundred_seeds_hold_all_guarantees(part: int) -> None:
    count = SEEDS // PARTS
    output = run(part * count, (part + 1) * count - 1)
    assert f'{{"seeds": {count}, "violations": 0' in output, output


def test_a_process_may_stop_for_a_minute_while_it_opens_the_lexical_index() -> None:
    assert '"violations": 0' in run(20289, 20289)


def test_a_seed_always_gives_the_same_run() -> None:
    first, second = (
        [line for line in run(5, 5).splitlines() if "tmp" not in line] for _ in range(2)
    )
    assert len(first) > 50
    assert first == second


BROKEN: dict[str, tuple[object, str, Callable[..., object]]] = {
    "deleted before": (CollectionFiles, "is_here", lambda *_: True),
    "is not found": (search, "refresh_index", lambda *_: RefreshResult()),
    "lexical index differ": (
        lexical_writer,
        "_document",
        lambda *_: tantivy.Document(),
    ),
    "vectors differ": (vector_files.VectorFile, "row_bytes", lambda _, rows: bytes(rows.nbytes)),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_part_is_a_violation(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BROKEN[broken])
    assert any(isinstance(result, str) and broken in result for _, result in runs(range(40)))
