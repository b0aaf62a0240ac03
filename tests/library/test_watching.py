"""The watcher indexes text at once, embeds when there is time, and blocks nobody."""

from __future__ import annotations

import ctypes
import errno
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, repeat
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from marklight.ingest import embedding, file_batch
from marklight.ingest import read as reading
from marklight.ingest.pipeline import Ingest
from marklight.ingest.watch import InotifyWatch
from marklight.library import Library
from marklight.library.configuration import Index
from marklight.library.progress import IndexingProgress
from marklight.library.watching import Watcher
from tests.library.conftest import paths
from tests.library.watched import QUICK, SECONDS, Gated, following, settled
from tests.making import library, write
from tests.waiting import until

if TYPE_CHECKING:
    pass


def test_the_watcher_indexes_at_once_and_then_all_changes(folder: Path, engine: str) -> None:
    with following(folder, engine) as (lib, follower, reports):
        until(lambda: settled(lib, follower))
        assert sum(len(each.added) for each in reports) == 4
        write(folder, {"new/zebra.md": "# Zebra\n\nA zebra has stripes.\n"})
        until(lambda: lib.search("zebra", mode="keyword", refresh=False).hits)
        until(lambda: ["new/zebra.md"] in [[id.path for id in each.added] for each in reports])
        write(folder, {"new/zebra.md": "# Zebra\n\nA zebra has spots.\n"})
        until(lambda: reports[-1].changed)
        until(lambda: settled(lib, follower))
        assert not lib.search("spots", refresh=False).notices
        assert follower.to_dict() == {"indexing": None, "watching": True, "problem": ""}


def test_a_rename_is_a_move_and_embeds_nothing(folder: Path, engine: str) -> None:
    with following(folder, engine) as (lib, follower, reports):
        until(lambda: settled(lib, follower))
        (folder / "deploy").rename(folder / "operations")
        until(lambda: reports[-1].moved)
        assert sorted((old.path, new.path) for old, new in reports[-1].moved) == [
            ("deploy/rollback.md", "operations/rollback.md"),
            ("deploy/scale.md", "operations/scale.md"),
        ]
        assert lib.ingest.counts().pending == 0


def test_an_edit_is_found_at_once_while_passages_are_embedded(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "SMALL_WINDOW", 1)
    model = Gated()
    slow = mock.patch.multiple(Index, debounce_ms=60_000.0, poll_seconds=0.1)
    with slow, library(folder, engine=engine) as lib:
        lib.models.__dict__["embedder"] = model
        follower = Watcher(lib)
        follower.start()
        until(lambda: follower.progress and not follower.is_reading)  # at the gate
        write(folder, {"zebra.md": "# Zebra\n\nA zebra has stripes.\n"})
        answer = lib.search("zebra stripes")
        assert paths(answer)[0] == "zebra.md"
        assert answer.index.pending > 0
        assert any(
            each.endswith("the rest is embedded in the background") for each in answer.notices
        )
        assert not any("process" in each for each in answer.notices)
        model.gate.set()
        until(lambda: not lib.ingest.has_pending())
        follower.close()


