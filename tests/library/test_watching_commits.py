"""The watcher embeds commits after documents."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import marklight
from marklight.ingest import embedding
from marklight.library.watching import Watcher
from tests.library.watched import QUICK, SECONDS, Gated, following, settled
from tests.making import library
from tests.repository import Repository, needs_git
from tests.waiting import until

if TYPE_CHECKING:
    pass


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
