"""An edit that is finished before a search begins is visible in it, with a watcher and without."""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from random import Random
from threading import Event, Lock, Thread
from typing import Any, Self
from unittest import mock

import pytest

import marklight
from marklight.ingest import discover as discovering
from marklight.ingest.discover import Discover
from marklight.ingest.read import Source, read
from marklight.ingest.scan_record import ListedFolder
from marklight.ingest.watch import InotifyWatch
from marklight.library.configuration import Index
from marklight.library.watching import Watcher
from marklight.model import digest
from tests.ingest.test_discover import change
from tests.library.conftest import paths
from tests.making import library, write
from tests.waiting import until

PAGES = {
    "a.md": "# A\n\nThe otter.\n",
    "b/c.md": "# C\n\nThe heron.\n",
    "b/d/e.md": "# E\n\nThe gull.\n",
    ".ignore": "*.txt\n",
    "away.txt": "The tern.\n",
}
Open = Callable[[], marklight.Library]
Mode = Callable[[Path, str], AbstractContextManager[Open]]


@contextmanager
def watched(folder: Path, engine: str, debounce_ms: float = 60_000.0) -> Iterator[Open]:
    """Watch the folder; with this debounce interval only searches index changes."""
    slow = mock.patch.multiple(Index, debounce_ms=debounce_ms)
    with slow, library(folder, engine=engine, model={"name": "none"}) as lib:
        watcher = Watcher(lib)
        watcher.start()
        until(lambda: watcher.watching and watcher.progress is None)
        yield lambda: lib
        watcher.close()


@contextmanager
def unwatched(folder: Path, engine: str) -> Iterator[Open]:
    with library(folder, engine=engine, model={"name": "none"}) as lib:
        lib.index()
        yield lambda: lib


@contextmanager
def one_process_a_search(folder: Path, engine: str) -> Iterator[Open]:
    """Each search opens the library, and reads the record of the scan that the last one has saved."""
    opened: list[marklight.Library] = []

    def reopen() -> marklight.Library:
        opened[-1].close()
        opened.append(library(folder, engine=engine, model={"name": "none"}))
        return opened[-1]

    opened.append(library(folder, engine=engine, model={"name": "none"}))
    opened[0].index()
    yield reopen
    opened[-1].close()


MODES = pytest.mark.parametrize("mode", [watched, unwatched, one_process_a_search])


def keep_times(file: Path, text: str) -> None:
    """Edit a file in place and restore its modification time."""
    status = file.stat()
    with open(file, "r+") as handle:
        handle.write(text)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def rename_over(file: Path, text: str) -> None:
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def write_other_name(file: Path, text: str) -> None:
    """Edit a file by the name of a hard link outside the library."""
    (file.parents[1] / "outside").write_text(text)


WALRUS = "# A\n\nA walrus\n"
EDITS: dict[str, Callable[[Path], object]] = {
    "in place": lambda root: (root / "a.md").write_text(WALRUS),
    "same size and time": lambda root: keep_times(root / "a.md", WALRUS),
    "rename over": lambda root: rename_over(root / "b/d/e.md", WALRUS),
    "new folder": lambda root: write(root, {"n/m/o.md": WALRUS}),
    "new folder in place of another": lambda root: (
        (root / "b/d").rename(root.parent / "elsewhere"),
        write(root, {"b/d/e.md": WALRUS}),
    ),
    "move in": lambda root: shutil.move(write(root.parent / "x", {"y.md": WALRUS}), root / "b/x"),
    "ignore file": lambda root: (root / ".ignore").write_text("*.log\n"),
    "link": lambda root: os.symlink(write(root / ".store", {"w.md": WALRUS}), root / "linked"),
    "hard link": lambda root: write_other_name(root / "a.md", WALRUS),
    "target of a link": lambda root: (root / ".hidden").write_text(WALRUS),
}


