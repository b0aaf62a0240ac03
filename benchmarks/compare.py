"""Compare speed, memory and disk of the working tree with another commit, both measured in turns in one run.

`python -m benchmarks.compare [COMMIT]` installs the commit (default: the parent of HEAD) into an environment of its own, runs the
same probes with both versions, one after the other in every round, and prints the ratio of the best rounds. A ratio
above 1.05 is marked. Where other programs run, read the ratios of processor time: they hardly depend on them. The ratio of
the slowest to the best round of one version shows how noisy the machine was.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks._measure import ROOT, corpus, questions, save

ROUNDS = 5
QUERIES = 60
"""Queries of each probe; none is repeated, so that no vector of a query is cached."""
LIMIT = 1.05
"""Ratio above which a figure is marked: a slowdown of more than a twentieth."""
COLLECTION = "fastapi"

WARM = """
import json, statistics, sys, time
import marklight
folder, index, queries = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
figures = {}
def measure(name, part, **options):
    spent = []
    for text in queries[part::4]:
        began = time.perf_counter(), time.process_time()
        library.search(text, **options)
        spent.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    wall, processor = zip(*spent)
    figures[name + ", ms"] = statistics.median(wall) * 1e3
    figures[name + ", processor ms"] = statistics.median(processor) * 1e3
with marklight.open(folder, {"engine": "file:" + index}) as library:
    measure("first searches", 0)
    measure("warm search", 1)
    measure("warm search without the check of the disk", 2, refresh=False)
    measure("warm keyword search", 3, mode="keyword")
    status = open("/proc/self/status").read()
    figures["peak memory of searches, MB"] = int(status.split("VmHWM:")[1].split()[0]) / 1e3
print(json.dumps(figures))
"""

TEXT = """
import json, sys, tempfile, time
import marklight
with tempfile.TemporaryDirectory() as index:
    began = time.perf_counter()
    with marklight.open(sys.argv[1], {"engine": "file:" + index, "model": {"name": "fake"}}) as library:
        library.index()
    figures = {"index with a model that computes nothing, ms": (time.perf_counter() - began) * 1e3}
print(json.dumps(figures))
"""

COMMAND = """
import json, os, subprocess, sys, time
began = time.perf_counter()
subprocess.run(sys.argv[2:], check=True, capture_output=True)
spent, times = time.perf_counter() - began, os.times()
processor = times.children_user + times.children_system
print(json.dumps({sys.argv[1] + ", ms": spent * 1e3, sys.argv[1] + ", processor ms": processor * 1e3}))
"""


class Version:
    """An installed version of Marklight with an index of the collection."""

    def __init__(self, python: Path, index: Path) -> None:
        self.python, self.index = python, index
        self.rounds: dict[str, list[float]] = {}

    def prepare(self, folder: Path) -> None:
        """Index the collection; record the duration and the size of the index."""
        self._time("index with the model", "index", str(folder), *self._engine)
        self.rounds["size of the index, MB"] = [
            sum(path.stat().st_size for path in self.index.rglob("*") if path.is_file()) / 1e6
        ]

    def measure(self, folder: Path, queries: list[str]) -> None:
        """Run all probes once."""
        self._run(WARM, str(folder), str(self.index), json.dumps(queries))
        self._run(TEXT, str(folder))
        search = ("search", queries[0], str(folder), *self._engine)
        self._time("cold search", *search)
        self._time("cold keyword search", *search, "--mode", "keyword")
        self._time("--help", "--help")

    @property
    def _engine(self) -> tuple[str, str]:
        return "--set", f"engine=file:{self.index}"

    def _time(self, name: str, *command: str) -> None:
        self._run(COMMAND, name, str(self.python.with_name("marklight")), *command)

    def _run(self, code: str, *arguments: str) -> None:
        unset = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        done = subprocess.run(
            [str(self.python), "-c", code, *arguments],
            check=True,
            capture_output=True,
            text=True,
            cwd=self.index.parent,
            env={**environment, "MARKLIGHT_DAEMON": "off"},
        )
        for name, value in json.loads(done.stdout.splitlines()[-1]).items():
            self.rounds.setdefault(name, []).append(value)


@contextmanager
def installed(commit: str, place: Path) -> Iterator[Path]:
    """Check out and install a commit; yield the interpreter of its environment."""
    tree, environment = place / "tree", place / "environment"
    git = ("git", "-C", str(ROOT), "worktree")
    subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        pip = (str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet")
        subprocess.run([*pip, "-c", str(tree / "constraints.txt"), str(tree)], check=True)
        yield environment / "bin" / "python"
    finally:
        subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def main() -> None:
    commit = sys.argv[1] if len(sys.argv) > 1 else "HEAD~1"
    folder, queries = corpus(COLLECTION), questions()[: 4 * QUERIES]
    with tempfile.TemporaryDirectory() as name, installed(commit, Path(name)) as python:
        versions = [
            Version(python, Path(name) / "before"),
            Version(Path(sys.executable), Path(name) / "after"),
        ]
        for version in versions:
            version.prepare(folder)
        for _ in range(ROUNDS):
            for version in versions:
                version.measure(folder, queries)
    before, after = versions
    ratios = {name: min(after.rounds[name]) / min(before.rounds[name]) for name in before.rounds}
    figures = {
        name: {
            "before": round(min(before.rounds[name]), 2),
            "after": round(min(after.rounds[name]), 2),
            "ratio": round(ratio, 3),
            "slowest_to_best_round": round(max(before.rounds[name]) / min(before.rounds[name]), 2),
            **({"slower": True} if ratio > LIMIT else {}),
        }
        for name, ratio in ratios.items()
    }
    save("compare", {"commit": commit, "collection": COLLECTION, **figures})


if __name__ == "__main__":
    main()
