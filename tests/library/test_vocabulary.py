"""Vocabulary terms are embedded after the passages, a few at a time, and only once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import marklight
from marklight.ingest import embedding
from tests.library.conftest import paths
from tests.making import library, write

if TYPE_CHECKING:
    from marklight.model import Matrix


def missing(lib: marklight.Library) -> list[str]:
    assert lib.models.embedder
    with lib.engine.snapshot() as snapshot:
        return snapshot.vocabulary.terms_without_vector(lib.models.embedder.fingerprint, 99_999)


class Counting:
    """A model that remembers what it was given to embed."""

    def __init__(self, model: Any) -> None:
        self.model, self.texts = model, list[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        self.texts += texts
        rows: Matrix = self.model.embed_passages(texts)
        return rows


def counting(lib: marklight.Library) -> Counting:
    model = Counting(lib.models.embedder)
    lib.models.__dict__["embedder"] = model
    return model


def test_vocabulary_terms_are_embedded_after_the_passages(folder: Path, engine: str) -> None:
    phases: list[str] = []
    with library(folder, engine=engine) as lib:
        lib.index(progress=lambda phase, done, total: phases.append(phase))
        assert missing(lib) == []
        assert lib.status()["pending"] == 0
    assert phases.index("Embedding vocabulary") > phases.index("Embedding passages")


def test_the_next_run_embeds_only_new_terms(folder: Path, engine: str) -> None:
    with library(folder, engine=engine) as lib:
        model = counting(lib)
        lib.index()
        model.texts.clear()
        lib.index()
        assert model.texts == []
        write(folder, {"zebra.md": "Tokens for the zebra house.\n"})
        lib.index()
        assert set(model.texts[1:]) == {"zebra", "house"}


def test_a_search_embeds_few_terms_and_the_next_one_continues(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "TERM_SECONDS", 0.0)
    with library(folder, engine=engine) as lib:
        assert paths(lib.search("espresso machine"))[0] == "notes.txt"
        assert lib.status()["pending"] == 0
        left = missing(lib)
        assert len(left) > 20
        generation = lib.status()["generation"]
        lib.search("espresso machine")
        assert lib.status()["generation"] == generation
        monkeypatch.setattr(embedding, "TERM_SECONDS", 60.0)
        monkeypatch.setattr(embedding, "SMALL_TERM_WINDOW", 5)
        lib.search("espresso machine")
        assert missing(lib) == []
        generation = lib.status()["generation"]
        lib.search("espresso machine")
        assert lib.status()["generation"] == generation


def test_a_stopped_run_keeps_the_terms_it_has_embedded(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "TERM_WINDOW", 5)

    def stop(phase: str, done: int, total: int) -> None:
        if phase == "Embedding vocabulary" and done >= 10:
            raise KeyboardInterrupt

    with library(folder, engine=engine) as lib:
        model = counting(lib)
        with pytest.raises(KeyboardInterrupt):
            lib.index(progress=stop)
        left = missing(lib)
        model.texts.clear()
        lib.index()
        assert len(left) > 20
        assert model.texts == left


def test_an_abbreviation_finds_its_long_form(tmp_path: Path, engine: str) -> None:
    write(
        tmp_path / "docs",
        {
            "signing.md": "# Signing in\n\nAuthentication happens with a token that a server issues.\n",
            "storage.md": "# Storage\n\nThe database keeps its rows in tables.\n",
            "writers.md": "# Writers\n\nThe author signs books at the fair.\n",
            "packages.md": "# Packages\n\nA deb file installs with one command.\n",
            "kitchen.md": "# Kitchen\n\nThe espresso machine stands next to the sink.\n",
            "garden.md": "# Garden\n\nPlant roses in autumn and water the trees.\n",
            "sound.md": "# Loudness\n\nBad dubs are annoying, and so is noise.\n",
        },
    )
    with marklight.open(tmp_path / "docs", {"engine": engine}) as lib:
        lib.index()
        for short, word, path in (
            ("auth", "authentication", "signing.md"),
            ("db", "database", "storage.md"),
        ):
            for mode in ("semantic", "hybrid"):
                answer = lib.search(short, mode=mode)
                # A word is completed, an abbreviation such as "db" is expanded.
                assert word in {answer.query.text, *answer.query.expanded_with}
                assert paths(answer)[0] == path
            without = {"search": {"skip": ["expand"]}}
            plain = lib.search(short, mode="semantic", settings=without)
            assert plain.query.expanded_with == {}
            found = lib.search(short, mode="semantic")
            assert found.hits[0].score > plain.hits[0].score
        assert lib.search("k8s").query.expanded_with == {}