def test_during_the_first_run_a_search_returns_at_once_with_the_progress(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, read = Event(), reading.read

    def slow(*given: Any) -> Any:
        assert gate.wait(SECONDS)
        return read(*given)

    monkeypatch.setattr(file_batch, "read", slow)
    with following(folder, engine) as (lib, follower, _):
        until(lambda: follower.progress and follower.progress.total)
        answer = lib.search("espresso", mode="keyword")
        assert not answer.hits
        (notice,) = answer.notices  # no notice about missing documents: that is not known yet
        assert notice.startswith("indexing, ")
        assert notice.endswith("of 4)")
        gate.set()
        until(lambda: settled(lib, follower))
        assert paths(lib.search("espresso", mode="keyword")) == ["notes.txt"]


def test_the_latest_files_are_found_while_the_others_are_indexed(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path, {f"{number:03}.md": f"# Note {number}\n" for number in range(80)})
    gate, read = Event(), reading.read

    def slow(path: Any, *given: Any) -> Any:
        assert str(path) > str(folder / "020") or gate.wait(SECONDS)
        return read(path, *given)

    monkeypatch.setattr(file_batch, "read", slow)
    with following(folder, engine) as (lib, _, _):
        until(lambda: lib.text_ingest.counts().documents)
        answer = lib.search("note 77", mode="keyword", min_confidence=0)
        assert "077.md" in paths(answer)
        assert any(notice.startswith("indexing, ") for notice in answer.notices)
        gate.set()


def test_listeners_are_notified_of_changes_that_a_search_finds(folder: Path, engine: str) -> None:
    with following(folder, engine, 60_000.0) as (lib, follower, reports):
        until(lambda: settled(lib, follower))
        write(folder, {"zebra.md": "# Zebra\n\nA zebra has stripes.\n"})
        assert paths(lib.search("zebra", mode="keyword")) == ["zebra.md"]
        assert [id.path for id in reports[-1].added] == ["zebra.md"]
        until(lambda: settled(lib, follower))


def test_closing_during_embedding_keeps_finished_vectors(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "SMALL_WINDOW", 1)
    place, model = f"file:{tmp_path / 'index'}", Gated()
    with QUICK, library(folder, engine=place) as lib:
        lib.models.__dict__["embedder"] = model
        follower = Watcher(lib)
        follower.start()
        until(lambda: follower.progress and not follower.is_reading)
        with ThreadPoolExecutor(1) as closing:
            closed = closing.submit(follower.close)
            until(follower._stopping.is_set)
            model.gate.set()
            closed.result(SECONDS)
        counts = lib.ingest.counts()
        assert counts.documents == 4
        assert counts.embedded < counts.chunks


def test_the_watcher_waits_for_another_writer(folder: Path, tmp_path: Path) -> None:
    place = f"file:{tmp_path / 'index'}"
    with library(folder, engine=place) as other, other.engine.writing(1):
        holding = following(folder, place)
        lib, follower, _ = holding.__enter__()
        until(lambda: "Another process is writing" in follower.problem)
    until(lambda: settled(lib, follower) and not follower.problem)
    assert lib.text_ingest.counts().documents == 4
    holding.__exit__(None, None, None)


def test_a_deleted_folder_is_reported_and_watched_again_when_it_returns(
    folder: Path, engine: str
) -> None:
    with following(folder, engine) as (lib, follower, reports):
        until(lambda: settled(lib, follower))
        away = folder.with_name("away")
        folder.rename(away)
        until(lambda: "does not exist" in follower.problem)
        away.rename(folder)
        until(lambda: settled(lib, follower) and not follower.problem)
        assert lib.text_ingest.counts().documents == 4
        write(folder, {"zebra.md": "# Zebra\n"})
        until(lambda: any(id.path == "zebra.md" for each in reports for id in each.added))


def test_one_collection_of_several_may_be_missing_for_a_while(tmp_path: Path, engine: str) -> None:
    write(tmp_path, {"one/a.md": "# Alpha\n", "two/b.md": "# Beta\n", "home/x": ""})
    collections = {"one": str(tmp_path / "one"), "two": str(tmp_path / "two")}
    with following(tmp_path / "home", engine, collections=collections) as (lib, follower, _):
        until(lambda: settled(lib, follower))
        (tmp_path / "two").rename(tmp_path / "away")
        until(lambda: "collection 'two' does not exist" in follower.problem)
        assert lib.text_ingest.counts().documents == 2
        write(tmp_path, {"away/c.md": "# Gamma\n", "one/d.md": "# Delta\n"})
        until(lambda: lib.text_ingest.counts().documents == 3)
        (tmp_path / "away").rename(tmp_path / "two")
        until(lambda: lib.text_ingest.counts().documents == 4)
        until(lambda: not follower.problem)
        shutil.rmtree(tmp_path / "two")
        until(lambda: "collection 'two' does not exist" in follower.problem)
        write(tmp_path, {"two/e.md": "# Epsilon\n"})
        until(lambda: lib.search("epsilon", mode="keyword", refresh=False).hits)


def test_a_deleted_index_is_rebuilt(folder: Path, tmp_path: Path) -> None:
    with following(folder, f"file:{tmp_path / 'index'}") as (lib, follower, _):
        until(lambda: settled(lib, follower))
        shutil.rmtree(tmp_path / "index")
        assert paths(lib.search("espresso", mode="keyword")) == ["notes.txt"]
        until(lambda: settled(lib, follower) and lib.ingest.counts().embedded)


def test_an_unexpected_error_is_reported_and_does_not_stop_the_watcher(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Ingest.compare

    def broken(*given: Any, **more: Any) -> Any:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(Ingest, "compare", broken)
    with following(folder, engine) as (lib, follower, _):
        until(lambda: "ZeroDivisionError: oh" in follower.problem)
        monkeypatch.setattr(Ingest, "compare", look)
        until(lambda: settled(lib, follower) and not follower.problem)
        assert lib.text_ingest.counts().documents == 4


def test_without_file_system_events_the_disk_is_scanned(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(watch: InotifyWatch, folder: str) -> int:
        ctypes.set_errno(errno.ENOSPC)
        return -1

    monkeypatch.setattr(InotifyWatch, "_add_watch", full)
    with following(folder, engine) as (lib, follower, _):
        until(lambda: lib.text_ingest.counts().documents == 4)
        write(folder, {"zebra.md": "# Zebra\n"})
        until(lambda: lib.text_ingest.counts().documents == 5)
        until(lambda: "more are not possible" in follower.remark)
        assert "it is scanned every 0.1 s" in follower.to_dict()["problem"]
        assert not follower.watching
        assert not follower.problem


def test_without_a_model_text_is_still_indexed(folder: Path, engine: str) -> None:
    with following(folder, engine, model={"name": "no-such-model"}) as (lib, follower, _):
        until(lambda: "no-such-model" in follower.problem)
        write(folder, {"zebra.md": "# Zebra\n"})
        until(lambda: lib.text_ingest.counts().documents == 5)


def test_changes_can_be_watched_from_python(folder: Path, engine: str) -> None:
    with QUICK, library(folder, engine=engine) as lib:
        lib.index()
        changes = lib.watch()
        write(folder, {"zebra.md": "# Zebra\n"})
        report = next(changes)
        assert [id.path for id in report.added] == ["zebra.md"]
        assert report.index.embedded + report.index.pending == report.index.chunks > 0
        assert report.took_ms > 0
        until(lambda: lib.watcher and lib.watcher.watching)
        (folder / "zebra.md").rename(folder / "horse.md")
        assert [(old.path, new.path) for old, new in next(changes).moved] == [
            ("zebra.md", "horse.md")
        ]
        shutil.rmtree(folder / "deploy")
        # Files are deleted one after the other and may be reported separately.
        removed = list(next(changes).removed)
        while len(removed) < 2:
            removed += next(changes).removed
        assert {id.path for id in removed} == {"deploy/rollback.md", "deploy/scale.md"}
        changes.close()
        assert lib.watcher is None


@pytest.mark.parametrize(
    ("at", "notice"),
    [
        (IndexingProgress("Reading text", 42, 100), "indexing, 42 % (reading text, 42 of 100)"),
        (IndexingProgress("Scanning files", 0, 0), "indexing (scanning files)"),
    ],
)
def test_the_progress_of_a_run_is_printed(at: IndexingProgress, notice: str) -> None:
    assert str(at) == notice


def test_the_watcher_may_stop_at_any_moment_of_a_search(tmp_path: Path) -> None:
    class Leaving(Library):
        """Return the watcher and None by turns."""

        there: Iterator[Watcher | None]

        @property
        def watcher(self) -> Watcher | None:
            return next(self.there)

        @watcher.setter
        def watcher(self, _: Watcher | None) -> None: ...

    folder = write(tmp_path / "docs", {"a.md": "# Apple\n\nAn apple a day.\n"})
    with Leaving(folder, {"model": {"name": "fake"}}) as lib:
        lib.there = repeat(None)
        lib.index()
        for verb in (
            lambda: lib.status(),
            lambda: lib.get("a.md"),
            lambda: lib.search("apple"),
        ):
            lib.there = cycle([Watcher(lib), None])
            assert verb()


def test_a_problem_of_the_watcher_is_not_reported_as_an_empty_folder(
    folder: Path, engine: str
) -> None:
    with library(folder, engine=engine) as lib:
        lib.watcher = watcher = Watcher(lib)
        watcher.problem = "No space left on the disk"
        watcher._text_tried.set()
        assert lib.search("token").notices == ["No space left on the disk"]
