"""kill -9 at any time of a copy or an import: the same command continues, and the result is that of an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import marklight
from marklight import engines
from marklight.library.transfer.copying import snapshot_source, summarize
from marklight.ports import INCOMPLETE
from tests.making import library, write
from tests.servers.postgres import new_library

KILLS = 12
MAX_PAUSE = 0.02
"""Seconds after a step: as long as a commit takes."""
COPY = """
import os, sys
import marklight
from marklight.engines import embedded
from marklight.engines.server import postgres
from marklight.library import Library, history, transfer
from marklight.library.transfer import archive, copying
copying.BATCH_DOCUMENTS, copying.BATCH_VECTORS = 3, 5   # many commits, so that kills hit every part of one
for line in sys.stdin:
    source, target = line.rstrip("\\n").split("\\t")
    move = transfer.import_index if source.endswith(".marklight") else transfer.copy_index
    child = os.fork()
    if not child:
        print(os.getpid(), flush=True)
        move(source, target, progress=lambda *far: os.write(1, b"step\\n"))
        os._exit(0)
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Import once what each run needs, then fork a process for each copy that is read from standard input."""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")


class Runs:
    """Run copies, each in a process of its own."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        assert program.stdin
        assert program.stdout
        self._input, self._output = program.stdin, program.stdout

    def run(self, source: str, target: str, steps: int | None, pause: float) -> int:
        """Copy, and kill the process a pause after so many steps; return its exit code."""
        print(source, target, sep="\t", file=self._input, flush=True)
        process, done = int(self._output.readline()), 0
        while not (line := self._output.readline()).startswith("ended"):
            done += 1
            if done == steps:
                time.sleep(pause)
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        return int(line.split()[1])


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with subprocess.Popen(
        [sys.executable, "-c", COPY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    ) as program:
        yield Runs(program)
        assert program.stdin
        program.stdin.close()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    files = {
        f"{at:02}.md": f"# Note {at}\n\nThe rope of boat {at}, see [[{at + 1:02}]].\n\n## More\n\nSail {at}.\n"
        for at in range(30)
    }
    with library(write(tmp_path / "source", files)) as lib:
        lib.index()
        marklight.export_index(lib, tmp_path / "docs.marklight")
    return tmp_path / "source"


@pytest.mark.parametrize("kind", ["file", "postgresql"])
def test_a_copy_that_is_killed_repeatedly_ends_like_an_undisturbed_one(
    runs: Runs, source: Path, tmp_path: Path, kind: str
) -> None:
    if kind == "file":
        _kill_and_continue(runs, str(source), source, f"file:{tmp_path / 'target'}")
        return
    with new_library() as address:
        _kill_and_continue(runs, str(source), source, address)


def test_an_import_that_is_killed_repeatedly_ends_like_an_undisturbed_one(
    runs: Runs, source: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "docs.marklight"
    _kill_and_continue(runs, str(archive), source, f"file:{tmp_path / 'target'}")


def _kill_and_continue(runs: Runs, given: str, source: Path, target: str) -> None:
    chance, steps, kills = random.Random(20261117), 1, 0
    while kills < KILLS and not is_complete(target):
        code = runs.run(given, target, steps, chance.uniform(0, MAX_PAUSE))
        assert code in (0, -signal.SIGKILL)
        kills += code != 0
        steps += chance.randint(1, 5)
    if not is_complete(target):
        assert runs.run(given, target, None, 0) == 0
    assert kills > 3
    assert is_complete(target)
    with library(source) as lib, lib.engine.snapshot() as snapshot:
        expected = summarize(snapshot_source(snapshot), files=False)
    engine = engines.open(target)
    with engine.snapshot() as snapshot:
        assert not expected.differences(summarize(snapshot_source(snapshot), files=False))
    engine.close()


def is_complete(target: str) -> bool:
    engine = engines.open(target)
    try:
        with engine.snapshot() as snapshot:
            return snapshot.status.manifest().get(INCOMPLETE) == ""
    finally:
        engine.close()
