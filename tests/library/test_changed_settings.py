"""Changed chunk settings and models: the old index answers until the new one is ready, and going back restores it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from marklight import Library, models
from marklight.models.fake import FakeEmbedder
from marklight.ports import Progress
from tests.library.conftest import paths
from tests.making import library, write
from tests.servers.postgres import new_library
from tests.servers.qdrant import new_fleet_library

TOPICS = ("river", "castle", "engine", "garden", "harbour", "violin", "copper", "meadow")
FILES = {
    f"{topic}.md": f"# {topic.title()}\n\n"
    + "\n\n".join(
        f"The {topic} has part {number}, which is as old as part {number + 1}. " * 3
        for number in range(6)
    )
    for topic in TOPICS
}
SMALL = {"max_chars": 300, "min_chars": 50}
SMALL_SETTINGS = [f"chunk.{name}={value}" for name, value in SMALL.items()]
QUERIES = ("the part of the castle", "old violin", "copper harbour")


@pytest.fixture(params=["embedded", "postgresql", "qdrant"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "embedded":
        yield f"file:{tmp_path / 'index'}"
    elif request.param == "postgresql":
        with new_library() as address:
            yield address
    else:
        with new_fleet_library() as address:
            yield address


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "docs", FILES)


@pytest.fixture
def small_model(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a model that reads 32 tokens."""
    load = models.load

    def with_small(name: str, **options: Any) -> Any:
        small = FakeEmbedder(name="small", dimension=32, token_limit=32)
        return small if name == "small" else load(name, **options)

    monkeypatch.setattr(models, "load", with_small)
    return "small"


def changed(lib: Library, **settings: Any) -> Library:
    """Return the library with other settings; an index in memory is used on."""
    other = library(lib.place.folder, engine=lib.settings["engine"], **settings)
    if lib.address.folder is None and not lib.address.is_server:
        other.__dict__["engine"] = lib.engine
    return other


def passages(lib: Library) -> dict[str, list[tuple[str, str, tuple[int, int]]]]:
    with lib.engine.snapshot() as snapshot:
        return {
            id.path: [(each.id, each.text, each.lines) for each in snapshot.documents.chunks_of(id)]
            for id in sorted(snapshot.documents.files())
        }


def answers(lib: Library) -> list[list[tuple[str, float]]]:
    return [
        [
            (hit.chunk.id, round(hit.score, 3))
            for hit in lib.search(text, min_confidence=0, refresh=False).hits
        ]
        for text in QUERIES
    ]


class Interrupted(Exception):
    pass


def interrupt_after(documents: int) -> Progress:
    def progress(phase: str, done: int, total: int) -> None:
        if phase == "Embedding changed passages" and done >= documents:
            raise Interrupted

    return progress


def built(folder: Path, **settings: Any) -> dict[str, Any]:
    """Return the passages of an index that was built with these settings at once."""
    with TemporaryDirectory() as index, library(folder, engine=f"file:{index}", **settings) as lib:
        lib.index()
        return passages(lib)


