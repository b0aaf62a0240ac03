"""`marklight index --watch` as a process: real files, real signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from marklight.surfaces.cli import run
from tests.making import write

SECONDS = 60.0
"""Timeout; only a failing test waits this long."""
PAGES = {"auth.md": "# Auth\n\nTokens expire.\n", "deploy.md": "# Deploy\n\nRoll out.\n"}
MAIN = "from marklight.surfaces.cli import main; main()"


class Watching:
    """A process and the lines that it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: SimpleQueue[str] = SimpleQueue()
        Thread(target=self._read, daemon=True).start()

    def line(self) -> str:
        return self._lines.get(timeout=SECONDS)

    def stop(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        output = self.process.stderr.read() if self.process.stderr else ""
        return self.process.wait(SECONDS), output

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._lines.put(line.rstrip("\n"))


@contextmanager
def watching(folder: Path, *more: str) -> Iterator[Watching]:
    settings = ("--set", "model.name=fake")
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "index", str(folder), "--watch", *settings, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    try:
        yield Watching(process)
    finally:
        process.kill()
        process.communicate()


def test_each_batch_is_a_line_until_ctrl_c(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", PAGES)
    with watching(folder) as one:
        assert one.line().startswith("2 added")
        assert one.line().startswith("2 documents")
        write(folder, {"guide/new.md": "# New\n\nA page.\n"})
        assert one.line() == "added guide/new.md"
        write(folder, {"auth.md": "# Auth\n\nTokens never expire.\n"})
        assert one.line() == "changed auth.md"
        (folder / "guide/new.md").rename(folder / "guide/old.md")
        assert one.line() == "moved guide/new.md → guide/old.md"
        (folder / "deploy.md").unlink()
        assert one.line() == "removed deploy.md"
        code, output = one.stop()
    assert code == 0
    assert "Traceback" not in output


def test_with_json_each_batch_is_a_json_line(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", PAGES)

    def batch(line: str) -> dict[str, Any]:
        found = json.loads(line)
        return {key: found[key] for key in ("added", "changed", "moved", "removed") if found[key]}

    with watching(folder, "--json") as one:
        assert batch(one.line()) == {"added": ["auth.md", "deploy.md"]}
        (folder / "auth.md").rename(folder / "login.md")
        assert batch(one.line()) == {"moved": [{"from": "auth.md", "to": "login.md"}]}
        assert one.stop()[0] == 0


def test_watch_takes_one_library(tmp_path: Path) -> None:
    assert run(["index", str(tmp_path), str(tmp_path), "--watch"]) == 2
