"""kill -9 at any time of indexing: commits persist, and the final result is that of an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marklight import Library
from tests.making import library, write

KILLS = 50
LIBRARIES = 5
SEED = 20261115

INDEX = """
import os, sys
from marklight.engines.embedded import engine
from marklight.ingest import file_batch, embedding
from marklight.ingest.parse import markdown
from marklight.library import Library
file_batch.BATCH_FILES, embedding.WINDOW = 5, 9   # many commits, so that kills hit every part of one
for line in sys.stdin:
    folder, place = line.rstrip("\\n").split("\\t")
    child = os.fork()
    if not child:
        print(os.getpid(), flush=True)
        with Library(folder, {"engine": place, "model": {"name": "fake"}}) as library:
            library.index(progress=lambda *far: os.write(1, b"step\\n"))
        os._exit(0)
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Import once what each run needs, then fork a process for each library that is read from standard input.

A process prints its progress, so that it can be killed at any step, however fast the machine is.
"""
PAUSE_SECONDS = 0.03
"""Longer than a commit takes."""


def documents(count: int, start: int = 0) -> dict[str, str]:
    rows = random.Random(start)
    topics = ["river", "castle", "engine", "garden", "harbour", "violin", "copper", "meadow"]
    return {
        f"part{number % 5}/page{number}.md": "\n\n".join(
            f"## Section {section}\n\n"
            + " ".join(rows.choices(topics, k=60))
            + f" mark{number}x{section}"
            for section in range(3)
        )
        for number in range(start, start + count)
    }


class Runs:
    """Run indexing repeatedly, each time in a process of its own."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        assert program.stdin
        assert program.stdout
        self._input, self._output = program.stdin, program.stdout

    def run(self, folder: Path, place: str, steps: int | None, pause: float) -> tuple[int, int]:
        """Index, and kill the process a pause after so many steps; return its exit code and the number of steps."""
        print(folder, place, sep="\t", file=self._input, flush=True)
        process, done = int(self._output.readline()), 0
        ended: int | None = None
        while done != steps and (ended := self._ended()) is None:
            done += 1
        if ended is None:
            time.sleep(pause)
            os.kill(process, signal.SIGKILL)
            while (ended := self._ended()) is None:
                pass
        return ended, done

    def _ended(self) -> int | None:
        word, _, code = self._output.readline().partition(" ")
        return int(code) if word == "ended" else None


@pytest.fixture
def runs() -> Iterator[Runs]:
    with subprocess.Popen(
        [sys.executable, "-c", INDEX], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        yield Runs(program)
        assert program.stdin
        program.stdin.close()


def contents(lib: Library) -> dict[str, Any]:
    """Return all visible content of a library, without what depends on the number of commits."""
    with lib.engine.snapshot() as snapshot:
        files = snapshot.documents.files()
        model = lib.models.embedder.fingerprint if lib.models.embedder else ""
        counts = snapshot.status.counts(model)
        chunks = {
            id: [(chunk.id, chunk.text, chunk.lines) for chunk in snapshot.documents.chunks_of(id)]
            for id in sorted(files)
        }
    answers = {
        text: sorted(
            (hit.chunk.id, round(hit.score, 3))
            for hit in lib.search(text, limit=20, min_confidence=0.0, refresh=False).hits
        )
        for text in ("violin garden mark3x1", "mark17x2", "copper harbour")
    }
    return {
        "files": sorted(files),
        "chunks": chunks,
        "counts": (counts.documents, counts.chunks, counts.embedded),
        "answers": answers,
    }


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")
def test_fifty_kills_lose_nothing(tmp_path: Path, runs: Runs) -> None:
    chance = random.Random(SEED)
    killed = 0
    quiet = write(tmp_path / "quiet", documents(40))
    code, length = runs.run(quiet, f"file:{tmp_path / 'undisturbed'}", None, 0)
    assert code == 0
    for number in range(LIBRARIES):
        folder = write(tmp_path / f"docs{number}", documents(40))
        place = f"file:{tmp_path / f'index{number}'}"
        committed: set[Any] = set()
        grown = 0
        for _ in range(KILLS // LIBRARIES):
            steps, pause = chance.randint(0, length // 2), chance.uniform(0, PAUSE_SECONDS)
            code, _ = runs.run(folder, place, steps, pause)
            if code:
                assert code == -signal.SIGKILL
                killed += 1
            else:
                # It had finished: add documents for the next round.
                grown += 1
                write(folder, documents(40, start=1000 * grown))
            with library(folder, engine=place) as lib:
                with lib.engine.snapshot() as snapshot:
                    current = set(snapshot.documents.files())
                assert committed <= current, "a committed document was lost"
                committed = current
                lib.search("violin", refresh=False)
        with library(folder, engine=place) as lib:
            lib.index()
            disturbed = contents(lib)
        with library(folder, engine=f"file:{tmp_path / f'fresh{number}'}") as calm:
            calm.index()
            assert disturbed == contents(calm)
    assert killed >= KILLS // 2, (
        f"only {killed} of {KILLS} processes were killed before they finished"
    )
