"""One unreadable file never stops a run, and is tried again when that can succeed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marklight import Library
from marklight.ingest import document, file_batch
from marklight.ingest import read as reading
from marklight.ingest.chunk import chunk
from marklight.ingest.parse import ParsedText
from marklight.ingest.read import Source
from marklight.model import Document, DocumentId, Entry
from tests.making import library, write


@pytest.fixture
def engine(tmp_path: Path) -> str:
    return f"file:{tmp_path / 'index'}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "docs", {"good.md": "# Good\n\nwords\n", "bad.md": "# Bad\n\nwords\n"})


def failed(lib: Library) -> dict[str, str]:
    with lib.engine.snapshot() as snapshot:
        return {failure.document.path: failure.reason for failure in snapshot.status.failures()}


def indexed(lib: Library) -> list[str]:
    with lib.engine.snapshot() as snapshot:
        return sorted(id.path for id in snapshot.documents.files())


def generation(lib: Library) -> int:
    with lib.engine.snapshot() as snapshot:
        return snapshot.generation


def stays_quiet(lib: Library) -> bool:
    """Whether two more runs and a question find nothing to do."""
    before = generation(lib)
    assert not lib.ingest.compare()
    assert not lib.index().skipped
    lib.search("words")
    lib.index()
    return generation(lib) == before


class Refusing:
    """Stands between us and the system: opening some files fails."""

    def __init__(self, error: OSError | None) -> None:
        self.error = error

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def open(self, path: str, flags: int) -> int:
        if self.error and str(path).endswith("bad.md"):
            raise self.error
        return os.open(path, flags)


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "I/O")])
def test_a_file_that_becomes_readable_is_indexed_without_any_change(
    folder: Path, engine: str, error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = Refusing(error)
    monkeypatch.setattr(reading, "os", system)
    with library(folder, engine=engine) as lib:
        assert [failure.document.path for failure in lib.index().skipped] == ["bad.md"]
        assert stays_quiet(lib)
        assert list(failed(lib)) == ["bad.md"]
        system.error = None
        assert [id.path for id in lib.index().added] == ["bad.md"]
        assert failed(lib) == {}
        assert stays_quiet(lib)


def test_a_file_over_the_size_limit_is_indexed_after_the_limit_is_raised(
    folder: Path, tmp_path: Path
) -> None:
    place = f"file:{tmp_path / 'index'}"
    write(folder, {"bad.md": "words " * 1000})
    with library(folder, engine=place, index={"max_bytes": 1000}) as lib:
        lib.index()
        assert "6,000 bytes, more than the limit of 1,000" in failed(lib)["bad.md"]
        assert stays_quiet(lib)
    with library(folder, engine=place, index={"max_bytes": 2000}) as lib:
        assert "limit of 2,000" in lib.index().skipped[0].reason
    with library(folder, engine=place) as lib:
        assert [id.path for id in lib.index().added] == ["bad.md"]
        assert failed(lib) == {}


def test_a_new_parser_version_retries_failed_files_once(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, {"bad.md": b"text with \x00 in it"})
    with library(folder, engine=engine) as lib:
        lib.index()
        assert stays_quiet(lib)
    monkeypatch.setattr("marklight.ingest.recipe.CHUNKER_VERSION", "chunker next")
    with library(folder, engine=engine) as lib:
        assert "bad.md" in {id.path for id in lib.ingest.compare().plan.read}
        assert [id.path for id in lib.index().changed] == ["good.md"]
        assert list(failed(lib)) == ["bad.md"]
        assert stays_quiet(lib)
    monkeypatch.setattr(reading, "decode", lambda data: (data.decode(), ""))
    monkeypatch.setattr("marklight.ingest.recipe.CHUNKER_VERSION", "chunker after that")
    with library(folder, engine=engine) as lib:
        lib.index()
        assert indexed(lib) == ["bad.md", "good.md"]
        assert failed(lib) == {}


def test_an_error_of_the_parser_is_a_failure_of_that_document(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()

        def fails(id: DocumentId, source: Source, *rest: Any) -> tuple[Document, ParsedText]:
            if "poison" in source.text:
                raise RecursionError("too deep")
            return document.parse_document(id, source, *rest)

        monkeypatch.setattr(file_batch, "parse_document", fails)
        write(folder, {"bad.md": "poison\n", "new.md": "# New\n"})
        report = lib.index()
        assert [failure.reason for failure in report.skipped] == [
            "could not be parsed: RecursionError: too deep"
        ]
        assert [id.path for id in report.removed] == ["bad.md"]
        assert indexed(lib) == ["good.md", "new.md"]
        assert stays_quiet(lib)
        write(folder, {"bad.md": "# Better words\n"})
        lib.index()
        assert indexed(lib) == ["bad.md", "good.md", "new.md"]


def failing_on(word: str) -> Callable[..., Entry]:
    def call(document: Document, *rest: Any) -> Entry:
        if word in document.text:
            raise ValueError("no cut")
        return chunk(document, *rest)

    return call


def test_an_error_of_the_chunker_is_a_failure_of_that_document_alone(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_batch, "chunk", failing_on("Bad"))
    with library(folder, engine=engine) as lib:
        report = lib.index()
        assert [id.path for id in report.added] == ["good.md"]
        assert failed(lib) == {"bad.md": "could not be parsed: ValueError: no cut"}
        assert stays_quiet(lib)


def became_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def became_a_dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nothing.md")


@pytest.mark.parametrize("change", [became_a_pipe, became_a_dangling_link])
def test_a_document_that_becomes_a_pipe_or_broken_link_is_removed_and_listed(
    folder: Path, engine: str, change: Callable[[Path], None]
) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        change(folder / "bad.md")
        report = lib.index()
        assert [id.path for id in report.removed] == ["bad.md"]
        assert indexed(lib) == ["good.md"]
        assert list(failed(lib)) == ["bad.md"]
        assert stays_quiet(lib)


def test_a_file_added_by_another_process_during_the_scan_is_not_removed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"file:{tmp_path / 'index'}"
    with library(folder, engine=place) as lib, library(folder, engine=place) as other:
        lib.index()
        before = generation(lib)
        walk = type(lib.ingest.discover).__call__

        def slow(self: Any, *given: Any) -> Any:
            found = walk(self, *given)
            monkeypatch.undo()
            write(folder, {"new.md": "# New\n"})
            other.index()
            return found

        monkeypatch.setattr(type(lib.ingest.discover), "__call__", slow)
        diff = lib.ingest.compare()
        assert not diff.plan.removed
        assert diff.generation == before < generation(lib)


@pytest.mark.parametrize("seconds", [-5_000_000_000, 2**34 - 1])
def test_a_file_with_an_impossible_time_stamp_is_indexed(
    folder: Path, engine: str, seconds: int
) -> None:
    os.utime(folder / "good.md", (seconds, seconds))
    with library(folder, engine=engine) as lib:
        lib.index()
        assert indexed(lib) == ["bad.md", "good.md"]
        assert stays_quiet(lib)


def test_a_swapped_file_of_the_same_size_and_time_is_noticed(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        before = (folder / "good.md").stat()
        write(folder, {"swap": "# Gold\n\nwords\n"})
        os.utime(folder / "swap", ns=(before.st_atime_ns, before.st_mtime_ns))
        (folder / "swap").replace(folder / "good.md")
        assert [id.path for id in lib.index().changed] == ["good.md"]
        assert text(lib, "good.md").startswith("# Gold")


def text(lib: Library, path: str) -> str:
    with lib.engine.snapshot() as snapshot:
        document = snapshot.documents.get(DocumentId("default", path))
        return document.text if document else ""


@pytest.mark.parametrize("vanishes", [False, True])
def test_what_was_deleted_while_a_folder_could_not_be_listed_is_removed(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch, vanishes: bool
) -> None:
    write(folder, {"deep/old.md": "# Old\n\nhumus\n", "deep/kept.md": "# Kept\n\nmarmalade\n"})
    with library(folder, engine=engine) as lib:
        lib.index()
        scandir = os.scandir

        def fail(path: Any) -> Any:
            if str(path).endswith("deep"):
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            return scandir(path)

        with monkeypatch.context() as patch:
            patch.setattr(os, "scandir", fail)
            (folder / "deep/old.md").unlink()
            assert lib.index().removed == ()
        write(folder, {"deep/new.md": "# New\n\nquinoa\n"})
        if vanishes:
            shutil.rmtree(folder / "deep")
        lib.index()
        indexed = {id.path for id in snapshot_files(lib) if id.path.startswith("deep")}
        assert indexed == (set() if vanishes else {"deep/kept.md", "deep/new.md"})


def snapshot_files(lib: Library) -> set[DocumentId]:
    with lib.engine.snapshot() as snapshot:
        return set(snapshot.documents.files())