@MODES
@pytest.mark.parametrize("name", EDITS)
def test_a_finished_edit_is_found_at_once(
    tmp_path: Path, engine: str, mode: Mode, name: str
) -> None:
    root = write(tmp_path / "docs", {**PAGES, ".hidden": "Nothing.\n", "away.txt": WALRUS})
    if name != "ignore file":
        (root / "away.txt").unlink()
    os.link(root / "a.md", tmp_path / "outside")
    (root / "b/link.md").symlink_to(root / ".hidden")
    with mode(root, engine) as opened:
        for _ in range(2):  # at the second time, no file is racily clean
            assert not opened().search("walrus", mode="keyword").hits
            time.sleep(0.05)
        EDITS[name](root)
        assert paths(opened().search("walrus", mode="keyword"))


@MODES
def test_deleted_and_moved_files_are_gone_at_once(tmp_path: Path, engine: str, mode: Mode) -> None:
    root = write(tmp_path / "docs", PAGES)
    with mode(root, engine) as opened:
        (root / "a.md").unlink()
        assert not opened().search("otter", mode="keyword").hits
        (root / "b").rename(root / "z")
        assert paths(opened().search("heron", mode="keyword")) == ["z/c.md"]
        assert paths(opened().search("gull", mode="keyword")) == ["z/d/e.md"]
        shutil.rmtree(root / "z")
        assert not opened().search("heron", mode="keyword").hits
        root.rename(tmp_path / "old")
        write(tmp_path / "docs", {"b/c.md": "# C\n\nThe ibis.\n"})
        assert paths(opened().search("ibis", mode="keyword")) == ["b/c.md"]


@MODES
def test_a_folder_above_the_collection_may_be_replaced(
    tmp_path: Path, engine: str, mode: Mode
) -> None:
    root = write(tmp_path / "above" / "docs", PAGES)
    with mode(root, engine) as opened:
        assert paths(opened().search("heron", mode="keyword"))
        (tmp_path / "above").rename(tmp_path / "old")
        write(root, {"b/c.md": "# C\n\nThe ibis.\n"})
        assert paths(opened().search("ibis", mode="keyword")) == ["b/c.md"]
        assert not opened().search("heron", mode="keyword").hits


def truth(root: Path) -> dict[str, str]:
    files = Discover()({"default": root}).files.values()
    return {file.id.path: digest(Path(file.path).read_text()) for file in files}


@MODES
@pytest.mark.parametrize("seed", [1])
def test_after_random_edits_a_search_reads_the_state_of_the_disk(
    tmp_path: Path, engine: str, mode: Mode, seed: int
) -> None:
    random, root = Random(seed), write(tmp_path / "docs", {**PAGES, ".store/s": "x"})
    with mode(root, engine) as opened:
        for number in range(60):
            for _ in range(random.randint(1, 3)):
                change(root, random, links=number > 40)
            lib = opened()
            lib.search("x", mode="keyword")
            with lib.engine.snapshot() as snapshot:
                files = snapshot.documents.files()
            assert {id.path: file.digest for id, file in files.items()} == truth(root)


def test_a_search_is_current_while_the_watcher_indexes_too(tmp_path: Path, engine: str) -> None:
    random, root = Random(3), write(tmp_path / "docs", PAGES)
    with watched(root, engine, debounce_ms=2.0) as opened:
        for number in range(100):
            word = f"walrus{number}"
            write(root, {random.choice(("a.md", "b/c.md", f"n{number}/m.md")): f"# W\n\n{word}\n"})
            assert paths(opened().search(word, mode="keyword"))
            time.sleep(random.choice((0, 0, 0.003)))


Versions = dict[str, list[tuple[int, float, float]]]
"""The versions of each file, with the times of the edits that began and ended them."""


