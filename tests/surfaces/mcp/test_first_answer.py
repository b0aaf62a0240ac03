"""The first answer about a folder that was never indexed waits, within a limit, until its files are read."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from marklight.library.watching import Watcher
from marklight.surfaces.cli import run
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp.server import make_server
from tests.making import index_of, library, write

from .serving import text_of

LAST = "zz/last.md"
NUMBER = 300


class SlowWatcher(Watcher):
    """A watcher that takes some time for every file."""

    def _report(self, phase: str, done: int, total: int) -> None:
        super()._report(phase, done, total)
        if not self.text_was_tried:
            time.sleep(0.01)


async def first_answer(folder: Path, heard: list[str], **settings: Any) -> str:
    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    host = LibraryHost(library(folder, **settings))
    host.watcher = SlowWatcher(host.library)
    async with host.open(), Client(make_server(host), mode="legacy") as client:
        given = {"query": "giraffes", "mode": "keyword", "min_score": 0}
        return text_of(await client.call_tool("query_documents", given, progress_callback=hear))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pages = {f"{n:03}.md": f"# Page {n}\n\nBananas, part {n}.\n" for n in range(NUMBER)}
    write(tmp_path, {**pages, LAST: "# Last\n\nGiraffes are tall.\n"})
    os.utime(tmp_path / LAST, (0, 0))  # the oldest file is read last
    return tmp_path


def test_a_call_waits_for_the_text_of_a_new_folder_and_reports_progress(folder: Path) -> None:
    heard: list[str] = []

    async def main() -> str:
        return await first_answer(folder, heard, mcp={"wait_seconds": 60})

    assert anyio.run(main).startswith(f"[1] {LAST}:")
    assert any(message.startswith("indexing") for message in heard)


def test_after_the_time_limit_the_answer_reports_the_share_that_was_read(folder: Path) -> None:
    async def main() -> str:
        return await first_answer(folder, [], mcp={"wait_seconds": 0})

    text = anyio.run(main)
    assert LAST not in text
    assert "indexing" in text
    assert "documents that are not indexed yet cannot be found" in text


def test_a_home_folder_is_not_served_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = write(tmp_path / "home" / "ana", {"a.md": "# A\n"})
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    for folder in (home, home.parent):
        monkeypatch.chdir(folder)
        assert run(["mcp"]) == 2
        error = capsys.readouterr().err
        assert f"{folder} is your home folder or above it" in error
        assert "marklight mcp ~/notes" in error
        assert not index_of(folder).exists()
