"""kill -9 at any moment of indexing: what was committed stays, and the end is as if nothing had happened."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from marklight import Library
from tests.making import library, write

KILLS = 50
LIBRARIES = 5
SEED = 20261115

INDEX = """
import sys
import marklight
from marklight.ingest import embed, look
look.BATCH_FILES, embed.WINDOW = 5, 9   # many commits, so that a kill meets every part of one
with marklight.open(sys.argv[1], {"engine": sys.argv[2], "model": {"name": "fake"}}) as library:
    library.index(progress=lambda *far: print(*far, flush=True))
"""
"""Tells how far it is, so that it can be killed at any place, however fast the machine is just now."""
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


def run(folder: Path, place: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", INDEX, str(folder), place], stdout=subprocess.PIPE
    )


def is_at_work(process: subprocess.Popen[bytes], steps: int) -> bool:
    """Whether it has come so far and is not done."""
    assert process.stdout
    return all(process.stdout.readline() for _ in range(steps))


def contents(lib: Library) -> dict[str, Any]:
    """Everything that a user can see of a library, without what depends on the number of commits."""
    with lib.engine.snapshot() as reader:
        files = reader.files()
        model = lib.embedder.fingerprint if lib.embedder else ""
        counts = reader.counts(model)
        chunks = {
            id: [(one.id, one.text, one.lines) for one in reader.chunks_of(id)]
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
def test_fifty_kills_lose_nothing(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    killed = 0
    with run(write(tmp_path / "calm", documents(40)), "memory:") as undisturbed:
        assert undisturbed.stdout
        length = len(undisturbed.stdout.readlines())
    assert undisturbed.returncode == 0
    for number in range(LIBRARIES):
        folder = write(tmp_path / f"docs{number}", documents(40))
        place = f"file:{tmp_path / f'index{number}'}"
        committed: set[Any] = set()
        grown = 0
        for _ in range(KILLS // LIBRARIES):
            with run(folder, place) as process:
                if is_at_work(process, chance.randint(0, length // 2)):
                    time.sleep(chance.uniform(0, PAUSE_SECONDS))
                    process.send_signal(signal.SIGKILL)
            if process.returncode:
                assert process.returncode == -signal.SIGKILL
                killed += 1
            else:
                # It was done already: give it something new, and let the next round begin with that.
                grown += 1
                write(folder, documents(40, start=1000 * grown))
            with library(folder, engine=place) as lib:
                with lib.engine.snapshot() as reader:
                    found = set(reader.files())
                assert committed <= found, "a committed document was lost"
                committed = found
                lib.search("violin", refresh=False)
        with library(folder, engine=place) as lib:
            lib.index()
            disturbed = contents(lib)
        with library(folder, engine=f"file:{tmp_path / f'fresh{number}'}") as calm:
            calm.index()
            assert disturbed == contents(calm)
    assert killed >= KILLS // 2, (
        f"only {killed} of {KILLS} processes were still at work when killed"
    )
