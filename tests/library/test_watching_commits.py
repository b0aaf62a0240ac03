"""The watcher reads and embeds commits in the background."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import marklight
from marklight.ingest import embedding, history
from marklight.library.watching import Watcher
from marklight.model import Batch
from tests.library.watched import QUICK, SECONDS, Gated, following, settled
from tests.making import library
from tests.repository import Repository, needs_git
from tests.waiting import until


def commits_pending(lib: marklight.Library) -> int:
    return int(lib.status()["history"]["pending"])


@needs_git
def test_commits_are_embedded_after_documents(tmp_path: Path, engine: str) -> None:
    made = Repository(tmp_path / "docs")
    made.commit("Start with an espresso page", {"espresso.md": "# Espresso\n\nGrind finely.\n"})
    model = Gated()
    with QUICK, library(made.folder, engine=engine) as lib:
        lib.commits("espresso", mode="keyword")
        assert commits_pending(lib)
        lib.models.__dict__["embedder"] = model
        follower = Watcher(lib)
        follower.start()
        try:
            until(lambda: follower.progress and follower.progress.phase == "Embedding passages")
            assert commits_pending(lib)
            model.gate.set()
            until(lambda: not commits_pending(lib))
            until(lambda: settled(lib, follower))
            # What a question reads and does not embed, it leaves to the one who follows.
            made.commit("Explain rolling back", {"deploy.md": "# Rolling back\n\nUse undo.\n"})
            lib.commits("rolling", mode="keyword")
            assert lib.status()["history"]["commits"] == 2
            until(lambda: not commits_pending(lib))
        finally:
            follower.close()


@needs_git
def test_a_search_waits_a_moment_and_the_watcher_reads_the_rest_of_the_history(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Repository(tmp_path / "docs")
    for page in ("espresso", "tea", "milk", "water"):
        made.commit(f"Start with {page}", {f"{page}.md": f"# {page}\n"})
    read = history.CommitIngest._read

    def slowly(*given: Any) -> Batch:
        time.sleep(0.6)
        return read(*given)

    monkeypatch.setattr(history, "BATCH", 1)
    monkeypatch.setattr(history.CommitIngest, "_read", slowly)
    with following(made.folder, engine, mcp={"wait_seconds": 0}) as (lib, follower, _):
        until(lambda: settled(lib, follower))
        started = time.monotonic()
        found = lib.commits("water", mode="keyword")
        assert time.monotonic() - started < 20, "not the 60 seconds of a command"
        assert "2 of 4 commits are indexed; the next search continues" in found.notices
        assert [commit.subject for commit, _ in found.ranked] == ["Start with water"]
        until(lambda: lib.status()["history"]["commits"] == 4)


@needs_git
def test_a_history_that_was_never_searched_is_not_indexed(tmp_path: Path, engine: str) -> None:
    made = Repository(tmp_path / "docs")
    made.commit("Start with an espresso page", {"espresso.md": "# Espresso\n\nGrind finely.\n"})
    with following(made.folder, engine) as (lib, follower, _):
        until(lambda: settled(lib, follower))
        assert "history" not in lib.status()


@needs_git
def test_closing_stops_the_embedding_of_commits_too(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "SMALL_WINDOW", 1)
    made = Repository(tmp_path / "docs")
    for page in ("espresso", "tea", "milk"):
        made.commit(f"Start with {page}", {f"{page}.md": f"# {page}\n"})
    with QUICK, library(made.folder, engine=engine) as lib:
        lib.index()
        lib.commits("espresso", mode="keyword")
        lib.models.__dict__["embedder"] = model = Gated()
        follower = Watcher(lib)
        follower.start()
        until(
            lambda: follower.progress and follower.progress.phase == "Embedding passages of commits"
        )
        with ThreadPoolExecutor(1) as closing:
            closed = closing.submit(follower.close)
            until(follower._stopping.is_set)
            model.gate.set()
            closed.result(SECONDS)
        assert not follower.problem
        assert 0 < commits_pending(lib) < lib.status()["history"]["chunks"]
