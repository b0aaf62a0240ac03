"""Search of commits."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import marklight
from marklight.errors import HistoryError, NotFound, UsageError
from marklight.results import Commits
from tests.making import library, write
from tests.repository import Repository, needs_git

pytestmark = needs_git


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "docs")
    made.commit("Start with an espresso page", {"espresso.md": "# Espresso\n\nGrind finely.\n"})
    made.commit(
        "Retry when the network times out\n\nThe upstream proxy drops idle connections.",
        {"src/client.py": "def fetch_with_backoff(url):\n    return url\n"},
        author="Grace Hopper <grace@navy.example>",
    )
    made.commit("Explain rolling back", {"deploy/rollback.md": "# Rolling back\n\nUse undo.\n"})
    return made


def subjects(found: Commits) -> list[str]:
    return [commit.subject for commit, _ in found.ranked]


@pytest.fixture
def lib(repository: Repository, engine: str) -> Any:
    with library(repository.folder, engine=engine) as opened:
        yield opened


def test_a_commit_is_found_by_its_message_its_diff_and_its_files(lib: marklight.Library) -> None:
    assert subjects(lib.commits("network times out"))[0] == "Retry when the network times out"
    assert subjects(lib.commits("idle connections proxy"))[0] == "Retry when the network times out"
    (first, *_) = lib.commits("fetch_with_backoff", mode="code").to_dict()["results"]
    assert first["subject"] == "Retry when the network times out"
    assert (first["kind"], first["paths"]) == ("diff", ["src/client.py"])
    assert "+def fetch_with_backoff(url):" in first["content"]
    assert subjects(lib.commits("rollback.md"))[0] == "Explain rolling back"


def test_a_result_has_all_fields_of_a_commit(
    lib: marklight.Library, repository: Repository
) -> None:
    repository.git("tag", "v1")
    answer = lib.commits("rolling back", explain=True).to_dict()
    assert set(answer) == {
        *(
            "query",
            "results",
            "abstained",
            "nearest",
            "stats",
            "steps",
            "index",
            "notices",
            "advice",
            "took_ms",
        )
    }
    first = answer["results"][0]
    assert first["commit"] == repository.git("rev-parse", "HEAD")
    assert first["short"] == first["commit"][:7]
    assert first["author"] == {"name": "Ada Lovelace", "email": "ada@example.org"}
    assert first["date"] == "2026-01-03T12:00:00+00:00"
    assert (first["files"], first["more_files"]) == (["deploy/rollback.md"], 0)
    assert set(first["refs"]) == {"main", "v1"}
    assert first["why"]
    assert answer["index"]["documents"] == 3


@pytest.mark.parametrize(
    "filters, passing",
    [
        ({"files": "src/**"}, {"Retry when the network times out"}),
        (
            {"files": ["*.py", "deploy"]},
            {"Retry when the network times out", "Explain rolling back"},
        ),
        ({"files": "ESPRESSO.md"}, {"Start with an espresso page"}),
        ({"author": "grace"}, {"Retry when the network times out"}),
        ({"author": "NAVY.example"}, {"Retry when the network times out"}),
        ({"after": "2026-01-03"}, {"Explain rolling back"}),
        ({"before": "2026-01-01"}, {"Start with an espresso page"}),
        ({"author": "ada", "files": "*.py"}, set()),
    ],
)
def test_filters_are_applied_before_ranking(
    lib: marklight.Library, filters: dict[str, Any], passing: set[str]
) -> None:
    question = "the network rolling back espresso page"
    found = lib.commits(question, min_confidence=0, limit=10, mode="keyword", **filters)
    assert set(subjects(found)) == passing


def test_a_commit_is_found_by_the_day_that_is_printed_for_it(
    lib: marklight.Library, repository: Repository
) -> None:
    repository.commit("Work late", {"late.md": "# Late\n"}, date="2026-02-03T23:30:00-05:00")
    found = lib.commits("work late", after="2026-02-03", before="2026-02-03")
    assert subjects(found) == ["Work late"]
    assert found.to_dict()["results"][0]["date"] == "2026-02-03T23:30:00-05:00"


def test_filters_can_be_part_of_the_query(lib: marklight.Library) -> None:
    found = lib.commits("page path:deploy/**", min_confidence=0)
    assert subjects(found) == ["Explain rolling back"]
    found = lib.commits("network page author:grace", min_confidence=0)
    assert subjects(found) == ["Retry when the network times out"]


def test_a_commit_is_found_by_its_abbreviated_hash(
    lib: marklight.Library, repository: Repository
) -> None:
    first = repository.git("rev-list", "--max-parents=0", "HEAD")
    assert lib.commits(first[:9]).ranked[0][0].hash == first


def test_each_commit_is_one_result_and_equal_commits_are_two(
    lib: marklight.Library, repository: Repository
) -> None:
    for number in (1, 2):
        repository.commit("Tidy the kitchen", {"kitchen.md": f"{number}\n"})
    found = lib.commits("tidy the kitchen", min_confidence=0)
    assert subjects(found)[:2] == ["Tidy the kitchen"] * 2
    assert len({commit.hash for commit, _ in found.ranked}) == len(found.hits)


def test_the_next_search_finds_a_new_commit(lib: marklight.Library, repository: Repository) -> None:
    lib.commits("espresso")
    repository.commit("Zebra crossing", {"zebra.md": "stripes\n"})
    assert subjects(lib.commits("zebra crossing"))[0] == "Zebra crossing"
    assert "Zebra crossing" not in subjects(lib.commits("espresso", refresh=False, limit=1))


def test_without_new_commits_nothing_is_written(lib: marklight.Library) -> None:
    before = lib.commits("espresso").index.generation
    assert lib.commits("espresso").index.generation == before
    lib.index(history=True)
    again = lib.index(history=True).history
    assert again is not None
    assert (again.added, again.index.generation) == ((), lib.index().history.index.generation)  # type: ignore[union-attr]


def test_rewritten_commits_are_removed_and_the_others_stay(
    lib: marklight.Library, repository: Repository
) -> None:
    lib.commits("espresso")
    repository.git("reset", "--quiet", "--hard", "HEAD~1")
    repository.commit("Explain how to undo", {"undo.md": "# Undo\n"})
    found = lib.commits("explain rolling back undo", min_confidence=0, limit=10)
    assert "Explain rolling back" not in subjects(found)
    assert "Explain how to undo" in subjects(found)
    assert found.index.documents == 3


def test_rewritten_and_pruned_commits_are_removed_too(
    lib: marklight.Library, repository: Repository
) -> None:
    lib.commits("espresso")
    repository.git("reset", "--quiet", "--hard", "HEAD~1")
    repository.git("reflog", "expire", "--expire=now", "--all")
    repository.git("gc", "--quiet", "--prune=now")
    assert lib.commits("espresso").index.documents == 2


def test_one_search_returns_documents_and_commits_separately(lib: marklight.Library) -> None:
    answer = lib.search("rolling back", with_history=True).to_dict()
    assert answer["results"][0]["path"] == "deploy/rollback.md"
    assert answer["commits"]["results"][0]["subject"] == "Explain rolling back"
    assert "commits" not in lib.search("rolling back").to_dict()


def test_documents_are_searched_without_a_history(tmp_path: Path, engine: str) -> None:
    folder = write(tmp_path / "plain", {"a.md": "# Zebra\n\nStripes.\n"})
    with library(folder, engine=engine) as lib:
        answer = lib.search("zebra", with_history=True)
        assert answer.hits
        assert any("no git repository" in notice for notice in answer.notices)
        with pytest.raises(NotFound, match="no git repository"):
            lib.commits("zebra")


def test_the_history_does_not_change_results_of_documents(lib: marklight.Library) -> None:
    before = lib.search("rolling back")
    lib.commits("rolling back")
    after = lib.search("rolling back")
    assert after.index == before.index
    assert [(hit.chunk.id, hit.score) for hit in after.hits] == [
        (hit.chunk.id, hit.score) for hit in before.hits
    ]


def test_a_run_indexes_the_history_if_it_was_searched_before(lib: marklight.Library) -> None:
    assert lib.index().history is None
    lib.commits("espresso", mode="keyword")
    done = lib.index().history
    assert done is not None
    assert done.index.pending == 0
    assert lib.status()["history"]["commits"] == 3


def test_a_run_indexes_the_history_on_request(lib: marklight.Library) -> None:
    done = lib.index(history=True).history
    assert done is not None
    assert len(done.added) == 3
    again = lib.index(history=True, rebuild=True).history
    assert again is not None
    assert again.added == done.added


def test_without_git_there_is_a_notice(
    lib: marklight.Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HistoryError, match="git is not installed"):
        lib.commits("espresso")
    assert any(
        "git is not" in notice for notice in lib.search("rolling", with_history=True).notices
    )


def test_what_makes_no_sense_is_refused(lib: marklight.Library) -> None:
    wrongs: list[dict[str, Any]] = [
        {"limit": 0},
        {"mode": "x"},
        {"after": "soon"},
        {"files": "*****a"},
    ]
    for wrong in wrongs:
        with pytest.raises(UsageError):
            lib.commits("espresso", **wrong)
    with pytest.raises(UsageError):
        lib.commits(" ")


def test_several_repositories_are_kept_separate(tmp_path: Path, engine: str) -> None:
    one, two = Repository(tmp_path / "one"), Repository(tmp_path / "two")
    one.commit("Apples are red", {"a.md": "apple\n"})
    two.commit("Pears are green", {"sub/b.md": "pear\n"})
    folders = {"one": str(one.folder), "two": str(two.folder / "sub"), "again": str(two.folder)}
    home = write(tmp_path / "home", {})
    home.mkdir()
    with library(home, engine=engine, collections=folders) as lib:
        found = lib.commits("apples pears", min_confidence=0, mode="keyword")
        assert {commit.repository for commit, _ in found.ranked} == {"one", "two"}
        assert found.index.documents == 2
    shutil.rmtree(two.folder)
    with library(home, engine=engine, collections={"one": str(one.folder)}) as lib:
        assert lib.commits("pears").index.documents == 1


def test_a_folder_that_refers_to_another_repository_shows_none_of_its_commits(
    repository: Repository, tmp_path: Path, engine: str
) -> None:
    git = repository.folder / ".git"
    folder = write(tmp_path / "x", {".git": f"gitdir: {git}\n", "a.md": "# Espresso\n"})
    with library(folder, engine=engine) as lib:
        with pytest.raises(HistoryError, match="leads out of the folder"):
            lib.commits("espresso")
        done = lib.index(history=True).history
        assert done is not None
        assert not done.added
        assert any("leads out of the folder" in notice for notice in done.notices)
        answer = lib.search("espresso", with_history=True)
        assert answer.hits
        assert not answer.to_dict().get("commits", {}).get("results")
        assert any("leads out of the folder" in notice for notice in answer.notices)


def test_commits_are_removed_once_a_folder_refers_to_another_repository(
    repository: Repository, tmp_path: Path
) -> None:
    other = Repository(tmp_path / "other")
    other.commit("Apples are red", {"a.md": "apple\n"})
    home = tmp_path / "home"
    home.mkdir()
    folders = {"docs": str(repository.folder), "other": str(other.folder)}
    settings: dict[str, Any] = {"engine": f"file:{tmp_path / 'index'}", "collections": folders}
    with library(home, **settings) as lib:
        assert lib.commits("apples").index.documents == 4
    shutil.rmtree(other.folder / ".git")
    write(other.folder, {".git": f"gitdir: {repository.folder / '.git'}\n"})
    with library(home, **settings) as lib:
        found = lib.commits("apples")
        assert found.index.documents == 3
        assert any("leads out of the folder" in notice for notice in found.notices)


KILLED = """
import sys, os, signal
import marklight
from marklight.ingest import history as pipeline
pipeline.BATCH = 2
def progress(phase, done, total):
    if done >= 4:
        os.kill(os.getpid(), signal.SIGKILL)
