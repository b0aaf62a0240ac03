"""Indexing runs: what changes on the disk, what a run does and what it leaves alone."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

from marklight.errors import Busy
from marklight.ingest.discover import Walk
from marklight.library.configuration import Index
from tests.library.conftest import PAGES, paths
from tests.making import library, write


def test_a_folder_is_indexed_and_searched(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        report = lib.index()
        assert sorted(id.path for id in report.added) == sorted(PAGES)
        assert report.index.pending == 0
        answer = lib.search("undo a deployment revision")
        assert paths(answer)[0] == "deploy/rollback.md"
        assert 0 < answer.hits[0].score <= 1


def test_a_search_indexes_a_new_folder(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        assert paths(lib.search("espresso machine"))[0] == "notes.txt"


def test_the_next_search_finds_changes_on_the_disk(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        write(folder, {"new.md": "# Zebra\n\nA zebra has stripes.\n"})
        (folder / "notes.txt").unlink()
        assert paths(lib.search("zebra stripes"))[0] == "new.md"
        assert "notes.txt" not in paths(lib.search("espresso machine"))


def test_without_a_refresh_a_deleted_file_is_still_never_returned(
    folder: Path, engine: str
) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        (folder / "notes.txt").unlink()
        answer = lib.search("espresso machine", refresh=False)
        assert "notes.txt" not in paths(answer)
        (folder / "auth.md").unlink()
        alone = lib.search("tokens expire hour", path="auth.md", refresh=False)
        assert alone.abstained == "All matches were in files that have since been deleted"


def test_without_changes_nothing_is_written(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        first = lib.index()
        again = lib.index()
        assert again.index.generation == first.index.generation
        assert not [*again.added, *again.changed, *again.removed, *again.moved]


def test_one_changed_file_is_one_changed_document(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        write(folder, {"auth.md": "# Authentication\n\nTokens never expire.\n"})
        report = lib.index()
        assert [id.path for id in report.changed] == ["auth.md"]
        assert not report.added


def test_a_touched_file_is_not_indexed_again(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        os.utime(folder / "auth.md", (1, 1))
        report = lib.index()
        assert not report.changed
        assert lib.index().index.generation == report.index.generation


def test_a_moved_folder_is_not_embedded_again(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        (folder / "deploy").rename(folder / "operations")
        with lib.engine.writing(0):
            report = lib.ingest.index_text(lib.ingest.compare())
        assert sorted((old.path, new.path) for old, new in report.moved) == [
            ("deploy/rollback.md", "operations/rollback.md"),
            ("deploy/scale.md", "operations/scale.md"),
        ]
        assert lib.ingest.counts().pending == 0


def test_a_rebuild_reuses_all_vectors(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        with lib.engine.writing(0):
            report = lib.ingest.index_text(lib.ingest.compare(rebuild=True))
        assert len(report.changed) == len(PAGES)
        assert lib.ingest.counts().pending == 0


def test_keyword_search_works_before_passages_are_embedded(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        with lib.engine.writing(0):
            lib.ingest.index_text(lib.ingest.compare())
        answer = lib.search("espresso machine", refresh=False)
        assert paths(answer)[0] == "notes.txt"
        assert answer.to_dict()["index"]["pending"] == answer.index.chunks > 0
        assert any("0 of" in notice for notice in answer.notices)


def test_a_search_without_time_to_embed_still_answers(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Index, "first_search_seconds", 0.0)
    with library(folder, engine=engine) as lib:
        answer = lib.search("espresso machine")
        assert paths(answer)[0] == "notes.txt"
        assert answer.index.pending > 0


@pytest.mark.parametrize("verb", ["index", "search"])
def test_the_old_model_is_used_until_the_new_one_has_embedded_everything(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    place = f"file:{tmp_path / 'index'}"
    with library(folder, engine=place) as lib:
        lib.index() if verb == "index" else lib.search("espresso")
        old = lib.models.embedder.fingerprint if lib.models.embedder else ""
    from marklight import models
    from marklight.models.fake import FakeEmbedder

    load = models.load

    loaded: list[str] = []

    def with_another(name: str, **options: Any) -> Any:
        loaded.append(name)
        return FakeEmbedder(dimension=32) if name == "other" else load(name, **options)

    monkeypatch.setattr(models, "load", with_another)
    with library(folder, engine=place, model={"name": "other"}) as lib:
        assert not lib.ingest.compare(), "no text is read again for a model"
        answer = lib.search("espresso machine", refresh=False)
        assert paths(answer)[0] == "notes.txt"
        assert any("is used until" in notice for notice in answer.notices)
        assert lib.search("espresso machine", refresh=False).hits == answer.hits
        assert sorted(loaded) == ["fake", "other"], "each is opened once, however often it answers"
        lib.index()
        assert not lib.search("espresso machine").notices
        with lib.engine.snapshot() as snapshot:
            assert old not in snapshot.status.models()


def test_a_refused_file_is_listed_in_the_status(folder: Path, engine: str) -> None:
    write(folder, {"bad.md": b"a\x00b", "good.md": "# Good\n\nfine\n"})
    with library(folder, engine=engine) as lib:
        report = lib.index()
        assert [(one.document.path, "NUL" in one.reason) for one in report.skipped] == [
            ("bad.md", True)
        ]
        assert [one["path"] for one in lib.status()["failed"]] == ["bad.md"]
        assert not lib.index().skipped
        write(folder, {"bad.md": "# Mended\n\nnow it is text\n"})
        assert [id.path for id in lib.index().added] == ["bad.md"]
        assert not lib.status()["failed"]


def test_invalid_frontmatter_has_a_remark_and_the_text_is_indexed(
    folder: Path, engine: str
) -> None:
    write(folder, {"odd.md": "---\ntitle: [never closed\n---\n\nquokka\n"})
    with library(folder, engine=engine) as lib:
        report = lib.index()
        assert [(id.path, "frontmatter" in notice.lower()) for id, notice in report.remarks] == [
            ("odd.md", True)
        ]
        assert [one["path"] for one in lib.status()["remarks"]] == ["odd.md"]
        assert paths(lib.search("quokka"))[0] == "odd.md"
        (folder / "odd.md").unlink()
        lib.index()
        assert not lib.status()["remarks"]


def test_a_document_that_becomes_unreadable_is_no_longer_shown(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        write(folder, {"notes.txt": b"espresso \x00 machine"})
        assert "notes.txt" not in paths(lib.search("espresso machine"))
        assert [one["path"] for one in lib.status()["failed"]] == ["notes.txt"]


def test_a_failure_is_removed_with_its_file(folder: Path, engine: str) -> None:
    write(folder, {"bad.md": b"a\x00b"})
    with library(folder, engine=engine) as lib:
        lib.index()
        (folder / "bad.md").unlink()
        lib.index()
        assert not lib.status()["failed"]


def test_a_second_writer_gets_an_error_and_searches_still_work(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"file:{tmp_path / 'index'}"
    monkeypatch.setattr("marklight.library.indexing.WRITER_SECONDS", 0.1)
    with library(folder, engine=place) as one, library(folder, engine=place) as other:
        one.index()
        with one.engine.writing(0):
            write(folder, {"new.md": "# New\n\nsomething new\n"})
            with pytest.raises(Busy):
                other.index()
            answer = other.search("espresso machine")
        assert paths(answer)[0] == "notes.txt"
        assert any("Another process" in notice for notice in answer.notices)


def test_a_diff_made_before_another_process_wrote_is_made_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"file:{tmp_path / 'index'}"
    with library(folder, engine=place) as one, library(folder, engine=place) as other:
        one.index()
        write(folder, {"notes.txt": "bravo\n"})
        stale = one.text_ingest.compare()
        other.index()
        write(folder, {"notes.txt": PAGES["notes.txt"]})
        looks = [stale]
        fresh = type(one.text_ingest).compare
        monkeypatch.setattr(
            type(one.text_ingest),
            "compare",
            lambda self, **k: looks.pop() if looks else fresh(self, **k),
        )
        one.search("espresso machine", mode="keyword")
        assert paths(other.search("espresso machine", refresh=False))[0] == "notes.txt"
        assert not other.search("bravo", mode="keyword", refresh=False).hits


def test_a_file_whose_state_could_not_be_read_is_indexed_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit = Walk._visit

    def fail(walk: Walk, entry: os.DirEntry[str], folder: Any) -> object:
        if entry.name == "b.md":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return visit(walk, entry, folder)

    with library(write(tmp_path, {"a.md": "# A\n", "b.md": "# B\n"})) as lib:
        time.sleep(0.05)  # else the folder may have changed since without a new time stamp
        with monkeypatch.context() as patch:
            patch.setattr(Walk, "_visit", fail)
            assert [str(failure.reason) for failure in lib.index().skipped] == [
                "cannot be read: Input/output error"
            ]
        assert [id.path for id in lib.index().added] == ["b.md"]