def test_other_chunk_sizes_replace_all_passages(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        with changed(lib, chunk=SMALL) as other:
            report = other.index()
            assert sorted(id.path for id in report.changed) == sorted(FILES)
            assert report.newly_embedded == report.index.embedded == report.index.chunks
            assert not other.index().changed
            assert passages(other) == built(folder, chunk=SMALL)
            assert "outdated" not in other.status()


def test_the_old_passages_answer_until_the_new_ones_are_embedded(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        before, found = passages(lib), answers(lib)
        with changed(lib, chunk=SMALL) as other:
            with pytest.raises(Interrupted):
                other.index(progress=interrupt_after(0))
            assert (passages(other), answers(other)) == (before, found)
            assert other.status()["outdated"] == len(FILES)
            assert other.status()["pending"] == 0


def test_every_document_has_its_old_or_its_new_passages_with_vectors(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marklight.ingest.pipeline.REPLACED_BYTES", 1)
    with library(folder, engine=engine) as lib:
        lib.index()
        before = passages(lib)
        with changed(lib, chunk=SMALL) as other:
            with pytest.raises(Interrupted):
                other.index(progress=interrupt_after(3))
            status = other.status()
            assert (status["outdated"], status["pending"]) == (len(FILES) - 3, 0)
            after, new = passages(other), built(folder, chunk=SMALL)
            assert sum(after[path] == new[path] for path in FILES) == 3
            assert sum(after[path] == before[path] for path in FILES) == len(FILES) - 3
            other.index()
            assert passages(other) == new


def test_searches_replace_outdated_passages_in_their_own_time(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marklight.ingest.pipeline.FEW_REPLACED_BYTES", 1)
    with library(folder, engine=engine) as lib:
        lib.index()
        before = passages(lib)
        with changed(lib, chunk=SMALL, index={"search_seconds": 0.0}) as hurried:
            answer = hurried.search("old violin")
            assert paths(answer)[0] == "violin.md"
            assert passages(hurried) == before
            notices = [each for each in answer.notices if "passages of earlier settings" in each]
            assert [each.split()[0] for each in notices] == [str(len(FILES))]
        with changed(lib, chunk=SMALL, index={"search_seconds": 60.0}) as other:
            assert not [each for each in other.search("old violin").notices if "earlier" in each]
            assert passages(other) == built(folder, chunk=SMALL)


def test_a_changed_file_is_read_at_once_with_the_new_settings(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        before = passages(lib)
        write(folder, {"castle.md": "# Castle\n\n" + "A new drawbridge with chains. " * 30})
        with changed(lib, chunk=SMALL, index={"search_seconds": 0.0}) as other:
            assert paths(other.search("drawbridge chains", min_confidence=0))[0] == "castle.md"
            now, new = passages(other), built(folder, chunk=SMALL)
            assert now["castle.md"] == new["castle.md"]
            assert now["river.md"] == before["river.md"]


def test_a_document_that_changes_meanwhile_is_not_replaced_by_its_old_text(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        with changed(lib, chunk=SMALL) as other, changed(lib, chunk=SMALL) as third:
            embed = FakeEmbedder.embed_passages
            done: list[bool] = []

            def embed_while_another_writes(self: FakeEmbedder, texts: Any) -> Any:
                if not done:
                    done.append(True)
                    write(folder, {"castle.md": "# Castle\n\nIt was rebuilt of limestone.\n"})
                    third.search("limestone", mode="keyword")
                return embed(self, texts)

            monkeypatch.setattr(FakeEmbedder, "embed_passages", embed_while_another_writes)
            other.index()
            assert "limestone" in passages(other)["castle.md"][0][1]
            other.index()
            assert passages(other) == built(folder, chunk=SMALL)


def test_without_a_model_outdated_passages_are_replaced_too(folder: Path, engine: str) -> None:
    none: dict[str, Any] = {"model": {"name": "none"}}
    with library(folder, engine=engine, **none) as lib:
        lib.index()
        with changed(lib, chunk=SMALL, **none) as other:
            assert len(other.index().changed) == len(FILES)
            assert passages(other) == built(folder, chunk=SMALL)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"boilerplate": 0}, {"boilerplate": 10}),
        ({"boilerplate": 10}, {"boilerplate": 0}),
        ({"boilerplate": 3}, {"boilerplate": 8}),
        ({"boilerplate": 9}, {"boilerplate": 3, **SMALL}),
        ({}, {"skip_headings": ["Footer"]}),
    ],
)
def test_an_index_with_changed_settings_equals_one_built_with_them(
    folder: Path, engine: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    for number, path in enumerate(FILES):
        text = (folder / path).read_text()
        shared = "\n\nEdit this page on the usual website.\n" if number < 5 else ""
        (folder / path).write_text(f"{text}{shared}\n\n## Footer\n\nAll rights reserved by us.\n")
    settings = {"boilerplate": 4}
    with library(folder, engine=engine, chunk=settings | first) as lib:
        lib.index()
        with changed(lib, chunk=settings | second) as other:
            other.index()
            assert passages(other) == built(folder, chunk=settings | second)
            assert other.status()["pending"] == 0


def test_a_small_model_and_back_gives_the_same_index(
    folder: Path, engine: str, small_model: str
) -> None:
    with library(folder, engine=engine) as lib:
        lib.index()
        before, found = passages(lib), answers(lib)
        with changed(lib, model={"name": small_model}) as small:
            small.index()
            assert passages(small) == before
            assert small.status()["pending"] == 0
            assert paths(small.search("old violin"))[0] == "violin.md"
        lib.index()
        assert (passages(lib), answers(lib)) == (before, found)
        assert lib.status()["pending"] == 0


def test_old_vectors_are_dropped_while_passages_are_replaced(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marklight.ingest.pipeline.REPLACED_BYTES", 1)
    monkeypatch.setattr("marklight.ingest.embedding.UNUSED_MIN", 3)
    with library(folder, engine=engine) as lib:
        lib.index()
        with changed(lib, chunk=SMALL) as other:
            with pytest.raises(Interrupted):
                other.index(progress=interrupt_after(5))
            unused, chunks = other.status()["unused_vectors"], other.status()["chunks"]
            assert unused <= max(3, chunks // 4)


INDEX = """
import sys
from marklight.ingest import pipeline
from marklight.library import Library
pipeline.REPLACED_BYTES = 1
def step(*far): print("step", *far, flush=True)
with Library(sys.argv[1], {"model": {"name": "fake"}, "engine": sys.argv[2]}, sys.argv[3:]) as library:
    library.index(progress=step)
print("done", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")
@pytest.mark.parametrize("steps", [1, 2, 4, 7])
def test_kill_9_midway_leaves_every_document_complete(
    folder: Path, tmp_path: Path, steps: int
) -> None:
    place = f"file:{tmp_path / 'index'}"
    with library(folder, engine=place) as lib:
        lib.index()
        before = passages(lib)
    program = [sys.executable, "-c", INDEX, str(folder), place, *SMALL_SETTINGS]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        seen = 0
        for line in process.stdout:
            seen += "changed passages" in line
            if seen == steps:
                os.kill(process.pid, signal.SIGKILL)
                break
    new = built(folder, chunk=SMALL)
    with library(folder, engine=place, chunk=SMALL) as lib:
        found = passages(lib)
        assert all(found[path] in (before[path], new[path]) for path in FILES)
        assert sum(found[path] == before[path] for path in FILES) > 0
        assert lib.status()["pending"] == 0
        assert paths(lib.search("old violin", refresh=False))[0] == "violin.md"
        lib.index()
        assert passages(lib) == new


def test_two_processes_replace_the_same_passages(folder: Path, tmp_path: Path) -> None:
    place = f"file:{tmp_path / 'index'}"
    with library(folder, engine=place) as lib:
        lib.index()
    program = [sys.executable, "-c", INDEX, str(folder), place, *SMALL_SETTINGS]
    both = [subprocess.Popen(program, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert all(output.endswith("done\n") for output in outputs)
    with library(folder, engine=place, chunk=SMALL) as lib:
        assert not lib.index().changed
        assert passages(lib) == built(folder, chunk=SMALL)
        assert lib.status()["pending"] == 0
