"""Copy, export and import by folders and addresses: the history comes along, an incomplete copy is reported."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import marklight
from marklight.errors import NotFound, UsageError
from marklight.model import Batch
from marklight.ports import INCOMPLETE
from tests.making import index_of, library, write
from tests.repository import Repository
from tests.servers.postgres import new_library
from tests.servers.qdrant import new_fleet_library

FILES = {f"{name}.md": f"# {name}\n\nA note on {name}.\n" for name in ("rope", "sail", "mast")}


@pytest.fixture
def source(tmp_path: Path) -> marklight.Library:
    lib = library(write(tmp_path / "source", FILES))
    lib.index()
    return lib


def mark_incomplete(lib: marklight.Library) -> None:
    with lib.engine.writing(1):
        lib.engine.commit(Batch(manifest={INCOMPLETE: "incomplete"}))


def test_folders_and_addresses_can_be_copied(source: marklight.Library, tmp_path: Path) -> None:
    address = f"file:{tmp_path / 'elsewhere'}"
    there = marklight.copy_index(tmp_path / "source", address)
    (tmp_path / "target").mkdir()
    back = marklight.copy_index(address, str(tmp_path / "target"))
    assert there.digest == back.digest
    assert (back.documents, back.written, back.vectors) == (3, 3, source.status()["embedded"])
    assert back.source == address
    with library(tmp_path / "target") as lib:
        answer = lib.search("sail", refresh=False, min_confidence=0.0)
        assert answer.index.documents == 3


def test_an_index_at_an_address_is_used_after_the_setting_names_it(
    source: marklight.Library, tmp_path: Path
) -> None:
    address = f"file:{tmp_path / 'elsewhere'}"
    marklight.copy_index(source, address)
    with library(tmp_path / "source", engine=address) as lib:
        report = lib.index()
        assert (*report.added, *report.changed, *report.removed) == ()
        with lib.engine.snapshot() as snapshot, source.engine.snapshot() as before:
            assert snapshot.documents.files() == before.documents.files()


def test_the_index_of_the_commits_is_copied_too(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "source")
    for name, text in FILES.items():
        repository.commit(f"Describe {name}", {name: text})
    with library(tmp_path / "source") as lib:
        lib.index(history=True)
        report = marklight.copy_index(lib, f"file:{tmp_path / 'elsewhere'}")
        assert report.commits == 3
    with library(tmp_path / "source", engine=f"file:{tmp_path / 'elsewhere'}") as lib:
        assert lib.status()["history"]["commits"] == 3
        commits = lib.commits("Describe sail", mode="keyword", min_confidence=0.0, refresh=False)
        assert "sail" in commits.hits[0].chunk.text


@pytest.mark.parametrize("new", [new_library, new_fleet_library], ids=["postgresql", "qdrant"])
def test_an_index_is_the_same_on_a_server_and_back(
    tmp_path: Path, new: Callable[[], AbstractContextManager[str]]
) -> None:
    words = "rope sail mast keel anchor harbour lantern chart compass rudder".split()
    chance = random.Random(3)  # different texts, so that no two have the same score
    files = {
        f"{at}.md": f"# {words[at % 10]} {at}\n\n{' '.join(chance.choices(words, k=5 + at))} [[{at // 2}]]\n"
        for at in range(40)
    }
    settings = {"search": {"recency": {"strength": 0.0}}}
    with new() as address, library(write(tmp_path / "source", files), **settings) as lib:
        lib.index()
        there = marklight.copy_index(lib, address)
        back = marklight.copy_index(address, f"file:{tmp_path / 'back'}")
        assert (there.documents, there.digest) == (40, back.digest)
        for engine in (address, f"file:{tmp_path / 'back'}"):
            with library(tmp_path / "source", engine=engine, **settings) as other:
                report = other.index()
                assert (*report.added, *report.changed, *report.removed) == ()
                assert report.newly_embedded == 0
                for query in ("the rope near the mast", "harbour lantern", "keel 3"):
                    ours, theirs = (each.search(query, min_confidence=0.0) for each in (lib, other))
                    assert [hit.chunk.id for hit in ours.hits] == [
                        hit.chunk.id for hit in theirs.hits
                    ]
                    assert [hit.score for hit in ours.hits] == pytest.approx(
                        [hit.score for hit in theirs.hits], abs=1e-6
                    )


def test_a_folder_inside_a_library_is_no_end_of_a_copy(
    source: marklight.Library, tmp_path: Path
) -> None:
    (tmp_path / "source/inside").mkdir()
    for ends in (("source/inside", "other"), ("source", "source/inside")):
        (tmp_path / "other").mkdir(exist_ok=True)
        with pytest.raises(UsageError, match="is inside the library"):
            marklight.copy_index(*(tmp_path / end for end in ends))


def test_an_index_is_not_copied_onto_itself(
    source: marklight.Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "source")
    index = index_of(tmp_path / "source")
    for same in (source.engine.describe(), f"file:{os.path.relpath(index)}", "."):
        with pytest.raises(UsageError, match="both source and target"):
            marklight.copy_index(source, same)


def test_nothing_is_created_for_a_source_without_an_index(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match="Nothing is indexed"):
        marklight.copy_index(tmp_path / "empty", f"file:{tmp_path / 'elsewhere'}")
    assert not (tmp_path / "elsewhere").exists()


def test_an_incomplete_copy_is_reported_until_it_is_complete(
    source: marklight.Library, tmp_path: Path
) -> None:
    address = f"file:{tmp_path / 'elsewhere'}"
    marklight.copy_index(source, address)
    with library(tmp_path / "source", engine=address) as lib:
        assert "incomplete_copy" not in lib.status()
        mark_incomplete(lib)
        assert lib.status()["incomplete_copy"] is True
        assert any("incomplete" in notice for notice in lib.status()["notices"])
        assert any("incomplete" in notice for notice in lib.search("sail", refresh=False).notices)
        marklight.copy_index(source, lib)
        assert "incomplete_copy" not in lib.status()
        assert not any("incomplete" in notice for notice in lib.search("sail").notices)


def test_indexing_all_files_completes_a_copy(source: marklight.Library) -> None:
    mark_incomplete(source)
    source.index()
    assert "incomplete_copy" not in source.status()