class EditedFolder:
    """Files that are edited all the time, by renaming a draft, and again as soon as one of them was read."""

    def __init__(self, root: Path, count: int) -> None:
        self.root, self.versions = root, Versions()
        self._random, self._lock, self._stop = Random(7), Lock(), Event()
        self._edits_left = 0
        """Edits after a read: a search that is never undisturbed always has a notice."""
        root.mkdir()
        for number in range(count):
            self._save(f"{number}.md")

    def _save(self, name: str) -> None:
        with self._lock:
            history, draft = self.versions.setdefault(name, []), self.root.parent / "draft"
            draft.write_text(f"# Zebra {name}\n\nThe zebra has {len(history)} stripes.\n")
            begin = time.monotonic()
            draft.replace(self.root / name)
            if history:
                history[-1] = (*history[-1][:2], time.monotonic())
            history.append((len(history), begin, math.inf))

    def edit(self, count: int = 1) -> None:
        for _ in range(count):
            self._save(self._random.choice(list(self.versions)))

    def read(self, path: str, *given: Any) -> Source:
        """Read a file, then edit it and another one."""
        source = read(path, *given)
        if self._edits_left:
            self._edits_left -= 1
            self._save(os.path.basename(path))
            self.edit()
        return source

    def disturb(self) -> None:
        """Edit files before a search, so that it reads some, and while it reads them."""
        self.edit(6)
        self._edits_left = self._random.choice((0, 1, 1))

    def _edit_all_the_time(self) -> None:
        while not self._stop.wait(self._random.random() / 5):
            self.edit()

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._edit_all_the_time)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


def existed(texts: dict[str, str], versions: Versions, begin: float, end: float) -> bool:
    """Return true if all files had these texts at one moment between two times."""
    stripes = {name: re.search(r"has (\d+) stripes", text) for name, text in texts.items()}
    shown = [versions[name][int(match[1])] for name, match in stripes.items() if match]
    latest_begin = max([begin, *(version[1] for version in shown)])
    earliest_end = min([end, *(version[2] for version in shown)])
    return latest_begin <= earliest_end


@MODES
def test_under_constant_edits_all_passages_had_their_texts_at_one_moment_of_the_search(
    tmp_path: Path, engine: str, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, unnoticed = tmp_path / "docs", 0
    with EditedFolder(root, 6) as folder, mode(root, engine) as opened:
        monkeypatch.setattr("marklight.ingest.file_batch.read", folder.read)
        for number in range(16):
            folder.disturb()
            library, begin = opened(), time.monotonic()
            if number % 4:
                answer = library.search("zebra stripes", limit=6, min_confidence=0)
                texts = {hit.chunk.document.path: hit.chunk.text for hit in answer}
                notices = answer.notices
            else:
                extract = library.get(f"{number % 6}.md")
                texts, notices = {extract.document.path: extract.text}, extract.notices
            end = time.monotonic()
            assert texts
            if not notices:
                unnoticed += 1
                assert existed(texts, folder.versions, begin, end)
    assert unnoticed > 3


def test_with_events_only_folders_with_changes_are_compared(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write(tmp_path / "docs", PAGES)
    compared: list[str] = []
    real = discovering._is_unchanged

    def noted(path: str, folder: ListedFolder) -> bool:
        compared.append(os.path.relpath(path, root))
        return real(path, folder)

    with watched(root, engine) as opened:
        opened().search("otter", mode="keyword")
        monkeypatch.setattr(discovering, "_is_unchanged", noted)
        opened().search("otter", mode="keyword")
        assert compared == []
        write(root, {"b/d/e.md": "# E\n\nThe walrus.\n"})
        assert paths(opened().search("walrus", mode="keyword"))
        assert "b" not in compared
        assert compared.count("b/d") == 1


def test_after_an_overflow_everything_is_compared(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write(tmp_path / "docs", PAGES)
    with watched(root, engine) as opened:
        with monkeypatch.context() as patch, suppress(BlockingIOError):
            queue = opened().text_ingest.scans.watch
            assert isinstance(queue, InotifyWatch)
            write(root, {"b/d/e.md": "# E\n\nThe walrus.\n", "n/m.md": "# M\n\nThe ibis.\n"})
            os.read(queue._queue, 65_536)  # these events are lost
            patch.setattr(queue, "_changed", set(queue._changed_by(-1, queue.OVERFLOW, "")))
            assert paths(opened().search("walrus", mode="keyword"))
            assert paths(opened().search("ibis", mode="keyword"))
        write(root, {"n/m.md": "# M\n\nThe crane.\n"})
        assert paths(opened().search("crane", mode="keyword"))