with marklight.open(sys.argv[1], {"model": {"name": "fake"}, "engine": sys.argv[2]}) as lib:
    lib.commits("anything", progress=progress)
"""


@pytest.mark.skipif(os.name == "nt", reason="no process is killed so there")
def test_a_killed_process_loses_at_most_its_last_batch(tmp_path: Path) -> None:
    made = Repository(tmp_path / "docs")
    for number in range(7):
        made.commit(f"Number {number}", {"a.md": f"{number}\n"})
    address = f"file:{tmp_path / 'index'}"
    done = subprocess.run([sys.executable, "-c", KILLED, str(made.folder), address], check=False)
    assert done.returncode == -signal.SIGKILL
    with library(made.folder, engine=address) as lib:
        assert lib.commits("number", refresh=False).index.documents == 4
        assert lib.commits("number").index.documents == 7
        assert lib.index().history.index.pending == 0  # type: ignore[union-attr]


def test_the_old_passages_of_commits_answer_until_the_new_ones_are_embedded(
    repository: Repository, tmp_path: Path
) -> None:
    place = f"file:{tmp_path / 'index'}"
    with library(repository.folder, engine=place) as lib:
        lib.index(history=True)
        old = _commit_passages(lib)
    fewer = {"history": {"diff_lines": 0}, "engine": place}
    with library(repository.folder, **fewer, index={"search_seconds": 0.0}) as lib:
        lib.commits("network times out", mode="keyword")
        assert _commit_passages(lib) == old, "a keyword search does not load the model"
        assert lib.status()["history"]["pending"] == 0
    with library(repository.folder, **fewer) as lib:
        lib.commits("network times out")
        assert _commit_passages(lib) != old
        assert lib.status()["history"]["pending"] == 0


def _commit_passages(lib: marklight.Library) -> list[str]:
    with lib.commits_engine.snapshot() as snapshot:
        ids = sorted(snapshot.documents.files())
        return [each.text for id in ids for each in snapshot.documents.chunks_of(id)]
